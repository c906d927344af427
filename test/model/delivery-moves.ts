/** From a decision to the outbound stream: activities/intent/publication.ts, hand-off.ts and steering.ts. */
import type { Mechanisms, Step } from './mechanisms.ts';
import { appendOutbound, tick } from './mechanisms.ts';
import type { Attempter, RouteRow, State } from './state.ts';
import { RUNNING, memoryOf } from './state.ts';

export const startRoute: Step = ({ temporal }) => {
  for (const [key, status] of Object.entries(temporal.notifications)) {
    const id = Number(key);
    if (status !== 'publishing' || temporal.routes[id] !== undefined) continue;
    temporal.routes[id] = 'running';
    return true;
  }
  return false;
};

/** activities/intent/publication.ts: whoever attempts begins with the row as it is. */
export const loadRow =
  (by: Attempter): Step =>
  (state) => {
    const { postgres, temporal, processes } = state;
    if (processes.attempts[by]) return false;
    const { route } = postgres;
    if (by === 'reconciler') {
      const isTaken =
        route === undefined ||
        RUNNING.includes(temporal.notifications[route.notification]) ||
        temporal.routes[route.notification] === 'running';
      if (isTaken || route.status !== 'pending') return false;
      processes.attempts[by] = { row: { ...route }, step: 'loaded', entry: 0 };
      return true;
    }
    const id = Number(Object.entries(temporal.routes).find(([, status]) => status === 'running')?.[0] ?? 0);
    if (id === 0) return false;
    if (route?.notification !== id) temporal.routes[id] = 'failed';
    else if (route.status === 'pending')
      processes.attempts[by] = { row: { ...route }, step: 'loaded', entry: 0 };
    else if (route.status === 'dead_letter' && temporal.ordered === id) openAgain(state, route);
    else temporal.routes[id] = route.status === 'dead_letter' ? 'dead' : 'completed';
    return true;
  };

function openAgain(state: State, route: RouteRow): void {
  const { redis, temporal } = state;
  temporal.ordered = 0;
  const before = redis.memory[memoryOf(route)];
  route.version = tick(state);
  if (typeof before === 'number') {
    route.status = 'published';
    route.entry = before;
  } else {
    route.status = 'pending';
    route.generation += 1;
  }
}

/** The script APPEND of activities/intent/hand-off.ts. */
export const handOff =
  (by: Attempter): Step =>
  (state) => {
    const { redis, processes } = state;
    const attempt = processes.attempts[by];
    if (attempt?.step !== 'loaded') return false;
    const before = redis.memory[memoryOf(attempt.row)];
    if (before === 'closed') processes.attempts[by] = { ...attempt, step: 'closed' };
    else if (before !== undefined) processes.attempts[by] = { ...attempt, step: 'handed off', entry: before };
    else if (redis.lease !== undefined && processes.attempts[redis.lease] && redis.lease !== by) {
      delete processes.attempts[by];
    } else {
      redis.lease = by;
      const entry = appendOutbound(state, attempt.row);
      redis.memory[memoryOf(attempt.row)] = entry;
      processes.attempts[by] = { ...attempt, step: 'handed off', entry };
    }
    return true;
  };

const isUnmoved = (route: RouteRow | undefined, loaded: RouteRow): route is RouteRow =>
  route?.notification === loaded.notification &&
  route.version === loaded.version &&
  route.status === 'pending';

/** MARK_PUBLISHED, MARK_SKIPPED, and then RELEASE. */
export const settle =
  (by: Attempter): Step =>
  (state) => {
    const { redis, postgres, processes } = state;
    const attempt = processes.attempts[by];
    if (!attempt || attempt.step === 'loaded') return false;
    delete processes.attempts[by];
    const { route } = postgres;
    if (isUnmoved(route, attempt.row)) {
      route.status = attempt.step === 'closed' ? 'skipped' : 'published';
      if (attempt.step === 'handed off') route.entry = attempt.entry;
      route.version = tick(state);
    }
    if (attempt.step === 'handed off') {
      const key = memoryOf(attempt.row);
      if (redis.memory[key] !== undefined && !redis.released.includes(key)) redis.released.push(key);
      if (redis.lease === by) redis.lease = undefined;
    }
    return true;
  };

/** A failure of the last attempt of the budget: the route is dead, whether Redis took the entry or not. */
export const failAttempt =
  (by: Attempter): Step =>
  (state) => {
    const { postgres, processes, left } = state;
    const attempt = processes.attempts[by];
    if (left.failures === 0 || !attempt || attempt.step === 'closed') return false;
    left.failures -= 1;
    delete processes.attempts[by];
    if (isUnmoved(postgres.route, attempt.row)) {
      postgres.route.status = 'dead_letter';
      postgres.route.version = tick(state);
    }
    return true;
  };

export const endNotification: Step = ({ postgres, temporal }) => {
  for (const [key, status] of Object.entries(temporal.notifications)) {
    const id = Number(key);
    const route = temporal.routes[id];
    if (status !== 'publishing' || route === undefined || route === 'running') continue;
    const row = postgres.route?.notification === id ? postgres.route : undefined;
    // Then it awaits that somebody else settles the row.
    if (route === 'failed' && row?.status === 'pending') continue;
    temporal.notifications[id] = route === 'failed' && !row ? 'failed' : 'completed';
    return true;
  }
  return false;
};

/** activities/intent/steering.ts: closed in Redis first, then settled. */
export const closeRoute: Step = ({ redis, postgres, temporal, processes }) => {
  const id = cancellingOf(temporal.notifications);
  if (id === undefined || processes.closing) return false;
  const { route } = postgres;
  if (route?.notification !== id || route.status !== 'pending') return false;
  const before = redis.memory[memoryOf(route)];
  redis.memory[memoryOf(route)] = before ?? 'closed';
  processes.closing = { row: { ...route }, entry: typeof before === 'number' ? before : 0 };
  return true;
};

export const settleClosed =
  ({ recordsCancellation, closesTwice }: Mechanisms): Step =>
  (state) => {
    const { redis, postgres, temporal, processes, world } = state;
    const id = cancellingOf(temporal.notifications);
    const { closing } = processes;
    const { route } = postgres;
    if (closing) {
      delete processes.closing;
      if (route?.notification === closing.row.notification && route.status === 'pending') {
        route.status = closing.entry > 0 ? 'published' : 'skipped';
        if (closing.entry > 0) route.entry = closing.entry;
        route.version = tick(state);
      }
      return true;
    }
    if (id === undefined || (route?.notification === id && route.status === 'pending')) return false;
    if (closesTwice && route?.notification === id && route.status === 'skipped') {
      const before = (redis.memory[memoryOf(route)] ??= 'closed');
      if (before !== 'closed') {
        route.status = 'published';
        route.entry = before;
        route.version = tick(state);
      }
    }
    postgres.waiting = postgres.waiting.filter((other) => other !== id);
    // As a decision, like a duplicate.
    if (recordsCancellation && !route) postgres.duplicates.push(id);
    temporal.notifications[id] = 'cancelled';
    if (temporal.routes[id] === 'running') temporal.routes[id] = 'completed';
    if (route?.notification !== id || route.status === 'skipped') world.cancelled = id;
    return true;
  };

const cancellingOf = (notifications: State['temporal']['notifications']): number | undefined => {
  const found = Object.entries(notifications).find(([, status]) => status === 'cancelling');
  return found && Number(found[0]);
};

/** client/intent/replay.ts: signal-with-start of a route that is dead. */
export const replay: Step = ({ postgres: { route }, temporal }) => {
  if (route?.status !== 'dead_letter' || temporal.ordered === route.notification) return false;
  if (temporal.routes[route.notification] === 'completed') return false;
  temporal.routes[route.notification] = 'running';
  temporal.ordered = route.notification;
  return true;
};
