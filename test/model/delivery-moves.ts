/** From a decision to the outbound stream: activities/intent/publication.ts, hand-off.ts and steering.ts. */
import type { Mechanisms, Step } from './mechanisms.ts';
import { appendOutbound, tick } from './mechanisms.ts';
import type { Attempt, Attempter, RouteRow, State } from './state.ts';
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

/** activities/intent/publication.ts: an attempt begins with the row as it is. */
export const loadRow =
  (by: Attempter): Step =>
  (state) => {
    const { postgres, temporal, processes } = state;
    if (processes.attempts[by]) return false;
    const { route } = postgres;
    if (by === 'reconciler') {
      const workflow = temporal.routes[route?.notification ?? 0];
      // A notification only waits for a route whose workflow has ended.
      const isOwned =
        workflow === undefined && RUNNING.includes(temporal.notifications[route?.notification ?? 0]);
      const isTaken = route === undefined || workflow === 'running' || isOwned;
      if (isTaken || route.status !== 'pending') return false;
      processes.attempts[by] = begunWith(state, route);
      return true;
    }
    const id = Number(Object.entries(temporal.routes).find(([, status]) => status === 'running')?.[0] ?? 0);
    if (id === 0) return false;
    if (route?.notification !== id) temporal.routes[id] = 'failed';
    else if (route.status === 'pending') processes.attempts[by] = begunWith(state, route);
    else if (route.status === 'dead_letter' && temporal.ordered === id) openAgain(state, route);
    else temporal.routes[id] = route.status === 'dead_letter' ? 'dead' : 'completed';
    return true;
  };

const begunWith = ({ redis: { run }, world: { clock } }: State, route: RouteRow): Attempt => ({
  row: { ...route },
  step: 'loaded',
  entry: 0,
  run,
  begunAt: clock,
});

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
  ({ knowsHistory }: Mechanisms, by: Attempter): Step =>
  (state) => {
    const { redis, processes } = state;
    const attempt = processes.attempts[by];
    if (attempt?.step !== 'loaded') return false;
    const before = redis.memory[memoryOf(attempt.row)];
    if (before === 'closed') processes.attempts[by] = { ...attempt, step: 'closed' };
    else if (before !== undefined) processes.attempts[by] = { ...attempt, step: 'handed off', entry: before };
    else if (attempt.begunAt < (redis.voided[attempt.row.notification] ?? 0)) delete processes.attempts[by];
    else if (knowsHistory && attempt.run !== redis.run) delete processes.attempts[by];
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

/** SETTLE_ROUTES, and then END. */
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
    // Then it waits until another process settles the row.
    if (route === 'failed' && row?.status === 'pending') continue;
    temporal.notifications[id] = route === 'failed' && !row ? 'failed' : 'completed';
    return true;
  }
  return false;
};

/** activities/intent/steering.ts: closed in Redis first, then settled, then closed once more. */
export const closeRoute: Step = ({ redis, postgres: { route }, temporal, processes }) => {
  const id = cancellingOf(temporal.notifications);
  if (id === undefined || processes.closing) return false;
  if (route?.notification !== id || route.status !== 'pending') return false;
  processes.closing = { row: { ...route }, entry: closeIn(redis, route), step: 'closed' };
  return true;
};

/** @returns as which entry it was handed off, or 0. */
function closeIn({ memory }: State['redis'], route: RouteRow): number {
  const before = (memory[memoryOf(route)] ??= 'closed');
  return before === 'closed' ? 0 : before;
}

export const settleClosed: Step = (state) => {
  const { postgres, processes } = state;
  const { closing } = processes;
  if (!closing || closing.step === 'done') return false;
  const { row, entry, step } = closing;
  const { route } = postgres;
  const from = step === 'closed' ? 'pending' : 'skipped';
  if (
    route?.notification === row.notification &&
    route.status === from &&
    (entry > 0 || from === 'pending')
  ) {
    route.status = entry > 0 ? 'published' : 'skipped';
    if (entry > 0) route.entry = entry;
    route.version = tick(state);
  }
  if (step === 'closed') delete processes.closing;
  else closing.step = 'done';
  return true;
};

export const closeAgain: Step = ({ redis, postgres: { route }, temporal, processes }) => {
  const id = cancellingOf(temporal.notifications);
  if (id === undefined || processes.closing) return false;
  if (route?.notification !== id || route.status !== 'skipped') return false;
  processes.closing = { row: { ...route }, entry: closeIn(redis, route), step: 'closed again' };
  return true;
};

/** activities/intent/entries.ts: an intent that is cancelled before it is decided never will be accepted. */
export const giveUpWaiting =
  ({ recordsCancellation }: Mechanisms): Step =>
  ({ postgres, temporal }) => {
    const row = postgres.intents[cancellingOf(temporal.notifications) ?? 0];
    if (!recordsCancellation || row?.status !== 'open') return false;
    row.status = 'cancelled';
    return true;
  };

/** Who began an attempt before, and has not handed off, never will. */
export const confirmCancellation =
  ({ recordsCancellation, closesTwice, voidsAttempts }: Mechanisms): Step =>
  ({ redis, postgres: { route, intents }, temporal, processes, world }) => {
    const id = cancellingOf(temporal.notifications);
    if (id === undefined) return false;
    const isOwn = route?.notification === id;
    const isRecorded = !recordsCancellation || intents[id]?.status !== 'open';
    // One that has been put back to an open one since is left to the process that takes it up.
    const isClosed = processes.closing
      ? processes.closing.step === 'done'
      : !isOwn || (route.status !== 'pending' && !(closesTwice && route.status === 'skipped'));
    if (!isRecorded || !isClosed) return false;
    delete processes.closing;
    temporal.notifications[id] = 'cancelled';
    if (temporal.routes[id] === 'running') temporal.routes[id] = 'completed';
    if (voidsAttempts) redis.voided[id] = world.clock += 1;
    if (isOwn && route.status !== 'skipped') return true;
    // What PostgreSQL has forgotten is read again, and accepted whatever became of its workflow.
    if (intents[id] === undefined) return true;
    world.cancelled = id;
    // Once the record is gone, no process can tell that it was handed off before.
    const isUnread = redis.outbound.some((entry) => entry.notification === id && entry.id > redis.consumed);
    if (isOwn && isUnread && !world.seen.includes(id)) world.isDeliveredAfterCancel = true;
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
