/**
 * When who is pushed to, as pure functions of the state: what a change, an alarm, and the outcome of a round lead to.
 *
 * There is one alarm. One that goes off sooner is never put off, and reconciliation is only scheduled when no alarm is
 * set; so what an alarm does is decided when it goes off.
 */
import type { Alarm, Crawler, PushResult, PushScope, SymbolConfigState } from './contract.ts';
import { DEFAULT_CRAWL_INTERVAL_MS } from './contract.ts';

/** Nothing is known yet about what the targets have, which counts as a change. */
export function initialState(registry: string): SymbolConfigState {
  return {
    registry,
    version: 0,
    isListEmpty: false,
    toldChanges: 1,
    takenChanges: 0,
    pushedChanges: 0,
    failedTargets: [],
    fullPushDueMs: 0,
    crawler: { enabled: false, intervalMs: DEFAULT_CRAWL_INTERVAL_MS },
  };
}

export const hasChanges = ({ toldChanges, takenChanges }: SymbolConfigState): boolean =>
  toldChanges > takenChanges;

export interface DuePush {
  scope: PushScope;
  cause: 'change' | 'alarm';
  /** The table is looked at first; when it has changed, the push is to all. */
  isLook: boolean;
}

/** What is to be pushed now, and why; undefined while there is nothing to do. */
export function duePush(state: SymbolConfigState, nowMs: number): DuePush | undefined {
  if (hasChanges(state)) return { scope: 'all', cause: 'change', isLook: true };
  if (state.alarm === undefined || nowMs < state.alarm.atMs) return undefined;
  const { fullPushDueMs, lookDueMs = Infinity } = state;
  if (nowMs >= fullPushDueMs || mustRenumber(state)) return { scope: 'all', cause: 'alarm', isLook: true };
  return { scope: 'behind', cause: 'alarm', isLook: nowMs >= lookDueMs };
}

/** Targets hold versions that the database does not know, as after its restore. */
const mustRenumber = ({ numberOnFrom, version }: SymbolConfigState): boolean =>
  numberOnFrom !== undefined && numberOnFrom >= version;

/** Versions never go back: not below those that this workflow has given out, nor below those that targets hold. */
export const versionFloorOf = ({ version, numberOnFrom = 0 }: SymbolConfigState): number =>
  Math.max(version, numberOnFrom);

/** Once the alarm has gone off. */
export function withoutAlarm(state: SymbolConfigState): SymbolConfigState {
  const { alarm: _goneOff, ...rest } = state;
  return rest;
}

/**
 * When the crawler stops, what it left for later becomes due as reconciliation would have it; an alarm that is sooner
 * goes off as it is set.
 */
export function afterCrawlerSet(
  state: SymbolConfigState,
  crawler: Crawler,
  nowMs: number,
  reconciliationMs: number,
): SymbolConfigState {
  if (!crawler.enabled) {
    const off = { ...state, crawler, fullPushDueMs: Math.min(state.fullPushDueMs, nowMs + reconciliationMs) };
    // While a round is under way, its end sets the alarm.
    return state.alarm ? withAlarmUnlessSooner(off, nextFullOrLook(off)) : off;
  }
  const atMs = nowMs + crawler.intervalMs;
  const fullPushDueMs = Math.min(state.fullPushDueMs, atMs);
  return withAlarmUnlessSooner({ ...state, crawler, fullPushDueMs }, { atMs, purpose: 'crawler' });
}

export interface Round {
  scope: PushScope;
  /** The table was looked at before it. */
  isLook: boolean;
  /** Epoch ms. */
  startedMs: number;
  /** The changes that its version has. */
  changes: number;
}

export function afterRound(
  state: SymbolConfigState,
  { scope, isLook, startedMs, changes }: Round,
  { failedTargets, retryMs, reconciliationMs, numberOnFrom }: PushResult,
  nowMs: number,
): SymbolConfigState {
  const everyMs = state.crawler.enabled ? state.crawler.intervalMs : reconciliationMs;
  const isForAll = scope === 'all';
  const pushed = {
    ...state,
    failedTargets,
    ...(isForAll ? { pushedChanges: changes, fullPushDueMs: startedMs + everyMs } : {}),
    ...(isLook ? { lookDueMs: startedMs + reconciliationMs } : {}),
    ...(numberOnFrom === undefined ? {} : { numberOnFrom }),
  };
  if (retryMs === undefined) return pushed.alarm ? pushed : { ...pushed, alarm: nextFullOrLook(pushed) };
  // Targets that do acknowledge are not forgotten over targets that never do.
  return withAlarmUnlessSooner(
    withAlarmUnlessSooner(pushed, { atMs: nowMs + retryMs, purpose: 'retry' }),
    nextFullOrLook(pushed),
  );
}

function nextFullOrLook({ fullPushDueMs, lookDueMs = Infinity, crawler }: SymbolConfigState): Alarm {
  if (lookDueMs < fullPushDueMs) return { atMs: lookDueMs, purpose: 'look' };
  return { atMs: fullPushDueMs, purpose: crawler.enabled ? 'crawler' : 'reconciliation' };
}

function withAlarmUnlessSooner(state: SymbolConfigState, alarm: Alarm): SymbolConfigState {
  return state.alarm && state.alarm.atMs <= alarm.atMs ? state : { ...state, alarm };
}
