/** What faults are brought about on. */
import type { TcpProxy } from '../dev/servers/tcp-proxy.ts';
import type { NetworkName } from './fault-kinds.ts';
import type { Spoiled } from './ledger/excuse.ts';
import type { Servers } from './servers.ts';
import type { SupervisedService } from './services.ts';

export interface Targets {
  servers: Servers;
  services: readonly SupervisedService[];
  networks: Record<NetworkName, { proxy: TcpProxy; target: () => { host: string; port: number } }>;
  /** The environment and sources that processes of the service have when nothing is wrong. */
  usual: { env(service: number): Record<string, string>; folder: string };
  /** From now on, new keys come first. @returns when values under old keys are sealed again. */
  rotateKeys(restart: (service: number) => Promise<void>): Promise<void>;
  report: (line: string) => void;
  /** Gets each of them when it has ended. */
  injected: Spoiled[];
}

/** A time in which something was spoiled, ms since the epoch. */
export type Span = readonly [startedAt: number, endedAt: number];
