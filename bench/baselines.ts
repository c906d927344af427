/**
 * What the service is compared with, in the same run and with the same server: the empty workflow, the ceiling tree (an
 * empty parent with two empty children, the shape of an intent for one recipient) and the naive tree (the same work as the
 * service's, done with what the SDK does by default). They run in a separate process, as the service does.
 */
import type { BaselineShape } from './baseline-process.ts';
import type { Bench } from './environment.ts';
import type { Ordered } from './orders.ts';
import { startOrdered } from './orders.ts';
import type { Round } from './rounds.ts';
import { runRound } from './rounds.ts';

export interface Baselines {
  /** So many workflows of a shape, 50 in flight. */
  round(shape: BaselineShape, count: number): Promise<Round>;
  /** From the start of an empty workflow to its result, as its client sees it, ms. */
  emptyRoundTrip(): Promise<number>;
}

const opened = new WeakMap<Bench, Promise<Ordered<BaselineShape>>>();

/** The baselines of a run, started when they are first needed. */
export async function baselinesOf(bench: Bench): Promise<Baselines> {
  const starting =
    opened.get(bench) ??
    startOrdered<BaselineShape>(bench, { file: 'bench/baseline-process.ts', part: 'baselines' });
  opened.set(bench, starting);
  const [part, { pid, ask }] = await Promise.all([bench.part('baselines'), starting]);
  return {
    round: (shape, count) =>
      runRound(bench, {
        part,
        workerPid: pid,
        workflowType: shape,
        count,
        begin: async () => (await ask({ shape, count })).beganAtMs,
      }),
    emptyRoundTrip: async () => (await ask({ shape: 'emptyWorkflow', count: 1 })).elapsedMs,
  };
}
