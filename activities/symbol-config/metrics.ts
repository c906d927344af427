/** The counters of symbol configuration. */
import type { Meter } from '@opentelemetry/api';
import type { TargetKind } from '../../api/symbol-config/push.ts';
import type { PushScope } from '../../workflows/symbol-config/contract.ts';
import { countersOf } from '../counters.ts';

/** Recording functions, one per counter. */
export type SymbolConfigMetrics = ReturnType<typeof createSymbolConfigMetrics>;

export function createSymbolConfigMetrics(meter: Meter) {
  const { counter } = countersOf(meter);
  return {
    /** `geo` is one of those that the targets are configured with. */
    symbolPush: counter<{
      kind: TargetKind;
      geo: string;
      result: 'acknowledged' | 'refused' | 'timed_out' | 'failed';
    }>('notification.symbols.pushes', 'Pushes of symbol configuration to a target'),
    symbolRound: counter<{ scope: PushScope; result: 'complete' | 'incomplete' }>(
      'notification.symbols.rounds',
      'Rounds of pushes, complete when every target acknowledged',
    ),
    symbolListEmpty: counter<Record<never, never>>(
      'notification.symbols.empty_lists',
      'Times that no symbol was enabled, and nothing new was pushed',
    ),
  };
}
