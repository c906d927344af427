/** Brings planned faults about. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import type { Spoiled } from './ledger/excuse.ts';
import type { Fault, NetworkName } from './plan.ts';
import { nameOf } from './plan.ts';
import type { Servers } from './servers.ts';
import type { SupervisedService } from './services.ts';

interface Targets {
  servers: Servers;
  services: readonly SupervisedService[];
  networks: Record<NetworkName, TcpProxy>;
  report: (line: string) => void;
  /** Gets each of them when it has ended. */
  injected: Spoiled[];
}

/** Resolves when the last fault has ended. */
export async function injectFaults(
  plan: readonly Fault[],
  { servers, services, networks, report, injected }: Targets,
): Promise<void> {
  const beganAt = Date.now();

  await Promise.all(plan.map(inject));

  async function inject(fault: Fault): Promise<void> {
    await sleep(Math.max(0, beganAt + fault.atMs - Date.now()));
    const startedAt = Date.now();
    report(`  ${((startedAt - beganAt) / 1_000).toFixed(1)} s: ${nameOf(fault)}, ${fault.forMs} ms`);
    const endedAt = await bringAbout(fault);
    injected.push({
      name: nameOf(fault),
      startedAt,
      endedAt,
      ...('service' in fault ? { service: fault.service } : {}),
      ...('server' in fault ? { server: fault.server } : {}),
      ...('network' in fault ? { server: fault.network } : {}),
    });
  }

  /** @returns when it ended. */
  async function bringAbout(fault: Fault): Promise<number> {
    switch (fault.kind) {
      case 'kill-service':
      case 'stop-service': {
        const signal = fault.kind === 'kill-service' ? 'SIGKILL' : 'SIGTERM';
        // Over when it is gone, since others take its work.
        return services[fault.service]!.end(signal, fault.forMs);
      }
      case 'kill-server':
        await servers[fault.server].kill();
        await sleep(fault.forMs);
        await servers[fault.server].start();
        return Date.now();
      case 'cut':
        networks[fault.network].cut();
        return Date.now();
      case 'refuse':
        await networks[fault.network].set({ kind: 'refuse' });
        networks[fault.network].cut();
        break;
      case 'delay':
        await networks[fault.network].set({ kind: 'delay', ms: fault.ms });
        break;
      case 'half-open':
        await networks[fault.network].set({ kind: 'half-open', silent: fault.silent });
        break;
    }
    await sleep(fault.forMs);
    await networks[fault.network].set({ kind: 'open' });
    return Date.now();
  }
}
