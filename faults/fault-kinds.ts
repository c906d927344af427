/** Every fault that a run can have: what it is, what it is called, whom it hits, and how long it lasts. Pure. */
import type { SilentDirection } from '../dev/servers/tcp-proxy.ts';
import type { MemberName } from '../dev/servers/temporal-cluster.ts';
import type { Random } from './random.ts';

export const SERVERS = ['redis', 'postgres', 'temporal'] as const;
export type ServerName = (typeof SERVERS)[number];

/** What the service reaches over a network that can be spoiled. */
export const NETWORKS = [...SERVERS, 'user-service'] as const;
export type NetworkName = (typeof NETWORKS)[number];

/** Faults after which a store has forgotten something that it had acknowledged. */
export const LOSSES = ['failover', 'redis', 'postgres', 'temporal', 'namespace'] as const;
export type LossName = (typeof LOSSES)[number];

export type FaultKind =
  /** SIGKILL of a process of the service; it is started again after a while. */
  | { kind: 'kill-service'; service: number }
  /** SIGTERM, as in a rollout. */
  | { kind: 'stop-service'; service: number }
  /** SIGSTOP, and SIGCONT later: a machine that is moved, or has no time for it. */
  | { kind: 'pause-service'; service: number }
  /** The service restarts with a clock that is so much ahead, and after a while with the right one. */
  | { kind: 'clock'; service: number; aheadMs: number }
  /** It is killed as soon as it takes so much more memory than now, MB, and at the end in any case. */
  | { kind: 'memory-limit'; service: number; moreMb: number }
  /** All services restart one after the other with new keys first; then values under old keys are sealed again. */
  | { kind: 'rotate-keys' }
  /** SIGKILL of a server, which comes back with what is on its disk. */
  | { kind: 'kill-server'; server: ServerName }
  /** SIGKILL of one process of a cluster; it is started again after a while, and the others go on. */
  | { kind: 'kill-member'; server: 'temporal'; member: MemberName }
  /** Redis refuses to write: `OOM` when its memory is full, `MISCONF` when its disk is. */
  | { kind: 'refuse-writes'; server: 'redis'; because: 'OOM' | 'MISCONF' }
  /** No space is left on its disk. */
  | { kind: 'disk-full'; server: 'postgres' }
  /** Every connection is reset; new ones work. */
  | { kind: 'cut'; network: NetworkName }
  /** Every connection is reset, and new ones are refused. */
  | { kind: 'refuse'; network: NetworkName }
  | { kind: 'delay'; network: NetworkName; ms: number }
  /** A link of 10 Mbit/s on which everything takes this long besides. */
  | { kind: 'narrow'; network: NetworkName; ms: number }
  /** Its name leads to another address from now on, and the one before is gone. */
  | { kind: 'move'; network: NetworkName }
  /** Connections look alive, and nothing comes back, or nothing gets there. */
  | { kind: 'half-open'; network: NetworkName; silent: SilentDirection }
  /** Its replica lags behind, takes its place, and gives it back later, with what was written meanwhile. */
  | { kind: 'failover'; server: 'redis' }
  /** It is put back to what it had on its disk a moment before. */
  | { kind: 'put-back'; server: ServerName }
  /** It starts with nothing. */
  | { kind: 'namespace-lost'; server: 'temporal' };

/** Those after which nothing that was acknowledged is gone. */
export const ORDINARY_KINDS = [
  'kill-service',
  'stop-service',
  'pause-service',
  'clock',
  'memory-limit',
  'rotate-keys',
  'kill-server',
  'kill-member',
  'refuse-writes',
  'disk-full',
  'cut',
  'refuse',
  'delay',
  'narrow',
  'move',
  'half-open',
] as const satisfies readonly FaultKind['kind'][];
export type OrdinaryKind = (typeof ORDINARY_KINDS)[number];

export type Fault = FaultKind & {
  /** From the beginning of the load, ms. */
  atMs: number;
  /** How long it lasts; for a process or server that was ended: until it is started again, ms. */
  forMs: number;
};

/** 10 Mbit/s */
export const NARROW_BYTES_PER_SECOND = 1_250_000;
export const DAY_MS = 86_400_000;

/** What a fault is called in reports: `kill-server redis`. */
export function nameOf(fault: FaultKind): string {
  if (fault.kind === 'refuse-writes') return `${fault.kind} ${fault.server} ${fault.because}`;
  if (fault.kind === 'clock') return `clock ${fault.aheadMs > 0 ? 'ahead' : 'behind'}`;
  if (fault.kind === 'kill-member') return `${fault.kind} ${fault.member}`;
  if ('server' in fault) return `${fault.kind} ${fault.server}`;
  return 'network' in fault ? `${fault.kind} ${fault.network}` : fault.kind;
}

/** What two faults must not hit together; of the keys everything is. */
export function subjectsOf(fault: FaultKind, services: number): string[] {
  if ('service' in fault) return [`service ${fault.service}`];
  if (fault.kind === 'rotate-keys') return Array.from({ length: services }, (_, index) => `service ${index}`);
  return 'server' in fault ? [fault.server] : [fault.network];
}

/** @param withinMs of the load. @returns how long it lasts, ms. */
export function durationOf(fault: FaultKind, random: Random, withinMs: number): number {
  switch (fault.kind) {
    case 'cut':
    case 'move':
    case 'rotate-keys':
      return 0;
    case 'kill-service':
    case 'stop-service':
      return random.between(0, 4_000);
    case 'kill-server':
    case 'kill-member':
      return random.between(0, 6_000);
    case 'pause-service':
      return random.between(5_000, Math.max(5_000, Math.min(60_000, withinMs / 4)));
    case 'clock':
      return random.between(8_000, 20_000);
    case 'memory-limit':
      return random.between(5_000, 15_000);
    case 'refuse':
    case 'half-open':
    case 'refuse-writes':
    case 'disk-full':
      return random.between(1_000, 8_000);
    case 'failover':
    case 'put-back':
      return random.between(2_000, Math.max(2_000, Math.min(15_000, withinMs / 5)));
    case 'namespace-lost':
    case 'delay':
    case 'narrow':
      return random.between(2_000, 10_000);
  }
}
