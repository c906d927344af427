/** The counters and gauges of symbol configuration. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { TargetKind } from '../../api/symbol-config/push.ts';
import type { PushScope } from '../../workflows/symbol-config/contract.ts';
import { countersOf } from '../counters.ts';
import { gaugeRead, observeReads } from '../gauges.ts';
import { loadBehind } from './targets.ts';

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

const BEHIND = 'notification.symbols.targets_behind';
const FAILING = 'notification.symbols.oldest_failing_age_ms';

/**
 * Registers the gauges (activities/gauges.ts).
 *
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeSymbolTargets(
  meter: Meter,
  { db, log, registry }: { db: Pool; log: Logger; registry: string },
): () => void {
  const targets = gaugeRead({
    what: 'symbol targets',
    gauges: {
      [BEHIND]: {
        description: 'Targets without the newest list, or whose last push failed, by place',
      },
      [FAILING]: {
        description: 'For how long every push to some target has failed, by place; 0 where none fails',
        unit: 'ms',
      },
    },
    async read() {
      const places = await loadBehind(db, registry);
      return places.flatMap(({ geo, behind, failing_ms: failingMs }) => [
        { gauge: BEHIND, value: behind, attributes: { geo } },
        { gauge: FAILING, value: failingMs, attributes: { geo } },
      ]);
    },
  });
  return observeReads(meter, log, [targets]);
}
