/** From the intent stream to a decision: activities/intent/reader.ts, intake.ts, stream-watch.ts and acceptance.ts. */
import type { Mechanisms, Step } from './mechanisms.ts';
import { tick } from './mechanisms.ts';
import type { State } from './state.ts';
import { DECIDED, RUNNING } from './state.ts';

function append({ redis, world }: State): number {
  const id = (world.clock += 1);
  redis.intents.push(id);
  redis.lastIntent = id;
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
  ({ startsFromRow }: Mechanisms): Step =>
  ({ redis, postgres, processes }) => {
    if (processes.reader) return false;
    const offset = startsFromRow ? Math.min(redis.offset, postgres.position.passed) : redis.offset;
    processes.reader = { offset, taken: 0, readBefore: 0, startedSinceLook: 0, acknowledged: 0 };
    if (startsFromRow) {
      redis.offset = offset;
      processes.reader.readBefore = redis.lastIntent;
    }
    return true;
  };

/** activities/intent/intake.ts: what is decided or under way is left alone. */
export const takeEntry =
  ({ position, forgetsLost }: Mechanisms): Step =>
  ({ redis, postgres, temporal, processes: { reader } }) => {
    const id = redis.intents.find((entry) => reader && entry > reader.offset);
    if (!reader || reader.taken > 0 || id === undefined) return false;
    reader.taken = id;
    const wasRead = id <= reader.readBefore;
    const isKnown =
      postgres.route?.notification === id ||
      postgres.waiting.includes(id) ||
      postgres.duplicates.includes(id);
    if (position && wasRead && isKnown) {
      if (!forgetsLost) reader.startedSinceLook = id;
      return true;
    }
    const status = temporal.notifications[id];
    if (status === undefined || (position && !isKnown && DECIDED.includes(status))) {
      begin(temporal, id);
      reader.startedSinceLook = id;
    } else if (position && !isKnown && RUNNING.includes(status)) {
      postgres.waiting.push(id);
    }
    return true;
  };

function begin({ notifications, routes }: State['temporal'], id: number): void {
  notifications[id] = 'accepting';
  // One that has ended is started again, too.
  if (routes[id] !== 'running') delete routes[id];
}

export const saveOffset: Step = ({ redis, processes: { reader } }) => {
  if (!reader?.taken) return false;
  redis.offset = Math.max(redis.offset, reader.taken);
  reader.offset = reader.taken;
  reader.taken = 0;
  return true;
};

/** activities/intent/stream-watch.ts: the stores are held against each other. */
export const look =
  ({ margin, forgetsLost }: Mechanisms): Step =>
  ({ redis, postgres, temporal, processes: { reader } }) => {
    if (!reader || reader.taken > 0) return false;
    const { position } = postgres;
    const readBefore = Math.max(reader.readBefore, position.passed);
    const before = (id: number) => (margin ? 0 : id);
    const isUnknown = (id: number) => id > 0 && temporal.notifications[id] === undefined;
    const points: number[] = [];
    if (redis.lastIntent < Math.max(reader.offset, position.lastIntent))
      points.push(before(Math.min(reader.offset, redis.lastIntent)));
    if (position.beat < redis.beat) points.push(before(Math.min(reader.offset, position.passed)));
    else if (postgres.run !== redis.beatOf) points.push(before(reader.offset));
    if (isUnknown(position.started) || isUnknown(reader.acknowledged)) points.push(before(reader.offset));
    const from = Math.min(...points);
    const isHealthy = from >= reader.offset;
    const passed = Math.max(reader.offset, readBefore);
    const isNews =
      !isHealthy ||
      reader.startedSinceLook > 0 ||
      passed !== position.passed ||
      redis.lastIntent !== position.lastIntent ||
      position.beat !== redis.beat ||
      postgres.run !== redis.beatOf;
    if (!isNews) return false;
    reader.readBefore = readBefore;
    if (!isHealthy) {
      reader.readBefore = Math.min(Math.max(readBefore, reader.offset), redis.lastIntent);
      if (redis.offset === reader.offset) redis.offset = from;
      reader.offset = redis.offset;
    }
    postgres.position = {
      beat: Math.max(position.beat, redis.beat) + 1,
      passed: Math.max(reader.offset, reader.readBefore),
      lastIntent: redis.lastIntent,
      started: reader.startedSinceLook || (forgetsLost && isUnknown(position.started) ? 0 : position.started),
    };
    redis.beat = postgres.position.beat;
    redis.beatOf = postgres.run;
    reader.acknowledged = reader.startedSinceLook;
    reader.startedSinceLook = 0;
    return true;
  };

/** activities/intent/acceptance.ts, for whichever entry is to be decided. */
export const decide: Step = (state) => {
  const { postgres, temporal } = state;
  for (const [key, status] of Object.entries(temporal.notifications)) {
    const id = Number(key);
    if (status !== 'accepting' && status !== 'waiting') continue;
    if (postgres.route?.notification === id || postgres.duplicates.includes(id)) continue;
    if (postgres.route) postgres.duplicates.push(id);
    else if (postgres.waiting.some((other) => other < id)) continue;
    else postgres.route = { notification: id, status: 'pending', version: tick(state), generation: 0 };
    postgres.waiting = postgres.waiting.filter((other) => other !== id);
    return true;
  }
  return false;
};

export const hearOfDecision: Step = ({ postgres, temporal }) => {
  for (const [key, status] of Object.entries(temporal.notifications)) {
    const id = Number(key);
    if (status !== 'accepting' && status !== 'waiting') continue;
    const isAccepted = postgres.route?.notification === id;
    if (!isAccepted && !postgres.duplicates.includes(id)) continue;
    temporal.notifications[id] = isAccepted ? 'publishing' : 'completed';
    return true;
  }
  return false;
};

/** By each further attempt; one that decides takes the row away. */
export const noteWait: Step = ({ postgres, temporal }) => {
  for (const [key, status] of Object.entries(temporal.notifications)) {
    const id = Number(key);
    const isDecided = postgres.route?.notification === id || postgres.duplicates.includes(id);
    if (status !== 'waiting' || isDecided || postgres.waiting.includes(id)) continue;
    postgres.waiting.push(id);
    return true;
  }
  return false;
};

/** activities/intent/reconciliation.ts. */
export const restartIntent =
  ({ position }: Mechanisms): Step =>
  ({ postgres, temporal }) => {
    const id = postgres.waiting.find((other) => {
      const status = temporal.notifications[other];
      return status === undefined || (position && DECIDED.includes(status));
    });
    if (id === undefined) return false;
    begin(temporal, id);
    return true;
  };
