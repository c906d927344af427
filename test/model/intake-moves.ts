/** From the intent stream to a decision: reader.ts, entries.ts, stream-watch.ts, dispatch.ts, acceptance.ts of activities/intent. */
import type { Mechanisms, Step } from './mechanisms.ts';
import { tick } from './mechanisms.ts';
import type { State } from './state.ts';
import { RUNNING, openIn } from './state.ts';

function append({ redis, world }: State): number {
  const id = (world.clock += 1);
  redis.intents.push(id);
  world.acknowledged.push(id);
  return id;
}

/** The first copy of the intent. */
export const publish: Step = (state) => {
  if (state.world.acknowledged.length > 0) return false;
  append(state);
  return true;
};

/** Producers keep what they sent in an outbox; an entry that is gone before it was passed is told by the watch. */
export const sendAgain: Step = (state) => {
  const { redis, world } = state;
  const isLost =
    world.acknowledged.length > 0 && !world.acknowledged.some((id) => redis.intents.includes(id));
  if (isLost) append(state);
  return isLost;
};

export const startReader =
  ({ keepsOffsetWithRows }: Mechanisms): Step =>
  ({ redis, postgres, processes }) => {
    if (processes.reader) return false;
    processes.reader = { offset: keepsOffsetWithRows ? postgres.offset : redis.offset, taken: 0 };
    return true;
  };

export const takeEntry: Step = ({ redis, processes: { reader } }) => {
  const id = redis.intents.find((entry) => reader && entry > reader.offset);
  if (!reader || reader.taken > 0 || id === undefined) return false;
  reader.taken = id;
  return true;
};

/** activities/intent/entries.ts: a row and the offset behind its entry, unless the offset was moved. Redis has a copy of it. */
export const saveEntry =
  ({ keepsOffsetWithRows }: Mechanisms): Step =>
  ({ redis, postgres, processes }) => {
    const { reader } = processes;
    if (!reader?.taken) return false;
    if (keepsOffsetWithRows && postgres.offset !== reader.offset) {
      delete processes.reader;
      return true;
    }
    postgres.intents[reader.taken] ??= { status: 'open', isDispatched: false };
    postgres.offset = redis.offset = reader.offset = reader.taken;
    reader.taken = 0;
    return true;
  };

/** activities/intent/stream-watch.ts: a reader whose offset is not that of the row any more begins again. */
export const look: Step = ({ postgres, processes }) => {
  const { reader } = processes;
  if (!reader || reader.taken > 0 || reader.offset === postgres.offset) return false;
  delete processes.reader;
  return true;
};

/** activities/intent/dispatch.ts: a row counts as dispatched once its workflow runs. One that has ended is started again. */
export const dispatch: Step = ({ postgres, temporal: { notifications, routes } }) => {
  for (const id of openIn(postgres)) {
    const row = postgres.intents[id]!;
    if (row.isDispatched) continue;
    if (RUNNING.includes(notifications[id])) row.isDispatched = true;
    else {
      notifications[id] = 'accepting';
      if (routes[id] !== 'running') delete routes[id];
    }
    return true;
  }
  return false;
};

const undecidedIn = ({ notifications }: State['temporal']): number[] =>
  Object.entries(notifications).flatMap(([key, status]) =>
    status === 'accepting' || status === 'waiting' ? [Number(key)] : [],
  );

/** activities/intent/acceptance.ts, for whichever entry is to be decided: of two with one key the earlier first. */
export const decide: Step = (state) => {
  const { postgres, temporal } = state;
  for (const id of undecidedIn(temporal)) {
    const row = postgres.intents[id];
    if (row?.status !== 'open') continue;
    if (postgres.route) row.status = 'duplicate';
    else if (openIn(postgres).some((other) => other < id)) continue;
    else {
      row.status = 'accepted';
      postgres.route = { notification: id, status: 'pending', version: tick(state), generation: 0 };
    }
    return true;
  }
  return false;
};

/** One that PostgreSQL has forgotten, and that is not read again, is unknown in the end. */
export const hearOfDecision: Step = ({ redis, postgres, temporal }) => {
  for (const id of undecidedIn(temporal)) {
    const status = postgres.intents[id]?.status;
    const isToBeRead = status === undefined && redis.intents.includes(id) && id > postgres.offset;
    if (status === 'open' || isToBeRead) continue;
    temporal.notifications[id] = status === 'accepted' ? 'publishing' : 'completed';
    return true;
  }
  return false;
};

/** activities/intent/reconciliation.ts: what an operator has ended is given up, and the rest dispatched again. */
export const restartIntent: Step = ({ postgres, temporal: { notifications } }) => {
  for (const id of openIn(postgres)) {
    const row = postgres.intents[id]!;
    if (!row.isDispatched || RUNNING.includes(notifications[id])) continue;
    if (notifications[id] === 'cancelled') row.status = 'cancelled';
    else row.isDispatched = false;
    return true;
  }
  return false;
};
