/**
 * When who is pushed to, as pure functions of the state: what a change, an alarm, and the outcome of a round lead to.
 *
 * There is one alarm. One that goes off sooner is never put off, and reconciliation is only scheduled when no alarm is
 * set; so what an alarm does is decided when it goes off.
 */
import type { Alarm, Crawler, PushOutcome, PushScope, SymbolConfigState } from './contract.ts';
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
    consecutiveFailures: 0,
    failedTargets: [],
    fullPushDueMs: 0,
    crawler: { enabled: false, intervalMs: DEFAULT_CRAWL_INTERVAL_MS },
  };
}

export const hasChanges = ({ toldChanges, takenChanges }: SymbolConfigState): boolean =>
  toldChanges > takenChanges;

/** What is to be pushed now, and why; undefined while there is nothing to do. */
export function duePush(
  state: SymbolConfigState,
  nowMs: number,
): { scope: PushScope; cause: 'change' | 'alarm' } | undefined {
  if (hasChanges(state)) return { scope: 'all', cause: 'change' };
  if (state.alarm === undefined || nowMs < state.alarm.atMs) return undefined;
  return { scope: nowMs >= state.fullPushDueMs ? 'all' : 'behind', cause: 'alarm' };
}

/** Once the alarm has gone off. */
export function withoutAlarm(state: SymbolConfigState): SymbolConfigState {
  const { alarm: _goneOff, ...rest } = state;
  return rest;
}

/** An alarm that is set when the crawler stops goes off as it would have, and is followed by one of reconciliation. */
export function afterCrawlerSet(
  state: SymbolConfigState,
  crawler: Crawler,
  nowMs: number,
): SymbolConfigState {
  if (!crawler.enabled) return { ...state, crawler };
  const atMs = nowMs + crawler.intervalMs;
  const fullPushDueMs = Math.min(state.fullPushDueMs, atMs);
  return withAlarmUnlessSooner({ ...state, crawler, fullPushDueMs }, { atMs, purpose: 'crawler' });
}

export interface Round {
  scope: PushScope;
  /** Epoch ms. */
  startedMs: number;
  /** The changes that its version has. */
  changes: number;
}

/** After a round that was not overtaken by a newer one. */
export function afterRound(
  state: SymbolConfigState,
  { scope, startedMs, changes }: Round,
  { failedTargets, retryLadderMs, reconciliationMs }: PushOutcome,
  nowMs: number,
): SymbolConfigState {
  const everyMs = state.crawler.enabled ? state.crawler.intervalMs : reconciliationMs;
  const isForAll = scope === 'all';
  const pushed = {
    ...state,
    failedTargets,
    ...(isForAll ? { pushedChanges: changes, fullPushDueMs: startedMs + everyMs } : {}),
  };
  if (failedTargets.length === 0) {
    const settled = { ...pushed, consecutiveFailures: 0 };
    return settled.alarm ? settled : { ...settled, alarm: reconciliationOf(settled) };
  }
  const consecutiveFailures = state.consecutiveFailures + 1;
  const step = Math.min(consecutiveFailures, retryLadderMs.length) - 1;
  const retry: Alarm = { atMs: nowMs + retryLadderMs[step]!, purpose: 'retry' };
  // Targets that do acknowledge are not forgotten over targets that never do.
  return withAlarmUnlessSooner(
    withAlarmUnlessSooner({ ...pushed, consecutiveFailures }, retry),
    reconciliationOf(pushed),
  );
}

function reconciliationOf({ fullPushDueMs, crawler }: SymbolConfigState): Alarm {
  return { atMs: fullPushDueMs, purpose: crawler.enabled ? 'crawler' : 'reconciliation' };
}

function withAlarmUnlessSooner(state: SymbolConfigState, alarm: Alarm): SymbolConfigState {
  return state.alarm && state.alarm.atMs <= alarm.atMs ? state : { ...state, alarm };
}
