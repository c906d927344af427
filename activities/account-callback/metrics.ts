/** The counters and gauges of callbacks about account values. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import type { GaugeRead } from '../metrics.ts';
import { COUNTED_AT_MOST, countersOf, gaugesOfRows } from '../metrics.ts';
import { BEHIND_MS, IS_OVERDUE } from '../../workflows/account-callback/contract.ts';

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
    SELECT shard.number AS shard, ${BEHIND_MS} AS "notification.callbacks.behind_ms",
           (SELECT count(*)::int
              FROM (SELECT FROM notification.callback_trackings AS tracking
                     WHERE tracking.shard = shard.number AND ${IS_OVERDUE}
                     LIMIT ${COUNTED_AT_MOST}) AS late) AS "notification.callbacks.overdue_trackings"
      FROM notification.callback_settings
     CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)`,
};
