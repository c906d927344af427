/** Which faults happen in a run, when, and for how long: decided by the seed before the run begins. Pure. */
import type { SilentDirection } from '../dev/servers/tcp-proxy.ts';
import type { Random } from './random.ts';

export const SERVERS = ['redis', 'postgres', 'temporal'] as const;
export type ServerName = (typeof SERVERS)[number];

/** What the service reaches over a network that can be spoiled. */
export const NETWORKS = [...SERVERS, 'user-service'] as const;
export type NetworkName = (typeof NETWORKS)[number];

type FaultKind =
  /** SIGKILL of a process of the service; it is started again after a while. */
  | { kind: 'kill-service'; service: number }
  /** SIGTERM, as in a rollout. */
  | { kind: 'stop-service'; service: number }
  /** SIGKILL of a server, which comes back with what is on its disk. */
  | { kind: 'kill-server'; server: ServerName }
  /** Every connection is reset; new ones work. */
  | { kind: 'cut'; network: NetworkName }
  /** Every connection is reset, and new ones are refused. */
  | { kind: 'refuse'; network: NetworkName }
  | { kind: 'delay'; network: NetworkName; ms: number }
  /** Connections look alive, and nothing comes back, or nothing gets there. */
  | { kind: 'half-open'; network: NetworkName; silent: SilentDirection };

export type Fault = FaultKind & {
  /** From the beginning of the load, ms. */
  atMs: number;
  /** How long it lasts; for a process or server that was ended: until it is started again, ms. */
  forMs: number;
};

/** What a fault is called in reports: `kill-server redis`. */
export function nameOf(fault: FaultKind): string {
  switch (fault.kind) {
    case 'kill-service':
    case 'stop-service':
      return fault.kind;
    case 'kill-server':
      return `${fault.kind} ${fault.server}`;
    case 'cut':
    case 'refuse':
    case 'delay':
    case 'half-open':
      return `${fault.kind} ${fault.network}`;
  }
}

const subjectOf = (fault: FaultKind): string => {
  if ('service' in fault) return `service ${fault.service}`;
  return 'server' in fault ? fault.server : fault.network;
};

/** One of each, in an order that the seed chooses; then all of them again, so that a long run has each several times. */
function deckOf(random: Random, services: number): FaultKind[] {
  const service = () => random.between(0, services - 1);
  return random.shuffled<FaultKind>([
    { kind: 'kill-service', service: service() },
    { kind: 'kill-service', service: service() },
    { kind: 'stop-service', service: service() },
    ...SERVERS.map((server): FaultKind => ({ kind: 'kill-server', server })),
    ...NETWORKS.flatMap((network): FaultKind[] => [
      { kind: 'cut', network },
      { kind: 'refuse', network },
      { kind: 'delay', network, ms: random.between(50, 800) },
      { kind: 'half-open', network, silent: random.oneOf(['requests', 'answers', 'both'] as const) },
    ]),
  ]);
}

/** How long each lasts, ms. */
function durationOf(fault: FaultKind, random: Random): number {
  switch (fault.kind) {
    case 'cut':
      return 0;
    case 'kill-service':
    case 'stop-service':
      return random.between(0, 4_000);
    case 'kill-server':
      return random.between(0, 6_000);
    case 'refuse':
    case 'half-open':
      return random.between(1_000, 8_000);
    case 'delay':
      return random.between(2_000, 10_000);
  }
}

/**
 * @param count how many.
 * @param withinMs they begin before this time, spread over it, and may overlap; two of one subject do not.
 */
export function planFaults(
  random: Random,
  { services, count, withinMs }: { services: number; count: number; withinMs: number },
): Fault[] {
  const faults: Fault[] = [];
  const freeAt = new Map<string, number>();
  let deck: FaultKind[] = [];
  for (let index = 0; index < count; index += 1) {
    if (deck.length === 0) deck = deckOf(random, services);
    const fault = deck.pop()!;
    const forMs = durationOf(fault, random);
    const slotMs = withinMs / count;
    const drawnAt = Math.round(slotMs * (index + random.next()));
    const atMs = Math.max(drawnAt, freeAt.get(subjectOf(fault)) ?? 0);
    freeAt.set(subjectOf(fault), atMs + forMs + 500);
    faults.push({ ...fault, atMs, forMs });
  }
  return faults.sort((a, b) => a.atMs - b.atMs);
}
