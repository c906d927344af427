/**
 * What there is to remember about one intent with one recipient, by the store that remembers it. Numbers that name
 * entries, versions and servers come from one clock that never goes back, as those of the real stores come from time.
 */
import type { OutboundLook, SeenOutbound } from '../../activities/outbound-state.ts';

/** Of a notification's workflow. One whose first try is under way has no row yet that would speak of it. */
export type NotificationStatus =
  'accepting' | 'waiting' | 'publishing' | 'cancelling' | 'completed' | 'failed' | 'cancelled';

export const RUNNING: readonly unknown[] = ['accepting', 'waiting', 'publishing', 'cancelling'];
export interface Redis {
  /** Entries of the intent stream. */
  intents: number[];
  /** A copy. */
  offset: number;
  /** What was handed off, by `<notification>/<generation>`: an entry, or that the route is closed. */
  memory: Record<string, number | 'closed'>;
  /** Of those, the ones whose routes are settled: their memory fades. */
  released: string[];
  lease?: Attempter | undefined;
  /** By notification: attempts that began before are void. */
  voided: Record<number, number>;
  /** Entries of the outbound stream, with the notification that their `event_id` names. */
  outbound: { id: number; notification: number }[];
  lastOutbound: number;
  added: number;
  /** Up to where the consumers' group has read and acknowledged. */
  consumed: number;
  /** Of the server: another one after it was put back. */
  run: number;
}

export interface RouteRow {
  notification: number;
  status: 'pending' | 'published' | 'dead_letter' | 'skipped';
  version: number;
  generation: number;
  entry?: number | undefined;
}

export interface IntentRow {
  status: 'open' | 'accepted' | 'duplicate' | 'cancelled';
  isDispatched: boolean;
}

export interface Postgres {
  /** With its record: the intent has one recipient, and one idempotency key. */
  route?: RouteRow | undefined;
  /** Rows of entries that were read. */
  intents: Record<number, IntentRow>;
  /** Of the reader. */
  offset: number;
  /** The row of `outbound_streams`. */
  outbound: SeenOutbound & { isSuspect: boolean };
}

export interface Temporal {
  notifications: Record<number, NotificationStatus>;
  /** One that ended for want of its row has failed; one whose budget is spent is dead. */
  routes: Record<number, 'running' | 'completed' | 'dead' | 'failed'>;
  /** The route of a requested replay, until that is carried out. */
  ordered: number;
  repair?: { begunWith?: OutboundLook } | undefined;
}

/** Who can make an attempt. One of each kind may be under way. */
export type Attempter = 'route' | 'reconciler';
export const ATTEMPTERS: readonly Attempter[] = ['route', 'reconciler'];

export interface Attempt {
  row: RouteRow;
  step: 'loaded' | 'handed off' | 'closed';
  entry: number;
  /** Of the Redis in which it began. */
  run: number;
  begunAt: number;
}

/** In the memory of processes, lost with them. */
export interface Processes {
  /** Undefined while no process has the reader; with the entry that it has read and not saved, or 0. */
  reader?: { offset: number; taken: number } | undefined;
  attempts: Partial<Record<Attempter, Attempt>>;
  /** A route that was closed, before its row is settled, or once more; the entry is 0 when there was none. */
  closing?: { row: RouteRow; entry: number; step: 'closed' | 'closed again' | 'done' } | undefined;
  /** An entry that was handed off again, before its row says so. */
  restored?: { before: number; now: number } | undefined;
}

/** What people and other services know. */
export interface World {
  clock: number;
  /** Entries that the producer was told are taken. */
  acknowledged: number[];
  /** Event ids, by their notifications, that consumers have seen. */
  seen: number[];
  isCancelOrdered: boolean;
  /** The notification of which the operator was told that it will not be delivered. */
  cancelled: number;
  isDeliveredAfterCancel: boolean;
}

/** How often each thing may still happen that goes wrong or that people do. */
export interface Allowance {
  fallbacks: number;
  crashes: number;
  failures: number;
  troubles: number;
  cancels: number;
  /** Of a notification that was accepted. */
  lateCancels: number;
  /** Fading of the memory of a settled hand-off. */
  fadings: number;
}

export type StoreName = 'redis' | 'postgres' | 'temporal';

export interface State {
  redis: Redis;
  postgres: Postgres;
  temporal: Temporal;
  processes: Processes;
  world: World;
  left: Allowance;
  /** To what a store may fall back: its copy, as JSON. */
  backup?: { store: StoreName; copy: string } | undefined;
}

/** Entries that are not decided, the earliest first. */
export const openIn = ({ intents }: Postgres): number[] =>
  Object.entries(intents).flatMap(([id, { status }]) => (status === 'open' ? [Number(id)] : []));

export const idOf = (number: number): string => `${number}-0`;
export const memoryOf = ({ notification, generation }: RouteRow): string => `${notification}/${generation}`;

/** A healthy service before its first intent: the watches have looked once. */
export function beginning(left: Allowance): State {
  const outbound = {
    ...{ serverRunId: '1', lastEntryId: idOf(0), entriesAdded: 0, wantedFrom: idOf(0) },
    ...{ pending: [], database: 0, hasFallenBack: false },
  };
  return {
    redis: {
      intents: [],
      offset: 0,
      memory: {},
      released: [],
      voided: {},
      outbound: [],
      lastOutbound: 0,
      added: 0,
      consumed: 0,
      run: 1,
    },
    postgres: {
      intents: {},
      offset: 0,
      outbound: { ...outbound, isSuspect: false },
    },
    temporal: { notifications: {}, routes: {}, ordered: 0 },
    processes: {
      reader: { offset: 0, taken: 0 },
      attempts: {},
    },
    world: {
      clock: 1,
      acknowledged: [],
      seen: [],
      isCancelOrdered: false,
      cancelled: 0,
      isDeliveredAfterCancel: false,
    },
    left,
  };
}

/** As deep as moves change it. */
export function copyOf({ redis, postgres, temporal, processes, world, left, backup }: State): State {
  return {
    redis: {
      ...redis,
      intents: [...redis.intents],
      memory: { ...redis.memory },
      released: [...redis.released],
      voided: { ...redis.voided },
      outbound: [...redis.outbound],
    },
    postgres: {
      ...postgres,
      ...(postgres.route ? { route: { ...postgres.route } } : {}),
      intents: Object.fromEntries(Object.entries(postgres.intents).map(([id, row]) => [id, { ...row }])),
      outbound: { ...postgres.outbound },
    },
    temporal: {
      ...temporal,
      notifications: { ...temporal.notifications },
      routes: { ...temporal.routes },
    },
    processes: {
      ...processes,
      ...(processes.reader ? { reader: { ...processes.reader } } : {}),
      attempts: Object.fromEntries(
        Object.entries(processes.attempts).map(([by, attempt]) => [by, { ...attempt }]),
      ),
      ...(processes.closing ? { closing: { ...processes.closing } } : {}),
    },
    world: { ...world, acknowledged: [...world.acknowledged], seen: [...world.seen] },
    left: { ...left },
    backup,
  };
}
