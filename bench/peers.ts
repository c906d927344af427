/**
 * Who else could do the work, in the same run: DBOS as one workflow and as a tree, and no engine at all. They do all real
 * work of an intent, with the same functions, connections and log lines as the service. They run in a separate process.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { runCommand } from '../dev/servers/command.ts';
import type { PeerShape } from './dbos/peer-process.ts';
import type { Bench } from './environment.ts';
import type { Ordered } from './orders.ts';
import { startOrdered } from './orders.ts';
import type { Round } from './rounds.ts';
import { measured } from './rounds.ts';

export interface Peers {
  /** So many intents, 50 in flight. */
  round(shape: PeerShape, count: number): Promise<Round>;
}

const opened = new WeakMap<Bench, Promise<Ordered<PeerShape>>>();

/** The peers of a run, started when they are first needed. */
export async function peersOf(bench: Bench): Promise<Peers> {
  const starting = opened.get(bench) ?? start(bench);
  opened.set(bench, starting);
  const { pid, ask } = await starting;
  return {
    round: (shape, count) => measured(bench, { workerPid: pid, count }, () => ask({ shape, count })),
  };
}

const FOLDER = path.join(import.meta.dirname, 'dbos');

/** DBOS is installed when it is first needed: nothing else needs it. */
async function start(bench: Bench): Promise<Ordered<PeerShape>> {
  if (!existsSync(path.join(FOLDER, 'node_modules', '@dbos-inc', 'dbos-sdk'))) {
    bench.report('Installing DBOS (once)');
    await runCommand('npm', ['ci', '--prefix', FOLDER, '--ignore-scripts', '--no-audit', '--no-fund']);
  }
  return startOrdered<PeerShape>(bench, { file: 'bench/dbos/peer-process.ts', part: 'peers' });
}
