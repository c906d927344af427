/** Faults of the networks between the service and what it reaches. */
import { setTimeout as sleep } from 'node:timers/promises';
import { startTcpProxy } from '../dev/servers/tcp-proxy.ts';
import type { Fault } from './fault-kinds.ts';
import { NARROW_BYTES_PER_SECOND } from './fault-kinds.ts';
import type { Span, Targets } from './targets.ts';

export async function spoilNetwork(
  fault: Extract<Fault, { network: unknown }>,
  { networks }: Pick<Targets, 'networks'>,
): Promise<Span> {
  const startedAt = Date.now();
  const { proxy, target } = networks[fault.network];
  switch (fault.kind) {
    case 'cut':
      proxy.cut();
      return [startedAt, Date.now()];
    case 'move': {
      // Another machine that leads to the same server: a client that keeps the former address is cut off.
      const other = await startTcpProxy(target());
      process.once('exit', () => void other.stop());
      proxy.moveTo(other);
      proxy.cut();
      return [startedAt, Date.now()];
    }
    case 'refuse':
      await proxy.set({ kind: 'refuse' });
      proxy.cut();
      break;
    case 'delay':
      await proxy.set({ kind: 'delay', ms: fault.ms });
      break;
    case 'narrow':
      await proxy.set({ kind: 'narrow', bytesPerSecond: NARROW_BYTES_PER_SECOND, ms: fault.ms });
      break;
    case 'half-open':
      await proxy.set({ kind: 'half-open', silent: fault.silent });
      break;
  }
  await sleep(fault.forMs);
  await proxy.set({ kind: 'open' });
  return [startedAt, Date.now()];
}
