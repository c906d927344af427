/**
 * Brings the enabled symbols to every target, and keeps them there. Symbols
 * and the state of each target are rows in PostgreSQL; this workflow decides when who is pushed to.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pushing: to all
 *   pushing --> steady: all acknowledged
 *   pushing --> retrying: a target did not
 *   steady --> pushing: a change, or reconciliation, to all
 *   retrying --> pushing: a change, to all
 *   retrying --> pushing: the alarm, to those that are behind
 * ```
 */
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  defineQuery,
  defineSignal,
  defineUpdate,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { SymbolConfigActivities } from '../../activities/symbol-config/activities.ts';
import { detailsOf, shortText } from '../details.ts';
import { isHistoryLong, onRenewal } from '../long-lived.ts';
import { DATABASE, HTTP_ROUND } from '../policies.ts';
import type { Alarm, PushResult, PushScope, SymbolConfigState } from './contract.ts';
import { SYMBOLS_CHANGED_SIGNAL, SYMBOLS_CHANGED_UPDATE, SYMBOL_STATUS_QUERY } from './contract.ts';

const database = proxyActivities<SymbolConfigActivities>(DATABASE);
const targets = proxyActivities<SymbolConfigActivities>(HTTP_ROUND);

/** Nothing is known yet about what the targets have, which counts as a change. */
const INITIAL_STATE: SymbolConfigState = {
  version: 0,
  isListEmpty: false,
  toldChanges: 1,
  pushedChanges: 0,
  failedTargets: [],
  fullPushDueMs: 0,
};

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function symbolConfig(carried = INITIAL_STATE): Promise<void> {
  let state = carried;
  const isRenewed = onRenewal();
  const isOver = () => isRenewed() || isHistoryLong();

  setHandler(defineQuery<SymbolConfigState>(SYMBOL_STATUS_QUERY), () => state);
  setHandler(
    defineUpdate<{ change: number }>(SYMBOLS_CHANGED_UPDATE),
    () => {
      noteChange();
      return { change: state.toldChanges };
    },
    { description: 'Looks at the symbols in the database and pushes them to all targets.' },
  );
  setHandler(defineSignal(SYMBOLS_CHANGED_SIGNAL), noteChange, {
    description: 'As the update of this name, without an answer.',
  });
  for (;;) {
    await changeOrAlarm();
    if (isOver()) await continueInNewRun();
    const scope = duePush(state, Date.now());
    if (scope) await pushRound(scope);
  }

  /** Does not wait: any number of changes that come together become one snapshot and one round. */
  function noteChange(): void {
    enterState({ ...state, toldChanges: state.toldChanges + 1 });
  }

  async function changeOrAlarm(): Promise<void> {
    const { alarm } = state;
    const isInterrupted = () => hasChanges(state) || isOver() || state.alarm !== alarm;
    if (alarm) await condition(isInterrupted, Math.max(1, alarm.atMs - Date.now()));
    else await condition(isInterrupted);
  }

  /** A target that hangs ends the round by its time-out. */
  async function pushRound(due: PushScope): Promise<void> {
    enterState(withoutDueAlarm(state, Date.now()));
    const { version, toldChanges: changes } = state;
    const snapshot = await database.takeSymbolSnapshot(versionFloorOf(state));
    const scope = snapshot.version === version ? due : 'all';
    enterState({ ...state, ...snapshot });
    const startedMs = Date.now();
    const outcome = await targets.pushSymbols(state.version, scope);
    enterState(afterRound(state, { scope, startedMs, changes }, outcome, Date.now()));
  }

  async function continueInNewRun(): Promise<void> {
    await condition(allHandlersFinished);
    await continueAsNew<typeof symbolConfig>(state);
  }

  function enterState(next: SymbolConfigState): void {
    state = next;
    setCurrentDetails(describe(state));
  }
}

function describe({ version, isListEmpty, failedTargets, alarm }: SymbolConfigState): string {
  const empty = isListEmpty ? ', kept although no symbol is enabled now' : '';
  const behind = failedTargets.length;
  return detailsOf(
    version === 0 ? 'No list yet.' : `Version ${version}${empty}.`,
    alarm && `Next push ${new Date(alarm.atMs).toISOString()} (${alarm.purpose}).`,
    behind > 0 && `${behind} targets did not acknowledge: ${shortText(failedTargets.join(', '), 200)}`,
  );
}

// --- When who is pushed to ----------------------------------------------------------------------------------------------
//
// Pure functions of the state: what a change, an alarm, and the outcome of a round lead to. There is one alarm. One that
// goes off sooner is never put off; so what an alarm does is decided when it goes off.

const hasChanges = ({ toldChanges, pushedChanges }: SymbolConfigState): boolean =>
  toldChanges > pushedChanges;

/** Who is to be pushed to now; undefined while there is nothing to do. A table that has changed makes it a push to all. */
function duePush(state: SymbolConfigState, nowMs: number): PushScope | undefined {
  if (hasChanges(state)) return 'all';
  if (state.alarm === undefined || nowMs < state.alarm.atMs) return undefined;
  return nowMs >= state.fullPushDueMs ? 'all' : 'behind';
}

/** Versions never go back: not below those that this workflow has given out, nor below those that targets hold. */
const versionFloorOf = ({ version, numberOnFrom = 0 }: SymbolConfigState): number =>
  Math.max(version, numberOnFrom);

/** The state without an alarm that has gone off. */
function withoutDueAlarm(state: SymbolConfigState, nowMs: number): SymbolConfigState {
  const { alarm, ...rest } = state;
  return alarm && alarm.atMs <= nowMs ? rest : state;
}

interface Round {
  scope: PushScope;
  /** Epoch ms. */
  startedMs: number;
  /** The changes that its version has. */
  changes: number;
}

function afterRound(
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
