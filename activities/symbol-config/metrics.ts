/** The counters and gauges of symbol configuration. */
import type { Meter } from '@opentelemetry/api';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { TargetKind } from '../../api/symbol-config/push.ts';
import type { PushScope } from '../../workflows/symbol-config/contract.ts';
import { countersOf, gaugesOfRows, observeReads } from '../metrics.ts';

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

/** Registers the gauges (activities/metrics.ts). */
export const observeSymbolTargets = (meter: Meter, { db, log }: { db: Pool; log: Logger }): (() => void) =>
  observeReads(meter, log, [
    gaugesOfRows(
      db,
      'symbol targets',
      {
        'notification.symbols.targets_behind': {
          description: 'Targets without the newest list, or whose last push failed, by place',
        },
        'notification.symbols.oldest_failing_age_ms': {
          description: 'For how long every push to some target has failed, by place; 0 where none fails',
          unit: 'ms',
        },
      },
      READ_BEHIND,
    ),
  ]);

const READ_BEHIND = {
  name: 'read_symbol_targets_behind',
  text: `
    SELECT geo,
           count(*) FILTER (WHERE consecutive_failures > 0 OR acknowledged_version IS DISTINCT FROM newest.version)::float8
             AS "notification.symbols.targets_behind",
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(failing_since)) * 1000), 0)::float8
             AS "notification.symbols.oldest_failing_age_ms"
      FROM notification.symbol_targets,
           (SELECT max(version) AS version FROM notification.symbol_snapshots) AS newest
     GROUP BY geo`,
};
