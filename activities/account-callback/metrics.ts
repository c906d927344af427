/** The counters of callbacks about account values. */
import type { Meter } from '@opentelemetry/api';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackInput, MalformedInputCode } from '../../api/account-callback/input.ts';
import { countersOf } from '../counters.ts';

interface AttemptAttributes {
  kind: CallbackKind;
  result: 'acknowledged' | 'refused' | 'timed_out' | 'failed';
}

/** Recording functions, one per counter. */
export type AccountCallbackMetrics = ReturnType<typeof createAccountCallbackMetrics>;

export function createAccountCallbackMetrics(meter: Meter) {
  const { counter } = countersOf(meter);
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
    callbackInputMalformed: counter<{ failure_code: MalformedInputCode }>(
      'notification.callbacks.malformed_inputs',
      'Stream entries that are neither prices nor positions',
    ),
  };
}
