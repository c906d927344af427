/**
 * The contract of the workflow that delivers callbacks about account values. One runs for each shard of users, forever.
 * Pure, so that clients and the workflow sandbox can both import it.
 */
export const ACCOUNT_CALLBACK_TASK_QUEUE = 'account-callback';

export const ACCOUNT_CALLBACK_WORKFLOW = 'accountCallback';

/** @param shard from 0. */
export const accountCallbackWorkflowId = (shard: number): string => `account-callback/${shard}`;

/** Update: do not wait for the next alarm. Without argument; returns the `CallbackState` after the alarm. */
export const RUN_NOW_UPDATE = 'runNow';
/** Query: returns the `CallbackState`. */
export const CALLBACK_STATUS_QUERY = 'status';

/** Callbacks that one alarm begins to deliver. */
export const MAX_EMISSIONS = 500;
/** Failed ones that one alarm tries again, fewer, to leave headroom. */
export const MAX_RETRIES = 50;

/** From one alarm to the next, ms. What is known to be due sooner is not kept waiting. */
export const ALARM_INTERVALS_MS = {
  /** More is to be delivered. */
  pending: 100,
  /** An hour has just ended, or a tracking has not caught up: entries are expected. */
  waiting: 60_000,
  steady: 300_000,
} as const;
export type AlarmInterval = keyof typeof ALARM_INTERVALS_MS;

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

/**
 * SQL: a tracking has not caught up within two hours of the end of its next day. A tracking that is new, or that has just
 * made progress, has the same time.
 */
export const IS_OVERDUE = `
  is_waited_for AND caught_up_date < (now() AT TIME ZONE 'UTC')::date - 1
  AND greatest((caught_up_date + 2)::timestamp AT TIME ZONE 'UTC', changed_at) + interval '2 hours' < now()`;

export type CallbackKind = 'hourly' | 'daily';

export interface ShardInput {
  /** From 0. */
  shard: number;
}

/** How far the emission of a kind has come: hours in the order of the index of their snapshots, days by user. */
export interface EmissionCursor {
  periodStartMs: number;
  /** The index of the last snapshot, or the id of its user. */
  last: string;
}

export interface PageResult {
  /** Callbacks of the page. */
  begun: number;
  /** The last of them; absent when the pass is over. */
  upTo?: EmissionCursor | undefined;
}

export interface ShardWaits {
  /** A tracking has not caught up to the end of the previous day. */
  isBehind: boolean;
  /** When the next failed callback of the shard is due, epoch ms; absent when none waits. */
  nextRetryMs?: number | undefined;
}

export interface RetryResult extends ShardWaits {
  /** A daily callback is settled: its user may be due for the next day. */
  isDaySettled: boolean;
}

export interface CallbackState {
  shard: number;
  /** Present while daily callbacks of a day are being emitted. */
  daily?: EmissionCursor | undefined;
  /** Present while hourly callbacks are being emitted. */
  hourly?: EmissionCursor | undefined;
  /** When the next failed callback is due, as far as is known, epoch ms. */
  nextRetryMs?: number | undefined;
  /** Absent while an alarm is at work. Epoch ms. */
  nextAlarm?: { atMs: number; interval: AlarmInterval } | undefined;
}
