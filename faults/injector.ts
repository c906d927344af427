/** Brings planned faults about. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fault } from './fault-kinds.ts';
import { nameOf, subjectsOf } from './fault-kinds.ts';
import { spoilNetwork } from './network-faults.ts';
import { spoilServer } from './server-faults.ts';
import { spoilService } from './service-faults.ts';
import type { Span, Targets } from './targets.ts';

/** From the end of a loss to the next one: what it took is repaired. One loss at a time is what is promised, ms. */
const REPAIRED_MS = 10_000;

/** Resolves when the last fault has ended. */
export async function injectFaults(plan: readonly Fault[], targets: Targets): Promise<void> {
  const beganAt = Date.now();
  // What takes longer than planned keeps others from its subject.
  const turns = new Map<string, Promise<unknown>>();
  let lastLoss: Promise<unknown> = Promise.resolve();
  await Promise.all(plan.map(injectInTurn));
  // One that a fault has ended for good, as a disk that was full.
  for (const name of ['redis', 'postgres', 'temporal'] as const) {
    const instance = targets.servers[name].now();
    if (!instance.isRunning()) await instance.start();
  }

  function injectInTurn(fault: Fault): Promise<void> {
    const subjects = subjectsOf(fault, targets.services.length);
    const before = Promise.all([
      ...subjects.map((subject) => turns.get(subject)),
      ...(isLoss(fault) ? [lastLoss] : []),
    ]);
    const turn = before.then(() => inject(fault));
    if (isLoss(fault)) lastLoss = turn.then(() => sleep(REPAIRED_MS));
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
        ...(isLoss(fault) ? { isLoss: true } : {}),
      });
    }
  }
}

const isLoss = ({ kind }: Fault): boolean => ['failover', 'put-back', 'namespace-lost'].includes(kind);

/** @returns when the fault was there. */
async function bringAbout(fault: Fault, targets: Targets): Promise<readonly Span[]> {
  if ('network' in fault) return [await spoilNetwork(fault, targets)];
  if ('server' in fault) return [await spoilServer(fault, targets.servers)];
  return spoilService(fault, targets);
}
