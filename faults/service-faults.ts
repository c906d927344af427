/** Faults of the service's own processes. */
import { setTimeout as sleep } from 'node:timers/promises';
import { memoryMbOf } from '../bench/processes.ts';
import type { Fault } from './fault-kinds.ts';
import type { Span, Targets } from './targets.ts';
import type { SupervisedService } from './services.ts';
import { clockAhead } from './skewed-clock.ts';

type ServiceFault = Exclude<Fault, { server: unknown } | { network: unknown }>;

const LOOK_EVERY_MS = 50;

/** @returns when a process was not there, or not as usual. */
export async function spoilService(fault: ServiceFault, targets: Targets): Promise<readonly Span[]> {
  const { services, usual } = targets;
  if (fault.kind === 'rotate-keys') return rotateKeys(targets);
  const service = services[fault.service]!;
  const startedAt = Date.now();
  switch (fault.kind) {
    case 'kill-service':
      return [[startedAt, await service.end('SIGKILL', fault.forMs)]];
    case 'stop-service':
      return [[startedAt, await service.end('SIGTERM', fault.forMs)]];
    case 'pause-service':
      service.signal('SIGSTOP');
      await sleep(fault.forMs);
      service.signal('SIGCONT');
      return [[startedAt, Date.now()]];
    case 'memory-limit':
      return [[await untilItTakes(service, fault.moreMb, fault.forMs), await service.end('SIGKILL', 0)]];
    case 'clock': {
      const env = { ...usual.env(fault.service), NODE_OPTIONS: clockAhead(fault.aheadMs) };
      return otherwise(service, { env, folder: usual.folder });
    }
  }

  /** Runs it otherwise for a while. */
  async function otherwise(
    one: SupervisedService,
    program: { env: Record<string, string>; folder: string },
  ): Promise<readonly Span[]> {
    const before: Span = [startedAt, await one.end('SIGTERM', 0, program)];
    await one.ready();
    await sleep(fault.forMs);
    const from = Date.now();
    const back = { env: usual.env((fault as { service: number }).service), folder: usual.folder };
    return [before, [from, await one.end('SIGTERM', 0, back)]];
  }
}

/** @returns when it was killed for it: ms since the epoch. */
async function untilItTakes(service: SupervisedService, moreMb: number, forMs: number): Promise<number> {
  const usedMb = (): number => {
    try {
      return memoryMbOf(service.pid ?? process.pid) ?? 0;
    } catch {
      // It is between two processes.
      return 0;
    }
  };
  const limitMb = usedMb() + moreMb;
  for (const deadline = Date.now() + forMs; Date.now() < deadline && usedMb() < limitMb;)
    await sleep(LOOK_EVERY_MS);
  return Date.now();
}

/** Other faults may use the processes again while values under old keys are sealed again. */
async function rotateKeys({ services, usual, rotateKeys: rotate }: Targets): Promise<readonly Span[]> {
  const spans: Span[] = [];
  await rotate(async (index) => {
    const startedAt = Date.now();
    const service = services[index]!;
    spans.push([startedAt, await service.end('SIGTERM', 0, { env: usual.env(index), folder: usual.folder })]);
    await service.ready();
  });
  return spans;
}
