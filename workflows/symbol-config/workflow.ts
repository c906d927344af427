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
import { checkTexts, inOrder, isHistoryLong, onRenewal, refuse } from '../long-lived.ts';
import { DATABASE, HTTP_ROUND } from '../policies.ts';
import type { ChangeNotice, CrawlerRequest, SymbolConfigState } from './contract.ts';
import {
  CONFIGURE_CRAWLER_UPDATE,
  MAX_CRAWL_INTERVAL_MS,
  MAX_NUMBER_ON_FROM,
  MIN_CRAWL_INTERVAL_MS,
  SYMBOLS_CHANGED_SIGNAL,
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_STATUS_QUERY,
} from './contract.ts';
import type { DuePush } from './rules.ts';
import {
  afterCrawlerSet,
  afterRound,
  duePush,
  hasChanges,
  initialState,
  versionFloorOf,
  withoutAlarm,
} from './rules.ts';

const database = proxyActivities<SymbolConfigActivities>(DATABASE);
const targets = proxyActivities<SymbolConfigActivities>(HTTP_ROUND);

/** Runs for good. `carried` is the state of the run before, when this one continues it. */
export async function symbolConfig(registry: string, carried?: SymbolConfigState): Promise<void> {
  let state = carried ?? initialState(registry);
  let isLoaded = carried !== undefined;
  const oneAtATime = inOrder();
  const isRenewed = onRenewal();
  const isOver = () => isRenewed() || isHistoryLong();

  setHandler(defineQuery<SymbolConfigState>(SYMBOL_STATUS_QUERY), () => state);
  setHandler(
    defineUpdate<{ change: number }, [ChangeNotice?]>(SYMBOLS_CHANGED_UPDATE),
    (notice) => {
      noteChange(notice);
      return { change: state.toldChanges };
    },
    {
      validator: checkNotice,
      description: 'Looks at the symbols in the database and pushes them to all targets. {numberOnFrom?}',
    },
  );
  setHandler(defineSignal(SYMBOLS_CHANGED_SIGNAL), () => noteChange(), {
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
    const stored = await database.loadSymbolConfig(registry);
    enterState({ ...state, ...stored });
    isLoaded = true;
  }

  for (;;) {
    await changeOrAlarm();
    if (isOver()) await continueInNewRun();
    const push = duePush(state, Date.now());
    if (push?.cause === 'alarm') enterState(withoutAlarm(state));
    if (push) await pushRound(push);
  }

  /** Does not wait: any number of changes that come together become one snapshot and one round. */
  function noteChange({ numberOnFrom = 0 }: ChangeNotice = {}): void {
    const floor = Math.max(numberOnFrom, state.numberOnFrom ?? 0);
    enterState({
      ...state,
      toldChanges: state.toldChanges + 1,
      ...(floor > 0 ? { numberOnFrom: floor } : {}),
    });
  }

  async function configureCrawler(request: CrawlerRequest): Promise<SymbolConfigState> {
    await condition(() => isLoaded);
    const { enabled, intervalMs = state.crawler.intervalMs, requestedBy = 'operator' } = request;
    const { reconciliationMs } = await database.setSymbolCrawler(
      registry,
      { enabled, intervalMs },
      requestedBy,
    );
    enterState(afterCrawlerSet(state, { enabled, intervalMs }, Date.now(), reconciliationMs));
    return state;
  }

  async function changeOrAlarm(): Promise<void> {
    const { alarm } = state;
    const isInterrupted = () => hasChanges(state) || isOver() || state.alarm !== alarm;
    if (alarm) await condition(isInterrupted, Math.max(1, alarm.atMs - Date.now()));
    else await condition(isInterrupted);
  }

  /** A target that hangs ends the round by its time-out. */
  async function pushRound({ scope: due, isLook }: DuePush): Promise<void> {
    let scope = due;
    if (isLook) {
      const { version, toldChanges: takenChanges } = state;
      const snapshot = await database.takeSymbolSnapshot(registry, versionFloorOf(state));
      if (snapshot.version !== version) scope = 'all';
      enterState({ ...state, ...snapshot, takenChanges });
    }
    const round = { scope, isLook, startedMs: Date.now(), changes: state.takenChanges };
    const outcome = await targets.pushSymbols(registry, state.version, scope);
    enterState(afterRound(state, round, outcome, Date.now()));
  }

  async function continueInNewRun(): Promise<void> {
    await condition(allHandlersFinished);
    await continueAsNew<typeof symbolConfig>(registry, state);
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

function checkNotice(notice: unknown = {}): void {
  if (typeof notice !== 'object' || notice === null) refuse('the argument must be an object');
  const { numberOnFrom = 1 } = notice as Record<keyof ChangeNotice, unknown>;
  checkNumber('numberOnFrom', numberOnFrom, 1, MAX_NUMBER_ON_FROM);
}

function checkNumber(name: string, value: unknown, min: number, max: number): void {
  const isWithin = Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
  if (!isWithin) refuse(`${name} must be a whole number from ${min} to ${max}`);
}

function checkCrawler(request: unknown): void {
  if (typeof request !== 'object' || request === null) refuse('the argument must be an object');
  const { enabled, intervalMs } = request as Record<keyof CrawlerRequest, unknown>;
  if (typeof enabled !== 'boolean') refuse('enabled must be true or false');
  if (intervalMs !== undefined)
    checkNumber('intervalMs', intervalMs, MIN_CRAWL_INTERVAL_MS, MAX_CRAWL_INTERVAL_MS);
  checkTexts(request, 'requestedBy');
}
