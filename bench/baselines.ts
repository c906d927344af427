/**
 * What the service is compared with, in the same run: the empty workflow, the ceiling tree (an empty parent with two
 * empty children, the shape of an intent for one recipient) and the naive tree (the same work as the service's, done
 * with what the SDK does by default). They run in a separate process, as the service does.
 */
import path from 'node:path';
import type { Answer, BaselineShape, Order } from './baseline-process.ts';
import type { Bench } from './environment.ts';
import { startProcess, stopChild } from './processes.ts';
import type { Round } from './rounds.ts';
import { runRound } from './rounds.ts';

export interface Baselines {
  /** So many workflows of a shape, 50 in flight. */
  round(shape: BaselineShape, count: number): Promise<Round>;
  /** From the start of an empty workflow to its result, as its client sees it, ms. */
  emptyRoundTrip(): Promise<number>;
}

const opened = new WeakMap<Bench, Promise<Baselines>>();

/** The baselines of a run, started when they are first needed. */
export function baselinesOf(bench: Bench): Promise<Baselines> {
  const found = opened.get(bench) ?? open(bench);
  opened.set(bench, found);
  return found;
}

async function open(bench: Bench): Promise<Baselines> {
  const part = await bench.part('baselines');
  bench.report('Starting the baselines');
  const child = startProcess('bench/baseline-process.ts', {
    env: part.env,
    logFile: path.join(bench.dataDir, 'baselines.log'),
    nodeOptions: [],
    ipc: true,
  });
  bench.onClose(() => stopChild(child));
  const waiting = new Map<number, (answer: Answer) => void>();
  let lastId = 0;
  await new Promise<void>((resolve, reject) => {
    const fail = () => reject(new Error('the process of the baselines ended; see baselines.log'));
    child.once('exit', () => {
      fail();
      for (const [id, settle] of waiting) settle({ id, error: 'the process of the baselines ended' });
    });
    child.on('message', (message: Answer | string) => {
      if (typeof message === 'string') return resolve();
      waiting.get(message.id)?.(message);
      waiting.delete(message.id);
    });
  });

  async function ask(order: Omit<Order, 'id'>): Promise<Answer> {
    lastId += 1;
    const id = lastId;
    const answer = await new Promise<Answer>((resolve) => {
      waiting.set(id, resolve);
      child.send({ id, ...order } satisfies Order);
    });
    if (answer.error !== undefined) throw new Error(`baseline ${order.shape}: ${answer.error}`);
    return answer;
  }

  return {
    round: (shape, count) =>
      runRound(bench, {
        part,
        workerPid: child.pid!,
        workflowType: shape,
        count,
        begin: async () => (await ask({ shape, count, isRoundTrip: false })).beganAtMs!,
      }),
    async emptyRoundTrip() {
      const { roundTripMs } = await ask({ shape: 'emptyWorkflow', count: 1, isRoundTrip: true });
      return roundTripMs!;
    },
  };
}
