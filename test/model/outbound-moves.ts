/** Beyond the hand-off: consumers, and activities/intent/repair.ts. */
import type { OutboundLook, SeenOutbound } from '../../activities/outbound-state.ts';
import { hasFallenBack, suspicionOf, wantedIn } from '../../activities/outbound-state.ts';
import { later } from '../../api/stream-ids.ts';
import type { Step } from './mechanisms.ts';
import { appendOutbound } from './mechanisms.ts';
import type { RouteRow, State } from './state.ts';
import { idOf, memoryOf } from './state.ts';

/** As `lookAtOutbound` of activities/outbound-state.ts finds it. */
function outboundOf({ redis }: State): OutboundLook {
  const first = idOf(redis.outbound[0]?.id ?? redis.lastOutbound + 1);
  return {
    serverRunId: String(redis.run),
    lastEntryId: idOf(redis.lastOutbound),
    entriesAdded: redis.added,
    wantedFrom: later(first, idOf(redis.consumed + 1)),
    firstEntryId: first,
    entriesRemoved: redis.added - redis.outbound.length,
    ...{ pending: [], database: 0 },
  };
}

/** What of a look a row has. */
function rowOf({ serverRunId, lastEntryId, entriesAdded, wantedFrom }: OutboundLook): SeenOutbound {
  const rest = { pending: [], database: 0, hasFallenBack: false };
  return { serverRunId, lastEntryId, entriesAdded, wantedFrom, ...rest };
}

export const lookAtOutbound: Step = (state) => {
  const { postgres, temporal } = state;
  const { isSuspect, ...seen } = postgres.outbound;
  const now = outboundOf(state);
  if (suspicionOf(seen, now) === undefined) {
    if (isSuspect) return startRepair(state);
    if (JSON.stringify(seen) === JSON.stringify(rowOf(now))) return false;
    postgres.outbound = { ...rowOf(now), isSuspect: false };
    return true;
  }
  const { wantedFrom } = seen;
  postgres.outbound = {
    ...rowOf(now),
    ...{ wantedFrom, hasFallenBack: hasFallenBack(seen, now), isSuspect: true },
  };
  temporal.repair ??= {};
  return true;
};

function startRepair({ temporal }: State): boolean {
  if (temporal.repair) return false;
  temporal.repair = {};
  return true;
}

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
function missingOf(state: State): RouteRow | undefined {
  const { redis, postgres, temporal } = state;
  const { route, outbound } = postgres;
  if (!temporal.repair?.begunWith || route?.status !== 'published' || route.entry === undefined) {
    return undefined;
  }
  const isWanted = wantedIn(outbound, outboundOf(state))(idOf(route.entry));
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
  const isWhole =
    suspicionOf(postgres.outbound, begunWith) === undefined &&
    suspicionOf(begunWith, outboundOf(state)) === undefined;
  if (postgres.outbound.isSuspect && isWhole) {
    postgres.outbound = { ...rowOf(begunWith), isSuspect: false };
  }
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
