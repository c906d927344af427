/** Brings planned faults about. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import type { Fault, NetworkName } from './fault-kinds.ts';
import { nameOf, subjectsOf } from './fault-kinds.ts';
import type { Spoiled } from './ledger/excuse.ts';
import { spoilNetwork } from './network-faults.ts';
import { spoilServer } from './server-faults.ts';
import type { Servers } from './servers.ts';
import { spoilService } from './service-faults.ts';
import type { SupervisedService } from './services.ts';

export interface Targets {
  servers: Servers;
  services: readonly SupervisedService[];
  networks: Record<NetworkName, { proxy: TcpProxy; target: () => { host: string; port: number } }>;
  /** The environment and sources that processes of the service have when nothing is wrong. */
  usual: { env(service: number): Record<string, string>; folder: string };
  /** Where the release before is. */
  releaseBefore?: string;
  /** From now on, new keys come first. @returns when what old ones sealed is sealed anew. */
  rotateKeys(restart: (service: number) => Promise<void>): Promise<void>;
  report: (line: string) => void;
  /** Gets each of them when it has ended. */
  injected: Spoiled[];
}

/** A time in which something was spoiled, ms since the epoch. */
export type Span = readonly [startedAt: number, endedAt: number];

/** Resolves when the last fault has ended. */
export async function injectFaults(plan: readonly Fault[], targets: Targets): Promise<void> {
  const beganAt = Date.now();
  // What takes longer than planned keeps others from its subject.
  const turns = new Map<string, Promise<void>>();
  await Promise.all(plan.map(takeTurn));
  // One that a fault has ended for good, as a disk that was full.
  for (const name of ['redis', 'postgres', 'temporal'] as const) {
    const instance = targets.servers[name].now();
    if (!instance.isRunning()) await instance.start();
  }

  function takeTurn(fault: Fault): Promise<void> {
    const subjects = subjectsOf(fault, targets.services.length);
    const before = Promise.all(subjects.map((subject) => turns.get(subject) ?? Promise.resolve()));
    const turn = before.then(() => inject(fault));
    for (const subject of subjects) turns.set(subject, turn);
    return turn;
  }

  async function inject(fault: Fault): Promise<void> {
    await sleep(Math.max(0, beganAt + fault.atMs - Date.now()));
    const startedAt = Date.now();
    const name = nameOf(fault);
    targets.report(`  ${((startedAt - beganAt) / 1_000).toFixed(1)} s: ${name}, ${fault.forMs} ms`);
    const spans = await bringAbout(fault, targets).catch((error: Error) => {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    });
    for (const [index, [from, to]] of spans.entries()) {
      targets.injected.push({
        name,
        startedAt: from,
        endedAt: to,
        ...(index > 0 ? { isGoingOn: true } : {}),
        ...('service' in fault ? { service: fault.service } : {}),
        ...(fault.kind === 'pause-service' ? { isPause: true } : {}),
        ...('server' in fault ? { server: fault.server } : {}),
        ...('network' in fault ? { server: fault.network } : {}),
        ...(['failover', 'put-back', 'namespace-lost'].includes(fault.kind) ? { isLoss: true } : {}),
      });
    }
  }
}

/** @returns when the fault was there. */
async function bringAbout(fault: Fault, targets: Targets): Promise<readonly Span[]> {
  if ('network' in fault) return [await spoilNetwork(fault, targets)];
  if ('server' in fault) return [await spoilServer(fault, targets.servers)];
  return spoilService(fault, targets);
}
