/** One server's process, or a whole cluster, as a run has it: with data that outlive it, and killed like any process. */
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../dev/servers/ports.ts';
import { isRunning, signalProcess, type ProcessRef } from '../dev/servers/processes.ts';
import type { ClusterMember, MemberName } from '../dev/servers/temporal-cluster.ts';
import type { ServerName } from './fault-kinds.ts';

/** PostgreSQL does not start while processes of the one before are still ending. */
const START_ATTEMPTS = 20;
const START_PAUSE_MS = 250;

/** A server's process and its data. */
export interface Instance {
  port: number;
  /** Of a cluster: its processes. */
  members?: ReadonlyMap<MemberName, ClusterMember>;
  /** Connection string of the database that a cluster has its histories in. */
  store?: string;
  /** Where its data are. */
  folder: string;
  isRunning(): boolean;
  /** SIGKILL; resolves when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again with the data that it left. */
  start(): Promise<void>;
  stop(): Promise<void>;
  logs(): string;
}

export type Starter = (
  port: number,
  dataDir: string,
) => Promise<{ stop(): Promise<void>; folder?: string | undefined }>;

export async function startInstance(
  name: ServerName,
  dataDir: string,
  startOnce: Starter,
): Promise<Instance> {
  const port = await freePort();
  const log = path.join(dataDir, `${name}.log`);
  /** Logs of the processes that were killed: a start overwrites the last one but one. */
  const history = path.join(dataDir, `${name}.killed.log`);
  const start = async () => {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await startOnce(port, dataDir);
      } catch (error) {
        if (attempt === START_ATTEMPTS) throw error;
        await sleep(START_PAUSE_MS);
      }
    }
  };
  let running = await start();
  const processOf = (): ProcessRef => {
    const pidFile = readFileSync(path.join(dataDir, `${name}.pid.json`), 'utf8');
    return (JSON.parse(pidFile) as { server: ProcessRef }).server;
  };
  return {
    port,
    folder: running.folder ?? path.join(dataDir, name),
    isRunning: () => isRunning(processOf()),
    async kill() {
      const server = processOf();
      signalProcess(server, 'SIGKILL');
      while (isRunning(server)) await sleep(5);
      appendFileSync(history, textOf(log));
    },
    async start() {
      running = await start();
    },
    stop: () => running.stop(),
    logs: () => textOf(history) + textOf(log),
  };
}

const textOf = (file: string): string => (existsSync(file) ? readFileSync(file, 'utf8') : '');
