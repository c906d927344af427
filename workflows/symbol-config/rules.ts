/**
 * When who is pushed to, as pure functions of the state: what a change, an alarm, and the outcome of a round lead to.
 *
 * There is one alarm. One that goes off sooner is never put off; so what an alarm does is decided when it goes off.
 */
import type { Alarm, PushResult, PushScope, SymbolConfigState } from './contract.ts';

/** Nothing is known yet about what the targets have, which counts as a change. */
export const INITIAL_STATE: SymbolConfigState = {
  version: 0,
  isListEmpty: false,
  toldChanges: 1,
  pushedChanges: 0,
  failedTargets: [],
  fullPushDueMs: 0,
};

export const hasChanges = ({ toldChanges, pushedChanges }: SymbolConfigState): boolean =>
  toldChanges > pushedChanges;

/** Who is to be pushed to now; undefined while there is nothing to do. A table that has changed makes it a push to all. */
export function duePush(state: SymbolConfigState, nowMs: number): PushScope | undefined {
  if (hasChanges(state)) return 'all';
  if (state.alarm === undefined || nowMs < state.alarm.atMs) return undefined;
  return nowMs >= state.fullPushDueMs ? 'all' : 'behind';
}

/** Versions never go back: not below those that this workflow has given out, nor below those that targets hold. */
export const versionFloorOf = ({ version, numberOnFrom = 0 }: SymbolConfigState): number =>
  Math.max(version, numberOnFrom);

/** The state without an alarm that has gone off. */
export function withoutDueAlarm(state: SymbolConfigState, nowMs: number): SymbolConfigState {
  const { alarm, ...rest } = state;
  return alarm && alarm.atMs <= nowMs ? rest : state;
}

export interface Round {
  scope: PushScope;
  /** Epoch ms. */
  startedMs: number;
  /** The changes that its version has. */
  changes: number;
}

export function afterRound(
  state: SymbolConfigState,
  { scope, startedMs, changes }: Round,
  { failedTargets, retryMs, reconciliationMs, crawlMs, numberOnFrom }: PushResult,
  nowMs: number,
): SymbolConfigState {
  const isForAll = scope === 'all';
  const nextFullMs = startedMs + (crawlMs ?? reconciliationMs);
  const fullPushDueMs = isForAll ? nextFullMs : Math.min(state.fullPushDueMs, nextFullMs);
  // Targets that do acknowledge are not forgotten over targets that never do.
  const alarm = soonest(
    state.alarm,
    retryMs === undefined ? undefined : { atMs: nowMs + retryMs, purpose: 'retry' },
    { atMs: fullPushDueMs, purpose: crawlMs === undefined ? 'reconciliation' : 'crawler' },
    { atMs: startedMs + reconciliationMs, purpose: 'look' },
  );
  return {
    ...state,
    failedTargets,
    fullPushDueMs,
    alarm,
    ...(isForAll ? { pushedChanges: changes } : {}),
    ...(numberOnFrom === undefined ? {} : { numberOnFrom }),
  };
}

/** Of those that are due at the same time the first one. */
const soonest = (...alarms: (Alarm | undefined)[]): Alarm =>
  alarms.filter((alarm) => alarm !== undefined).toSorted((one, other) => one.atMs - other.atMs)[0]!;
