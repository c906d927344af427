/** Orders of the benchmark to a separate process that works in shapes, and its answers. */
import path from 'node:path';
import pLimit from 'p-limit';
import type { Bench, PartName } from './environment.ts';
import { startProcess, stopChild } from './processes.ts';

/** Run so many of a shape. */
export interface Order<Shape extends string = string> {
  shape: Shape;
  count: number;
}

export interface Times {
  /** When the first was asked for, ms since the epoch. */
  beganAtMs: number;
  /** Until the result of the last was there, ms. */
  elapsedMs: number;
}

interface Numbered {
  id: number;
}
type Answer = Numbered & (Times | { error: string });

/** Sent once, when orders are taken. */
const READY = 'ready';

export interface Ordered<Shape extends string> {
  pid: number;
  /** @throws Error with what it failed with there. */
  ask(order: Order<Shape>): Promise<Times>;
}

/** Starts a process that takes orders; it ends with the benchmark. @throws Error when it does not come up. */
export async function startOrdered<Shape extends string>(
  bench: Bench,
  { file, part }: { file: string; part: PartName },
): Promise<Ordered<Shape>> {
  const { env } = await bench.part(part);
  bench.report(`Starting the ${part}`);
  const child = startProcess(file, {
    env,
    logFile: path.join(bench.dataDir, `${part}.log`),
    nodeOptions: [],
    ipc: true,
  });
  bench.onClose(() => stopChild(child));
  const waiting = new Map<number, (answer: Answer) => void>();
  const error = `the process of the ${part} ended; see ${part}.log`;
  let lastId = 0;
  await new Promise<void>((resolve, reject) => {
    child.once('exit', () => {
      reject(new Error(error));
      for (const [id, settle] of waiting) settle({ id, error });
    });
    child.on('message', (message: Answer | string) => {
      if (typeof message === 'string') return resolve();
      waiting.get(message.id)?.(message);
      waiting.delete(message.id);
    });
  });
  return {
    pid: child.pid!,
    async ask(order) {
      lastId += 1;
      const id = lastId;
      const answer = await new Promise<Answer>((resolve) => {
        waiting.set(id, resolve);
        child.send({ id, ...order } satisfies Numbered & Order);
      });
      if ('error' in answer) throw new Error(`${part}, ${order.shape}: ${answer.error}`);
      return answer;
    },
  };
}

/** The other side: carries orders out until the benchmark has no more. */
export function serveOrders<Shape extends string>(carryOut: (order: Order<Shape>) => Promise<Times>): void {
  process.on('message', ({ id, ...order }: Numbered & Order<Shape>) => {
    void carryOut(order).then(
      (times) => process.send!({ id, ...times } satisfies Answer),
      (error: Error) => process.send!({ id, error: error.message } satisfies Answer),
    );
  });
  // The benchmark is gone, or has no more orders.
  for (const event of ['disconnect', 'SIGTERM']) process.on(event, () => process.exit());
  process.send!(READY);
}

/** More in flight make the servers slower, which would be a low ceiling. */
const IN_FLIGHT = 50;

/** Runs so many, 50 at a time. @param run given the number of each, and when the first began. */
export async function inFlight(
  count: number,
  run: (n: number, beganAtMs: number) => Promise<void>,
): Promise<Times> {
  const beganAtMs = Date.now();
  const startedAt = performance.now();
  await pLimit(IN_FLIGHT).map(Array.from({ length: count }), (_, n) => run(n, beganAtMs));
  return { beganAtMs, elapsedMs: performance.now() - startedAt };
}
