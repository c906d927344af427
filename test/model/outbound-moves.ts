/** Beyond the hand-off: consumers, and activities/intent/outbound-watch.ts and repair.ts. */
import type { OutboundState } from '../../activities/outbound-state.ts';
import { regressionOf, suspicionOf } from '../../activities/outbound-state.ts';
import { later } from '../../api/stream-ids.ts';
import type { Step } from './mechanisms.ts';
import { appendOutbound } from './mechanisms.ts';
import type { RouteRow, State } from './state.ts';
import { idOf, memoryOf, numberOf } from './state.ts';

/** As `lookAtOutbound` of activities/outbound-state.ts finds it. */
function outboundOf({ redis }: State): OutboundState {
  const first = redis.outbound[0]?.id ?? redis.lastOutbound + 1;
  return {
    serverRunId: String(redis.run),
    lastEntryId: idOf(redis.lastOutbound),
    entriesAdded: redis.added,
    wantedFrom: later(idOf(first), idOf(redis.consumed + 1)),
  };
}

export const lookAtOutbound: Step = (state) => {
  const { postgres, temporal } = state;
  const { isSuspect, ...seen } = postgres.outbound;
  const now = outboundOf(state);
  if (!isSuspect && suspicionOf(seen, now) === undefined) {
    if (JSON.stringify(seen) === JSON.stringify(now)) return false;
    postgres.outbound = { ...now, isSuspect: false };
    return true;
  }
  if (temporal.repair) return false;
  postgres.outbound.isSuspect = true;
  temporal.repair = {};
  return true;
};

/** Attempts that were being made have ended by then (SETTLING_LEASES). */
export const beginRepair: Step = (state) => {
  const { temporal, processes } = state;
  const isSettled = !Object.values(processes.attempts).some(({ step }) => step === 'handed off');
  if (!temporal.repair || temporal.repair.begunWith || !isSettled) return false;
  temporal.repair = { begunWith: outboundOf(state) };
  return true;
};

/** The script RESTORE of activities/intent/hand-off.ts. */
export const restore: Step = (state) => {
  const { redis, postgres, temporal, processes } = state;
  const lost = missingOf(state);
  if (!temporal.repair?.begunWith || processes.restored || !lost) return false;
  const key = memoryOf(lost);
  const before = redis.memory[key];
  const isThere = redis.outbound.some(({ id }) => id === before);
  const now = isThere ? (before as number) : appendOutbound(state, postgres.route!);
  redis.memory[key] = now;
  if (!redis.released.includes(key)) redis.released.push(key);
  processes.restored = { before: lost.entry!, now };
  return true;
};

/** The published route whose entry is wanted and gone. */
function missingOf({ redis, postgres, temporal }: State): RouteRow | undefined {
  const { route, outbound: seen } = postgres;
  const begunWith = temporal.repair?.begunWith;
  if (!begunWith || route?.status !== 'published' || route.entry === undefined) return undefined;
  const wantedFrom =
    regressionOf(seen, begunWith) === undefined
      ? later(seen.wantedFrom, begunWith.wantedFrom)
      : seen.wantedFrom;
  const isWanted = route.entry >= numberOf(wantedFrom);
  const isThere = redis.outbound.some(({ id }) => id === route.entry);
  return isWanted && !isThere ? route : undefined;
}

export const moveEntry: Step = ({ postgres: { route }, processes }) => {
  const { restored } = processes;
  if (!restored) return false;
  delete processes.restored;
  if (route?.status === 'published' && route.entry === restored.before) route.entry = restored.now;
  return true;
};

export const endRepair: Step = (state) => {
  const { postgres, temporal, processes } = state;
  const begunWith = temporal.repair?.begunWith;
  if (!begunWith || processes.restored || missingOf(state)) return false;
  if (postgres.outbound.isSuspect) postgres.outbound = { ...begunWith, isSuspect: false };
  delete temporal.repair;
  return true;
};

/** A group reads what is new to it; consumers forget no event id. */
export const consume: Step = ({ redis, world }) => {
  const unread = redis.outbound.filter(({ id }) => id > redis.consumed);
  if (unread.length === 0) return false;
  for (const { notification } of unread) {
    if (!world.seen.includes(notification)) world.seen.push(notification);
  }
  world.seen.sort();
  redis.consumed = redis.lastOutbound;
  return true;
};
