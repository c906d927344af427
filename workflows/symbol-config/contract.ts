/**
 * The workflow that brings symbol configuration to its targets, and what its callers agree on. One runs, for good.
 * Pure, so that clients and the workflow sandbox can both import it.
 */
export const SYMBOL_CONFIG_TASK_QUEUE = 'symbol-config';

export const SYMBOL_CONFIG_WORKFLOW = 'symbolConfig';

export const SYMBOL_CONFIG_WORKFLOW_ID = 'symbol-config/main';

/**
 * Update: symbols have changed in PostgreSQL; look, and push to all. Without argument. Returns immediately, with the number
 * under which the change was noted: it has been pushed when `pushedChanges` of the status has come so far.
 */
export const SYMBOLS_CHANGED_UPDATE = 'symbolsChanged';
/** Signal, no argument: the same for who must not wait, a process that starts and may be the only worker. */
export const SYMBOLS_CHANGED_SIGNAL = 'symbolsChanged';
/** Query: returns the `SymbolConfigState`. */
export const SYMBOL_STATUS_QUERY = 'status';

/** No version beyond this one is numbered on from: a number that a target made up must leave room for real ones. */
export const MAX_NUMBER_ON_FROM = 1_000_000_000;

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
  /** With a crawler: time between two of its alarms, with which all are pushed to, ms. */
  crawlMs?: number | undefined;
  /** The next version must be above this one: a target holds it, or the database has lost it. */
  numberOnFrom?: number;
}

export interface SymbolConfigState {
  /** Of the newest snapshot; 0 before the first. */
  version: number;
  /** No symbol is enabled: no target receives the empty list, the last list stays in force. */
  isListEmpty: boolean;
  /**
   * Changes told since the workflow first started, and how many of them have been pushed in a round that has ended.
   */
  toldChanges: number;
  pushedChanges: number;
  /** Of the last round. */
  failedTargets: string[];
  /** The next push; absent only before the first and while one is under way. */
  alarm?: Alarm;
  /** When the next push must be to all, epoch ms. */
  fullPushDueMs: number;
  /** The next version must be above this one; it is taken with the next alarm. */
  numberOnFrom?: number;
}

export interface Alarm {
  /** Epoch ms. */
  atMs: number;
  /**
   * Why it was set. What is done is decided when it goes off: a push to all once `fullPushDueMs` has come, or when the table
   * has changed; a look is for a change without a notice.
   */
  purpose: 'retry' | 'reconciliation' | 'crawler' | 'look';
}
