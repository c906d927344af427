/**
 * The workflow that brings symbol configuration to its targets, and what its callers agree on. One runs for each
 * registry, for good. Pure, so that clients and the workflow sandbox can both import it.
 */
export const SYMBOL_CONFIG_TASK_QUEUE = 'symbol-config';

export const SYMBOL_CONFIG_WORKFLOW = 'symbolConfig';

/** The table of symbols is one registry. */
export const SYMBOL_REGISTRY = 'main';

export const symbolConfigWorkflowId = (registry: string): string => `symbol-config/${registry}`;

/**
 * Update: symbols have changed in PostgreSQL; look, and push to all. Argument: a `ChangeNotice`, or none. Returns
 * immediately, with the number under which the change was noted: it has been pushed when `pushedChanges` of the status
 * has come so far.
 */
export const SYMBOLS_CHANGED_UPDATE = 'symbolsChanged';
/** Signal, no argument: the same for who must not wait, a process that starts and may be the only worker. */
export const SYMBOLS_CHANGED_SIGNAL = 'symbolsChanged';
/** Update: argument `CrawlerRequest`, returns the `SymbolConfigState` once the change is stored. */
export const CONFIGURE_CRAWLER_UPDATE = 'configureCrawler';
/** Query: returns the `SymbolConfigState`. */
export const SYMBOL_STATUS_QUERY = 'status';

/** How often a registry is crawled unless the operator says otherwise, and the bounds of what can be asked, ms. */
export const DEFAULT_CRAWL_INTERVAL_MS = 3_600_000;
export const MIN_CRAWL_INTERVAL_MS = 1_000;
export const MAX_CRAWL_INTERVAL_MS = 7 * 24 * 3_600_000;

/** No version beyond this one is numbered on from: a number that a target made up must leave room for real ones. */
export const MAX_NUMBER_ON_FROM = 1_000_000_000;

export interface ChangeNotice {
  /** Gives the list a version above this one, for targets that hold it and do not say so. */
  numberOnFrom?: number;
}

export interface CrawlerRequest {
  enabled: boolean;
  /** Default: as it was, DEFAULT_CRAWL_INTERVAL_MS at first. */
  intervalMs?: number;
  requestedBy?: string;
}

/** With the crawler enabled, reconciliation goes with its alarm. */
export interface Crawler {
  enabled: boolean;
  intervalMs: number;
}

/** `all`: every target. `behind`: targets without the current version, or whose last push failed, but none that says it is gone. */
export type PushScope = 'all' | 'behind';

export interface PushResult {
  /** Targets that were pushed to. */
  pushed: number;
  /** Names of those of them that did not acknowledge. */
  failedTargets: string[];
  /** Until the first of those that failed is due again, ms; absent when none failed, or only such that are gone. */
  retryMs?: number;
  /** Time between two pushes to all without a crawler, and between two looks at the table, ms. */
  reconciliationMs: number;
  /** The next version must be above this one: a target holds it, or the database has lost it. */
  numberOnFrom?: number;
}

export interface SymbolConfigState {
  registry: string;
  /** Of the newest snapshot; 0 before the first. */
  version: number;
  /** No symbol is enabled: no target receives the empty list, the last list stays in force. */
  isListEmpty: boolean;
  /**
   * Changes told by updates since the workflow first started; how many of them the newest snapshot has; and how many
   * have been pushed in a round that has ended.
   */
  toldChanges: number;
  takenChanges: number;
  pushedChanges: number;
  /** Of the last round. */
  failedTargets: string[];
  /** The next push; absent only before the first and while one is under way. */
  alarm?: Alarm;
  /** When the next push must be to all, epoch ms. */
  fullPushDueMs: number;
  /** When the table must be read for changes without a signal, epoch ms. */
  lookDueMs?: number;
  /** The next version must be above this one; it is taken with the next alarm. */
  numberOnFrom?: number;
  crawler: Crawler;
}

export interface Alarm {
  /** Epoch ms. */
  atMs: number;
  /** Why it was set. What is done is decided when it goes off: a push to all once `fullPushDueMs` has come. */
  purpose: 'retry' | 'reconciliation' | 'crawler' | 'look';
}
