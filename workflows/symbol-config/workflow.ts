/**
 * Brings the enabled symbols to every target, and keeps them there (seed "Retry & Reconciliation Strategy"). Symbols
 * and the state of each target are rows in PostgreSQL; this workflow decides when who is pushed to.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pushing: to all
 *   pushing --> steady: all acknowledged
 *   pushing --> retrying: somebody did not
 *   steady --> pushing: a change, or reconciliation, to all
 *   retrying --> pushing: a change, to all
 *   retrying --> pushing: the alarm, to those that are behind
 * ```
 *
 * There is one alarm, a durable timer. One that goes off sooner is never put off, and reconciliation is only scheduled
 * when no alarm is set; so what an alarm does is decided when it goes off.
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
  workflowInfo,
} from '@temporalio/workflow';
import type { SymbolConfigActivities } from '../../activities/symbol-config/activities.ts';
import { inOrder } from '../in-order.ts';
import { DATABASE, SYMBOL_PUSH } from '../policies.ts';
import { checkTexts, refuse } from '../requests.ts';
import type { Alarm, CrawlerRequest, PushOutcome, PushScope, SymbolConfigState } from './contract.ts';
import {
  CONFIGURE_CRAWLER_UPDATE,
  DEFAULT_CRAWL_INTERVAL_MS,
  MAX_CRAWL_INTERVAL_MS,
  MIN_CRAWL_INTERVAL_MS,
  SYMBOLS_CHANGED_SIGNAL,
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_STATUS_QUERY,
} from './contract.ts';

const database = proxyActivities<SymbolConfigActivities>(DATABASE);
const targets = proxyActivities<SymbolConfigActivities>(SYMBOL_PUSH);

/** A round that takes longer, because some target hangs, does not hold up the next change. */
const PATIENCE_MS = 1_000;

/** Events after which a run is continued by a new one: each update leaves two, and replaying them must stay quick. */
const LONG_HISTORY = 1_000;

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function symbolConfig(registry: string, carried?: SymbolConfigState): Promise<void> {
  let state = carried ?? initialState(registry);
  let isLoaded = carried !== undefined;
  let newestRound = 0;
  let roundsUnderWay = 0;
  const oneAtATime = inOrder();

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
  setHandler(
    defineUpdate<SymbolConfigState, [CrawlerRequest]>(CONFIGURE_CRAWLER_UPDATE),
    (request) => oneAtATime(() => configureCrawler(request)),
    {
      validator: checkCrawler,
      description: 'Switches the crawler, whose alarm then is that of reconciliation. {enabled, intervalMs?}',
    },
  );

  if (!isLoaded) {
    enter(await database.loadSymbolConfig(registry));
    isLoaded = true;
  }

  for (;;) {
    await changeOrAlarm();
    if (isHistoryLong()) await continueInNewRun();
    else if (hasChanges()) await pushUntilSettled('all');
    else if (isAlarmDue()) {
      const isForAll = Date.now() >= state.fullPushDueMs;
      clearAlarm();
      await pushUntilSettled(isForAll ? 'all' : 'behind');
    }
  }

  /** Does not wait: any number of changes at once become one snapshot and one round. */
  function noteChange(): void {
    enter({ toldChanges: state.toldChanges + 1 });
  }

  async function configureCrawler({
    enabled,
    intervalMs: asked,
    requestedBy = 'operator',
  }: CrawlerRequest): Promise<SymbolConfigState> {
    await condition(() => isLoaded);
    const intervalMs = asked ?? state.crawler.intervalMs;
    await database.setSymbolCrawler(registry, { enabled, intervalMs }, requestedBy);
    enter({ crawler: { enabled, intervalMs } });
    // An alarm that is set when the crawler stops goes off as it would have, and is followed by ours.
    if (enabled) {
      const atMs = Date.now() + intervalMs;
      enter({ fullPushDueMs: Math.min(state.fullPushDueMs, atMs) });
      setAlarmUnlessSooner({ atMs, purpose: 'crawler' });
    }
    return state;
  }

  async function changeOrAlarm(): Promise<void> {
    const { alarm } = state;
    const isInterrupted = () => hasChanges() || isHistoryLong() || state.alarm !== alarm;
    if (alarm) await condition(isInterrupted, Math.max(1, alarm.atMs - Date.now()));
    else await condition(isInterrupted);
  }

  /** Ends when the round has, or, if that takes long, when there is something newer to push. */
  async function pushUntilSettled(scope: PushScope): Promise<void> {
    if (scope === 'all') {
      const takenChanges = state.toldChanges;
      enter({ ...(await database.takeSymbolSnapshot(registry)), takenChanges });
    }
    let isSettled = false;
    roundsUnderWay += 1;
    const round = pushRound(scope).finally(() => {
      isSettled = true;
      roundsUnderWay -= 1;
    });
    // It fails only when the workflow is cancelled, which ends the wait below as well.
    round.catch(() => undefined);
    if (await condition(() => isSettled, PATIENCE_MS)) return;
    await condition(() => isSettled || hasChanges() || isHistoryLong());
  }

  async function pushRound(scope: PushScope): Promise<void> {
    const round = (newestRound += 1);
    const startedMs = Date.now();
    const pushedChanges = state.takenChanges;
    const outcome = await targets.pushSymbols(registry, state.version, scope);
    // The newer round has pushed to the same targets, and more.
    if (round !== newestRound) return;
    const everyMs = state.crawler.enabled ? state.crawler.intervalMs : outcome.reconciliationMs;
    if (scope === 'all') enter({ pushedChanges, fullPushDueMs: startedMs + everyMs });
    settle(outcome);
  }

  function settle({ failedTargets, retryLadderMs }: PushOutcome): void {
    if (failedTargets.length === 0) {
      enter({ consecutiveFailures: 0, failedTargets });
      scheduleReconciliation();
      return;
    }
    enter({ consecutiveFailures: state.consecutiveFailures + 1, failedTargets });
    const step = Math.min(state.consecutiveFailures, retryLadderMs.length) - 1;
    setAlarmUnlessSooner({ atMs: Date.now() + retryLadderMs[step]!, purpose: 'retry' });
    // Those that do acknowledge are not forgotten over those that never do.
    setAlarmUnlessSooner(reconciliation());
  }

  function scheduleReconciliation(): void {
    if (!state.alarm) enter({ alarm: reconciliation() });
  }

  function reconciliation(): Alarm {
    return { atMs: state.fullPushDueMs, purpose: state.crawler.enabled ? 'crawler' : 'reconciliation' };
  }

  function setAlarmUnlessSooner(alarm: Alarm): void {
    if (!state.alarm || alarm.atMs < state.alarm.atMs) enter({ alarm });
  }

  function clearAlarm(): void {
    const { alarm: _goneOff, ...rest } = state;
    state = rest;
  }

  async function continueInNewRun(): Promise<void> {
    await condition(allHandlersFinished);
    // The outcome of a round that outlives its run is lost; making it again has no other effect.
    const toldChanges = state.toldChanges + (roundsUnderWay > 0 ? 1 : 0);
    await continueAsNew<typeof symbolConfig>(registry, { ...state, toldChanges });
  }

  function enter(changes: Partial<SymbolConfigState>): void {
    state = { ...state, ...changes };
    setCurrentDetails(describe(state));
  }

  function hasChanges(): boolean {
    return state.toldChanges > state.takenChanges;
  }

  function isAlarmDue(): boolean {
    return state.alarm !== undefined && Date.now() >= state.alarm.atMs;
  }
}

/** Nothing is known yet about what the targets have, which counts as a change. */
function initialState(registry: string): SymbolConfigState {
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

function isHistoryLong(): boolean {
  const { historyLength, continueAsNewSuggested } = workflowInfo();
  return historyLength >= LONG_HISTORY || continueAsNewSuggested;
}

function describe({
  version,
  isListEmpty,
  failedTargets,
  alarm,
  consecutiveFailures,
}: SymbolConfigState): string {
  const list = version === 0 ? 'no list yet' : `version ${version}`;
  const empty = isListEmpty ? ', kept although no symbol is enabled now' : '';
  const behind =
    failedTargets.length === 0
      ? ''
      : `; ${failedTargets.length} targets did not acknowledge, ${consecutiveFailures} rounds in a row: ${failedTargets.slice(0, 10).join(', ')}`;
  const next = alarm ? `; next push ${new Date(alarm.atMs).toISOString()} (${alarm.purpose})` : '';
  return list + empty + behind + next;
}

function checkCrawler(request: unknown): void {
  if (typeof request !== 'object' || request === null) refuse('the argument must be an object');
  const { enabled, intervalMs } = request as Record<keyof CrawlerRequest, unknown>;
  if (typeof enabled !== 'boolean') refuse('enabled must be true or false');
  if (
    intervalMs !== undefined &&
    !(
      Number.isInteger(intervalMs) &&
      (intervalMs as number) >= MIN_CRAWL_INTERVAL_MS &&
      (intervalMs as number) <= MAX_CRAWL_INTERVAL_MS
    )
  ) {
    refuse(`intervalMs must be a whole number from ${MIN_CRAWL_INTERVAL_MS} to ${MAX_CRAWL_INTERVAL_MS}`);
  }
  checkTexts(request, 'requestedBy');
}
