/**
 * Callbacks about account values, one step of the pipeline each. inputs.ts keeps what is to be delivered, callback-rows.ts
 * the outcomes. The portfolio service takes them (api/account-callback/callback-openapi.yaml). The counters and gauges of
 * callbacks are at the end.
 */
import type { Meter } from '@opentelemetry/api';
import { Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import {
  callbackBody,
  callbackIdempotencyKey,
  callbackPath,
  callbackWebhookId,
} from '../../api/account-callback/callback.ts';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import { searchableKey } from '../../api/ids.ts';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type {
  CallbackKind,
  EmissionCursor,
  PageResult,
  RetryResult,
} from '../../workflows/account-callback/contract.ts';
import { IS_OVERDUE, MAX_RETRIES } from '../../workflows/account-callback/contract.ts';
import type { DueCallback, FailedCallback } from './callback-rows.ts';
import {
  beginPage,
  endGone,
  loadDueRetries,
  recordDelivered,
  recordFailed,
  waitsOf,
} from './callback-rows.ts';
import { withHeartbeats } from '../attempt.ts';
import type { HttpCaller, DeliveryFailure } from '../http/caller.ts';
import { deliver, isGone, retryWaitMs, withoutOwnWords } from '../http/caller.ts';
import type { GaugeRead } from '../metrics.ts';
import { COUNTED_AT_MOST, countersOf, gaugesOfRows } from '../metrics.ts';

/** Most exchanges that are under way concurrently: a whole alarm, so that no user waits for another who hangs. */
const MAX_PARALLEL = 500;

export interface AccountCallbackResources {
  db: Pool;
  log: Logger;
  metrics: AccountCallbackMetrics;
  portfolio: {
    baseUrl: string;
    caller: HttpCaller;
    /** For one exchange, from its first byte: the wait for a turn does not count. */
    timeoutMs: number;
    /** The wait after each failed attempt; after as many retries, a callback is dropped. */
    retryLadderMs: readonly number[];
  };
}

export type AccountCallbackActivities = ReturnType<typeof createAccountCallbackActivities>;

export function createAccountCallbackActivities(resources: AccountCallbackResources) {
  const { db, log, metrics, portfolio } = resources;
  const { caller, timeoutMs, retryLadderMs } = portfolio;
  const base = portfolio.baseUrl.replace(/\/+$/, '');
  const atMost = pLimit(MAX_PARALLEL);

  return {
    /**
     * Delivers the next callbacks of a kind that are pending, concurrently. What becomes of one makes no difference to the
     * others.
     *
     * @param after the last one of the page before; absent at the beginning of a pass.
     * @param nowMs epoch ms.
     */
    async emitCallbacks(
      shard: number,
      kind: CallbackKind,
      after: EmissionCursor | undefined,
      limit: number,
      nowMs: number,
    ): Promise<PageResult> {
      const { due, upTo } = await beginPage(db, shard, kind, after, limit);
      const { delivered, failed } = await deliverAll(due, nowMs, metrics.callbackEmission);
      if (due.length > 0) log.info({ shard, kind, delivered, failed }, 'account callbacks emitted');
      return { begun: due.length, upTo };
    },

    /** Delivers failed callbacks that are due once more, and says what the shard waits for after that. @param nowMs epoch ms. */
    async retryCallbacks(shard: number, nowMs: number): Promise<RetryResult> {
      const due = await loadDueRetries(db, shard, nowMs, MAX_RETRIES);
      const { delivered, failed, dropped } = await deliverAll(due, nowMs, metrics.callbackRetry);
      const isDaySettled = delivered + dropped > 0 && due.some(({ kind }) => kind === 'daily');
      if (due.length > 0) log.info({ shard, delivered, failed, dropped }, 'account callbacks retried');
      return { isDaySettled, ...(await waitsOf(db, shard, nowMs)) };
    },
  };

  /** @returns why it was not acknowledged, or nothing when it was. Never throws. */
  async function send(callback: DueCallback, stopped: AbortSignal): Promise<DeliveryFailure | undefined> {
    const path = callbackPath(callback);
    if (path === undefined) return { kind: 'failed', message: 'no path can name this user' };
    return deliver({
      ...{ method: 'POST', url: base + path, body: callbackBody(callback) },
      id: callbackWebhookId(callback),
      headers: { 'idempotency-key': callbackIdempotencyKey(callback) },
      ...{ timeoutMs, stopped, caller },
    });
  }

  /**
   * Outcomes are written together: what a crash, or an outage of PostgreSQL, leaves unwritten is sent again, and is the same.
   *
   * @throws ApplicationFailure when an outcome could not be written, and the reason of a stop: both are made good.
   */
  async function deliverAll(
    due: readonly DueCallback[],
    nowMs: number,
    count: CountAttempt,
  ): Promise<Outcome> {
    const delivered: DueCallback[] = [];
    const failed: FailedCallback[] = [];
    /** Their portfolio services say that they are not there any more. */
    const gone: string[] = [];
    const { info, cancellationSignal: stopped } = Context.current();
    // Both times are Temporal's, and the rest is measured: the clock of this process may be a day ahead.
    const afterAlarmMs = Math.max(0, info.currentAttemptScheduledTimestampMs - info.scheduledTimestampMs);
    const beganMs = performance.now();
    await withHeartbeats(async () => {
      await Promise.all(
        due.map(async (callback) => {
          const failure = await atMost(() => send(callback, stopped));
          // A stop says nothing about the target.
          if (stopped.aborted) return;
          count({ kind: callback.kind, result: failure?.kind ?? 'acknowledged' });
          if (!failure) delivered.push(callback);
          else {
            failed.push(failedBy(callback, failure));
            if (isGone(failure)) gone.push(callback.userId);
          }
        }),
      );
      // The wait before the next attempt counts from this one, which may have come long after its alarm.
      const sinceAlarmMs = Math.round(afterAlarmMs + performance.now() - beganMs);
      await recordDelivered(db, delivered);
      await recordFailed(db, failed, nowMs + sinceAlarmMs);
      await endGone(db, gone);
    });
    const dropped = failed.filter(({ waitMs }) => waitMs === undefined);
    for (const callback of failed)
      if (callback.waitMs !== undefined) log.warn(fieldsOf(callback), 'account callback failed');
    for (const callback of dropped) {
      metrics.callbackDropped({ kind: callback.kind });
      log.error(
        { event: 'callbacks.dropped', ...fieldsOf(callback) },
        'account callback dropped after its last retry, or because its user is gone; it can be replayed',
      );
    }
    stopped.throwIfAborted();
    return { delivered: delivered.length, failed: failed.length, dropped: dropped.length };
  }

  function failedBy(callback: DueCallback, failure: DeliveryFailure): FailedCallback {
    const isGivenUp = callback.attempts >= retryLadderMs.length || isGone(failure);
    const waitMs = isGivenUp ? undefined : retryWaitMs(failure, callback.attempts + 1, retryLadderMs);
    return { ...callback, reason: failure.message, outline: withoutOwnWords(failure), waitMs };
  }
}

type CountAttempt = AccountCallbackMetrics['callbackEmission'];

/** How many callbacks were delivered, failed, and were given up with that. */
type Outcome = Record<'delivered' | 'failed' | 'dropped', number>;

const fieldsOf = ({ kind, userId, periodStartMs, attempts, outline }: FailedCallback) => ({
  kind,
  // It may be an address.
  user_id: searchableKey(userId),
  period_start_ms: periodStartMs,
  attempts: attempts + 1,
  reason: outline,
});

// --- Counters and gauges --------------------------------------------------------------------------------------------

interface AttemptAttributes {
  kind: CallbackKind;
  result: 'acknowledged' | DeliveryFailure['kind'];
}

/** Recording functions, one per counter. */
export type AccountCallbackMetrics = ReturnType<typeof createAccountCallbackMetrics>;

export function createAccountCallbackMetrics(meter: Meter) {
  const { counter, adder } = countersOf(meter);
  return {
    callbackEmission: counter<AttemptAttributes>(
      'notification.callbacks.emissions',
      'First attempts to deliver a callback about an account value',
    ),
    callbackRetry: counter<AttemptAttributes>(
      'notification.callbacks.retries',
      'Further attempts to deliver a callback, replays included',
    ),
    callbackDropped: counter<{ kind: CallbackKind }>(
      'notification.callbacks.dropped',
      'Callbacks that were given up after their last retry',
    ),
    callbackInput: counter<{ kind: CallbackInput['kind'] }>(
      'notification.callbacks.inputs',
      'Entries taken from the stream of extremes',
    ),
    callbackInputLate: adder(
      'notification.callbacks.late_inputs',
      'Entries about periods that were emitted before; they are noted with the callback and not delivered',
    ),
    callbackInputUntracked: adder(
      'notification.callbacks.untracked_inputs',
      'Entries about periods in which their users take no part; they are not delivered',
    ),
    callbackInputMalformed: counter<{ failure_code: MalformedInputCode }>(
      'notification.callbacks.malformed_inputs',
      'Stream entries that break the contract of the stream of extremes',
    ),
  };
}

export const callbackGauges = (db: Pool): GaugeRead[] => [
  gaugesOfRows(
    db,
    {
      'notification.callbacks.behind_ms': {
        unit: 'ms',
        description: 'How long the oldest hourly callback of a shard has waited for its first attempt',
      },
      'notification.callbacks.overdue_trackings': {
        description:
          'Users of a shard whose last day has not come in time; its daily callbacks wait for them',
      },
    },
    READ_SHARDS,
  ),
];

const READ_SHARDS = {
  name: 'read_callback_shards',
  text: `
    SELECT shard.number AS shard,
           coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - created_at) * 1000)
                       FROM notification.callback_snapshots AS snapshot
                      WHERE snapshot.shard = shard.number AND kind = 'hourly' AND status = 'pending'
                      ORDER BY period_start_ms, position
                      LIMIT 1), 0)::float8 AS "notification.callbacks.behind_ms",
           (SELECT count(*)::int
              FROM (SELECT FROM notification.callback_trackings AS tracking
                     WHERE tracking.shard = shard.number AND ${IS_OVERDUE}
                     LIMIT ${COUNTED_AT_MOST}) AS late) AS "notification.callbacks.overdue_trackings"
      FROM notification.callback_settings
     CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)`,
};
