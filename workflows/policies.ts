/** Retry policies and time-outs by name. Durations are Temporal duration strings or ms. */
import type { ActivityOptions, LocalActivityOptions, RetryPolicy } from '@temporalio/workflow';
import { PUBLICATION_FAILURES } from './failures.ts';

type Duration = NonNullable<ActivityOptions['startToCloseTimeout']>;

/** For work that must happen however long a dependency is away: the gaps grow to 30 s and stay there. */
const UNTIL_IT_SUCCEEDS: RetryPolicy = {
  initialInterval: '1 second',
  backoffCoefficient: 2,
  maximumInterval: '30 seconds',
};
const atMost = (maximumAttempts: number): RetryPolicy => ({ ...UNTIL_IT_SUCCEEDS, maximumAttempts });

/** Cancelled work ends first: what it has written must be known before it is undone or done again. */
const ENDING_FIRST = { cancellationType: 'WAIT_CANCELLATION_COMPLETED' } as const;

const short = (startToCloseTimeout: Duration, options: ActivityOptions = {}): ActivityOptions => ({
  startToCloseTimeout,
  retry: UNTIL_IT_SUCCEEDS,
  ...options,
});

/** It heartbeats, so that the work of a process that died is soon done by another. */
const long = (startToCloseTimeout: Duration, heartbeatTimeout: Duration, options: ActivityOptions = {}) =>
  short(startToCloseTimeout, { heartbeatTimeout, ...options });

/**
 * One quick try inside the workflow task, which costs the server least. What fails here goes on as a regular
 * activity, because only those show an operator their attempts, last failure and next time.
 */
export const FIRST_TRY: LocalActivityOptions = {
  startToCloseTimeout: '8 seconds',
  retry: { maximumAttempts: 1 },
  ...ENDING_FIRST,
};

/** As FIRST_TRY, for a push: FCM's answer, waited for up to 10 s, must not come after its try was given up. */
export const FIRST_SEND: LocalActivityOptions = { ...FIRST_TRY, startToCloseTimeout: '15 seconds' };

/**
 * Statements that are to end within the workflow task that asks for them. One that is made again after its task was lost
 * must find its own traces harmless: nothing says that it is a repetition.
 */
export const DATABASE_AT_ONCE: LocalActivityOptions = {
  startToCloseTimeout: '8 seconds',
  retry: UNTIL_IT_SUCCEEDS,
};

/** Short statements in the course of a workflow. */
export const DATABASE = short('30 seconds');

/**
 * Acceptance after a failed first try, or of many recipients. As many lookups as an intent can have take hours with a
 * slow User Service that is shared with others.
 */
export const ACCEPTANCE = long('1 day', '20 seconds', ENDING_FIRST);

/**
 * Attempts to publish that spend no budget, for as long as something prevents them. One that could be made and failed
 * goes back to the workflow, which counts it.
 */
export const PUBLICATION_WHEN_POSSIBLE = short('30 seconds', {
  ...ENDING_FIRST,
  retry: { ...UNTIL_IT_SUCCEEDS, nonRetryableErrorTypes: [...PUBLICATION_FAILURES] },
});

/**
 * The rest of the budget of a route or of a push. How many attempts it has is counted in the row and not here, since one
 * that something prevented is not spent; a failed one says itself when the next is due.
 */
export const REST_OF_BUDGET = short('30 seconds', ENDING_FIRST);

/** What an operator ordered must happen, however long it takes. Long ones heartbeat. */
export const STEERING = long('1 hour', '1 minute');

/**
 * A page of what an operator does to many takes about a second. Nothing is dealt with any more once an operation is paused
 * or has ended.
 */
export const OPERATION_PAGE = long('10 minutes', '10 seconds', ENDING_FIRST);

/** One round of pushes to targets or of callbacks to portfolio services, which is as long as the time-out of a single one. */
export const HTTP_ROUND = long('10 minutes', '10 seconds');

/**
 * Picking up rows. While PostgreSQL is away this fails, and the worker counts it as one of its deaths. One that a dying
 * process had taken holds up its whole server, so it is soon given up; a late one only wastes its claim.
 */
export const SUBSCRIPTION_CLAIM = short('10 seconds', { retry: atMost(5) });

/** Work on routers that may be done twice. One batch may have to connect, and to wait for each of its answers. */
export const SUBSCRIPTION_BATCH = long('30 minutes', '15 seconds', { retry: atMost(3) });

/** Work on routers that is never repeated as it is: its rows say what is left to do. */
export const SUBSCRIPTION_KEYS = { ...SUBSCRIPTION_BATCH, retry: { maximumAttempts: 1 } };

/** The cron interval of a token: wanted, but not worth waiting for a router that stays away for long. */
export const TOKEN_CRON = short('5 minutes', { retry: atMost(20) });

/** Runs of retention and reconciliation go over many rows and heartbeat meanwhile. */
export const UPKEEP = long('1 hour', '1 minute', { retry: atMost(10) });

/**
 * Before notifications that have not begun (their priority is the default, 3): a backlog is then worked off one after
 * the other, instead of accepted as a whole while nothing is delivered. Fairness is inherited.
 */
export const BEFORE_NEW_ONES = { priority: { priorityKey: 2 } } as const;

/** Orders of operators go before a backlog: an order to stop must not wait until the work is over. */
export const BEFORE_A_BACKLOG: Required<Pick<ActivityOptions, 'priority'>> = { priority: { priorityKey: 1 } };

/**
 * The reader of a stream runs for as long as its process does. One that stops in good order hands over immediately.
 * One that dies is replaced after the time-out of its heartbeat.
 */
export const STREAM_READER: ActivityOptions = {
  // The next run begins once the reader of this one has ended.
  ...ENDING_FIRST,
  startToCloseTimeout: '3650 days',
  heartbeatTimeout: '30 seconds',
  // A reader's attempts add up over its whole life, so the gap must not grow with them.
  retry: { initialInterval: '1 second', backoffCoefficient: 1 },
  // Before acceptances and first attempts: without it there would soon be none, and it takes one slot for days.
  ...BEFORE_A_BACKLOG,
};

/** Delay after failed attempt `attempt` (1 for the first), ms: clamp(min * 2^(attempt-1), min, max). */
export function ladderDelayMs(attempt: number, minMs: number, maxMs: number): number {
  return Math.min(maxMs, Math.max(minMs, minMs * 2 ** (attempt - 1)));
}
