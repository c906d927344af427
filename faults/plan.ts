/** Which faults happen in a run, when, and for how long: decided by the seed before the run begins. Pure. */
import { SelfExplanatoryError } from '../api/errors.ts';
import type { MemberName } from '../dev/servers/temporal-cluster.ts';
import type { Fault, FaultKind, LossName, OrdinaryKind } from './fault-kinds.ts';
import { DAY_MS, NETWORKS, SERVERS, durationOf, subjectsOf } from './fault-kinds.ts';
import type { Random } from './random.ts';

export interface PlanOptions {
  services: number;
  /** How many, without losses. */
  count: number;
  /** They begin before this time, ms. */
  withinMs: number;
  /** Stores that forget something, each once. */
  losses: readonly LossName[];
  /** Only these; undefined: all. */
  kinds: readonly OrdinaryKind[] | undefined;
  isEncrypted: boolean;
  /** Processes of Temporal that can be killed one by one; none unless it is a cluster. */
  members: readonly MemberName[];
}

/** One of each, in an order that the seed chooses; then all of them again, so that a long run has each several times. */
function deckOf(random: Random, { services, isEncrypted, members }: PlanOptions): FaultKind[] {
  const service = () => random.between(0, services - 1);
  const network = () => random.oneOf(NETWORKS);
  return random.shuffled<FaultKind>([
    { kind: 'kill-service', service: service() },
    { kind: 'kill-service', service: service() },
    { kind: 'stop-service', service: service() },
    { kind: 'pause-service', service: service() },
    { kind: 'clock', service: service(), aheadMs: random.oneOf([DAY_MS, -DAY_MS]) },
    { kind: 'memory-limit', service: service(), moreMb: random.between(5, 60) },
    ...(isEncrypted ? [{ kind: 'rotate-keys' as const }] : []),
    { kind: 'refuse-writes', server: 'redis', because: 'OOM' },
    { kind: 'refuse-writes', server: 'redis', because: 'MISCONF' },
    { kind: 'disk-full', server: 'postgres' },
    { kind: 'narrow', network: network(), ms: random.between(5, 100) },
    { kind: 'move', network: network() },
    ...SERVERS.map((server): FaultKind => ({ kind: 'kill-server', server })),
    ...members.map((member): FaultKind => ({ kind: 'kill-member', server: 'temporal', member })),
    ...NETWORKS.flatMap((name): FaultKind[] => [
      { kind: 'cut', network: name },
      { kind: 'refuse', network: name },
      { kind: 'delay', network: name, ms: random.between(50, 800) },
      { kind: 'half-open', network: name, silent: random.oneOf(['requests', 'answers', 'both'] as const) },
    ]),
  ]);
}

const lossOf = (name: LossName): FaultKind => {
  if (name === 'failover') return { kind: 'failover', server: 'redis' };
  return name === 'namespace'
    ? { kind: 'namespace-lost', server: 'temporal' }
    : { kind: 'put-back', server: name };
};

/** Faults spread over the time of the load. They may overlap; two of one subject do not. */
export function planFaults(random: Random, options: PlanOptions): Fault[] {
  const { services, count, withinMs, losses, kinds } = options;
  const faults: Fault[] = [];
  const freeAt = new Map<string, number>();
  const slotMs = withinMs / (count + losses.length);
  // Losses come in between, each once.
  const isLoss = random.shuffled([
    ...losses.map((name) => lossOf(name)),
    ...Array<undefined>(count).fill(undefined),
  ]);
  let deck: FaultKind[] = [];
  for (const [index, loss] of isLoss.entries()) {
    if (deck.length === 0)
      deck = deckOf(random, options).filter(({ kind }) => kinds?.some((one) => one === kind) ?? true);
    if (deck.length === 0)
      throw new SelfExplanatoryError(`no fault of the kinds ${kinds?.join()} can happen`);
    const fault = loss ?? deck.pop()!;
    const forMs = durationOf(fault, random, withinMs);
    const drawnAt = Math.round(slotMs * (index + random.next()));
    const subjects = subjectsOf(fault, services);
    const atMs = Math.max(drawnAt, ...subjects.map((subject) => freeAt.get(subject) ?? 0));
    for (const subject of subjects) freeAt.set(subject, atMs + forMs + 500);
    faults.push({ ...fault, atMs, forMs });
  }
  return faults.sort((a, b) => a.atMs - b.atMs);
}
