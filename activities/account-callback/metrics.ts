/** The counters and gauges of callbacks about account values. */
import type { BatchObservableResult, Meter, Observable } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import { countersOf } from '../counters.ts';
import { COUNTED_AT_MOST } from '../gauges.ts';
import { HOUR_MS, SET_ASIDE_SHARD } from '../../workflows/account-callback/contract.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';

interface AttemptAttributes {
  kind: CallbackKind;
  result: 'acknowledged' | 'refused' | 'timed_out' | 'failed';
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
    callbackInput: counter<{ type: CallbackInput['type'] }>(
      'notification.callbacks.inputs',
      'Prices and positions taken from the stream',
    ),
    callbackInputLate: adder(
      'notification.callbacks.late_inputs',
      'Prices and positions of hours that were computed before; they count from the next hour on',
    ),
    callbackInputMalformed: counter<{ failure_code: MalformedInputCode }>(
      'notification.callbacks.malformed_inputs',
      'Stream entries that are neither prices nor positions',
    ),
  };
}

/**
 * Registers the gauges, which are read from PostgreSQL at each export. Each process reports the same figures: take the
 * maximum over them, not the sum.
 *
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeAccountCallbacks(meter: Meter, { db, log }: { db: Pool; log: Logger }): () => void {
  const behind = meter.createObservableGauge('notification.callbacks.behind_ms', {
    unit: 'ms',
    description: 'How long ago the oldest hour ended that is not computed for all accounts of a shard',
  });
  const aside = meter.createObservableGauge('notification.callbacks.set_aside', {
    description: 'Accounts that are set aside because an hour of theirs could not be computed',
  });
  const paused = meter.createObservableGauge('notification.callbacks.paused', {
    description: '1 of a shard that an operator has paused: it computes and tells nothing',
  });
  const gauges: Observable[] = [behind, aside, paused];

  const observe = async (result: BatchObservableResult): Promise<void> => {
    try {
      const shards = await query<{ shard: number; caught_up_to_ms: string }>(db, READ_PROGRESS, []);
      const [counted] = await query<{ set_aside: number }>(db, COUNT_SET_ASIDE, []);
      const pauses = await query<{ shard: number; is_paused: boolean }>(db, READ_PAUSES, []);
      for (const { shard, is_paused: isPaused } of pauses)
        result.observe(paused, Number(isPaused), { shard });
      for (const { shard, caught_up_to_ms: caughtUpTo } of shards) {
        const endedMs = Date.now() - Number(caughtUpTo) - HOUR_MS;
        result.observe(behind, Math.max(0, endedMs), { shard });
      }
      result.observe(aside, counted!.set_aside);
    } catch (error) {
      // No value is better than a wrong one, and at most one line an export.
      log.warn({ gauge: 'callbacks', reason: reasonOf(error) }, 'gauge not read');
    }
  };
  meter.addBatchObservableCallback(observe, gauges);
  return () => meter.removeBatchObservableCallback(observe, gauges);
}

const READ_PROGRESS = {
  name: 'read_callback_progress',
  text: `
    SELECT shard.number AS shard, oldest.caught_up_to_ms
      FROM notification.callback_settings
     CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
     CROSS JOIN LATERAL (
       SELECT caught_up_to_ms FROM notification.callback_trackings
        WHERE shard = shard.number
        ORDER BY caught_up_to_ms
        LIMIT 1
     ) AS oldest`,
};

const READ_PAUSES = {
  name: 'read_callback_pauses',
  text: `
    SELECT shard.number AS shard, coalesce(is_paused, false) AS is_paused
      FROM notification.callback_settings
     CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
      LEFT JOIN notification.callback_pauses ON callback_pauses.shard = shard.number`,
};

const COUNT_SET_ASIDE = {
  name: 'count_accounts_set_aside',
  text: `
    SELECT count(*)::int AS set_aside
      FROM (SELECT FROM notification.callback_trackings
             WHERE shard = ${SET_ASIDE_SHARD}
             LIMIT ${COUNTED_AT_MOST}) AS aside`,
};
