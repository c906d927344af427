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
import type { PushScope, SymbolConfigState } from './contract.ts';
import { SYMBOLS_CHANGED_SIGNAL, SYMBOLS_CHANGED_UPDATE, SYMBOL_STATUS_QUERY } from './contract.ts';
import { INITIAL_STATE, afterRound, duePush, hasChanges, versionFloorOf, withoutDueAlarm } from './rules.ts';

const database = proxyActivities<SymbolConfigActivities>(DATABASE);
const targets = proxyActivities<SymbolConfigActivities>(HTTP_ROUND);

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
