/**
 * What there is to remember about one intent with one recipient, by the store that remembers it. Numbers that name
 * entries, versions and servers come from one clock that never goes back, as those of the real stores come from time.
 */
import type { OutboundLook, SeenOutbound } from '../../activities/outbound-state.ts';

/** Of a notification's workflow. One whose first try is under way has no row yet that would speak of it. */
export type NotificationStatus =
  'accepting' | 'waiting' | 'publishing' | 'cancelling' | 'completed' | 'failed' | 'cancelled';

export const RUNNING: readonly unknown[] = ['accepting', 'waiting', 'publishing', 'cancelling'];
/** Ended so that there must be a row of what was decided. */
export const DECIDED: readonly unknown[] = ['completed', 'failed'];

export interface Redis {
  /** Entries of the intent stream, and the last id that it ever had. */
  intents: number[];
  lastIntent: number;
  offset: number;
  beat: number;
  /** Of the PostgreSQL that the beat was written after. */
  beatOf: number;
  /** What was handed off, by `<notification>/<generation>`: an entry, or that the route is closed. */
  memory: Record<string, number | 'closed'>;
  /** Of those, the ones whose routes are settled: their memory fades. */
  released: string[];
  lease?: Attempter | undefined;
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

export interface Postgres {
  /** With its record: the intent has one recipient, and one idempotency key. */
  route?: RouteRow | undefined;
  /** Entries that were found to be duplicates. */
  duplicates: number[];
  waiting: number[];
  /** The row of `outbound_streams`. */
  outbound: SeenOutbound & { isSuspect: boolean };
  /** The row of `inbound_streams`: how it was at the last look. */
  position: { beat: number; passed: number; lastIntent: number; started: number };
  run: number;
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
}

/** In the memory of processes, lost with them. */
export interface Processes {
  /** Undefined while no process has the reader. */
  reader?:
    | {
        offset: number;
        /** The entry that is started, before the offset is saved. */
        taken: number;
        readBefore: number;
        startedSinceLook: number;
        /** Started before the last look. */
        acknowledged: number;
      }
    | undefined;
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
      lastIntent: 0,
      offset: 0,
      beat: 1,
      beatOf: 1,
      memory: {},
      released: [],
      outbound: [],
      lastOutbound: 0,
      added: 0,
      consumed: 0,
      run: 1,
    },
    postgres: {
      duplicates: [],
      waiting: [],
      outbound: { ...outbound, isSuspect: false },
      position: { beat: 1, passed: 0, lastIntent: 0, started: 0 },
      run: 1,
    },
    temporal: { notifications: {}, routes: {}, ordered: 0 },
    processes: {
      reader: { offset: 0, taken: 0, readBefore: 0, startedSinceLook: 0, acknowledged: 0 },
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
      outbound: [...redis.outbound],
    },
    postgres: {
      ...postgres,
      ...(postgres.route ? { route: { ...postgres.route } } : {}),
      duplicates: [...postgres.duplicates],
      waiting: [...postgres.waiting],
      outbound: { ...postgres.outbound },
      position: { ...postgres.position },
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
