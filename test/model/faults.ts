/** What goes wrong, and what people do, as moves that happen only so often. */
import { failAttempt } from './delivery-moves.ts';
import { publish } from './intake-moves.ts';
import type { Move } from './mechanisms.ts';
import type { State, StoreName } from './state.ts';
import { ATTEMPTERS, RUNNING } from './state.ts';

export const STORES: readonly StoreName[] = ['redis', 'postgres', 'temporal'];

/** A store as it is now may come back once. Keeping a copy changes nothing, so it counts as no move. */
export const backupsOf = (stores: readonly StoreName[]): Move[] =>
  stores.map((store) => ({
    name: `${store} is copied`,
    make(state) {
      if (state.left.fallbacks === 0 || state.backup) return false;
      state.backup = { store, copy: JSON.stringify(state[store]) };
      return true;
    },
  }));

/** By a failover, a restored backup, or a new and empty server: the connections that processes had are gone. */
function fallBack(state: State): boolean {
  const { backup, left, world } = state;
  if (!backup || left.fallbacks === 0) return false;
  if (backup.copy === JSON.stringify(state[backup.store])) return false;
  left.fallbacks -= 1;
  const copy = JSON.parse(backup.copy) as never;
  state[backup.store] = copy;
  delete state.backup;
  world.clock += 1;
  if (backup.store === 'redis') state.redis.run = world.clock;
  return true;
}

const crash = (what: string, die: (processes: State['processes']) => boolean): Move => ({
  name: `the process of ${what} dies`,
  make({ left, processes }) {
    if (left.crashes === 0 || !die(processes)) return false;
    left.crashes -= 1;
    return true;
  },
});

export const faults: readonly Move[] = [
  { name: 'the producer publishes', make: publish },
  { name: 'a store falls back', make: fallBack },
  crash('the reader', (processes) => {
    const isThere = processes.reader !== undefined;
    delete processes.reader;
    return isThere;
  }),
  ...ATTEMPTERS.map((by) =>
    crash(`the attempt of the ${by}`, ({ attempts }) => {
      const isThere = attempts[by] !== undefined;
      delete attempts[by];
      return isThere;
    }),
  ),
  crash('the cancellation', (processes) => {
    const isThere = processes.closing !== undefined;
    delete processes.closing;
    return isThere;
  }),
  crash('the repair', (processes) => {
    const isThere = processes.restored !== undefined;
    delete processes.restored;
    return isThere;
  }),
  ...ATTEMPTERS.map((by) => ({
    name: `the last attempt of the ${by} fails without an answer`,
    make: failAttempt(by),
  })),
  { name: 'User Service is away', make: beginToWait },
  { name: 'an operator cancels', make: cancel },
  { name: 'an operator cancels what is accepted', make: cancelKnown },
  { name: 'the memory of the hand-off fades', make: fade },
];

function beginToWait({ left, temporal }: State): boolean {
  const found = Object.entries(temporal.notifications).find(([, status]) => status === 'accepting');
  if (left.troubles === 0 || !found) return false;
  left.troubles -= 1;
  temporal.notifications[Number(found[0])] = 'waiting';
  return true;
}

function cancel({ left, temporal, world }: State): boolean {
  const found = Object.entries(temporal.notifications).find(
    ([, status]) => status !== 'cancelling' && RUNNING.includes(status),
  );
  if (left.cancels === 0 || !found) return false;
  left.cancels -= 1;
  world.isCancelOrdered = true;
  temporal.notifications[Number(found[0])] = 'cancelling';
  return true;
}

/** The same while PostgreSQL knows the route. */
function cancelKnown(state: State): boolean {
  const { left, postgres, temporal } = state;
  const { notification } = postgres.route ?? {};
  if (left.lateCancels === 0 || notification === undefined) return false;
  if (temporal.notifications[notification] !== 'publishing') return false;
  left.lateCancels -= 1;
  state.world.isCancelOrdered = true;
  temporal.notifications[notification] = 'cancelling';
  return true;
}

/** It is kept for longer than an attempt can take that began before. */
function fade({ left, redis, processes }: State): boolean {
  const [key] = redis.released;
  if (left.fadings === 0 || key === undefined || Object.keys(processes.attempts).length > 0) return false;
  left.fadings -= 1;
  redis.released = redis.released.filter((other) => other !== key);
  delete redis.memory[key];
  return true;
}
