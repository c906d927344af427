/**
 * Who else could do the work, in the same run: DBOS as one workflow and as a tree, and no engine at all. They do all real
 * work of an intent, with the same functions, connections and log lines as the service. They run in a separate process.
 */
import type { Bench } from './environment.ts';
import type { Ordered } from './orders.ts';
import { startOrdered } from './orders.ts';
import type { PeerShape } from './peer-process.ts';
import type { Round } from './rounds.ts';
import { measured } from './rounds.ts';

export interface Peers {
  /** So many intents, 50 in flight. */
  round(shape: PeerShape, count: number): Promise<Round>;
}

const opened = new WeakMap<Bench, Promise<Ordered<PeerShape>>>();

/** The peers of a run, started when they are first needed. */
export async function peersOf(bench: Bench): Promise<Peers> {
  const starting =
    opened.get(bench) ?? startOrdered<PeerShape>(bench, { file: 'bench/peer-process.ts', part: 'peers' });
  opened.set(bench, starting);
  const { pid, ask } = await starting;
  return {
    round: (shape, count) => measured(bench, { workerPid: pid, count }, () => ask({ shape, count })),
  };
}
