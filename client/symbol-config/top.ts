/** Symbols at one glance: their targets are tried for ever, so nothing of them dies. */
import { SYMBOL_REGISTRY } from '../../workflows/symbol-config/contract.ts';
import type { KindLook } from '../look.ts';
import { WINDOW_BEGIN, ageMs, lookOf, readRates, readWaits } from '../look.ts';
import type { OperatorResources } from '../resources.ts';

/** Never throws: what could not be read is said. */
export function symbolLook({ db }: OperatorResources): Promise<KindLook> {
  return lookOf(
    ['rates', () => readRates(db, READ_SYMBOL_RATES)],
    ['targets behind', () => readWaits(db, READ_SYMBOL_TARGETS)],
  );
}

const READ_SYMBOL_RATES = `
  SELECT NULL AS arrived, count(*)::float8 AS done
    FROM notification.symbol_targets
   WHERE registry = '${SYMBOL_REGISTRY}' AND acknowledged_at > ${WINDOW_BEGIN}`;

const READ_SYMBOL_TARGETS = `
  SELECT 'targets in ' || geo AS what, count(*)::float8 AS count, ${ageMs('min(failing_since)')} AS "oldestMs"
    FROM notification.symbol_targets,
         (SELECT max(version) AS version
            FROM notification.symbol_snapshots
           WHERE registry = '${SYMBOL_REGISTRY}') AS newest
   WHERE registry = '${SYMBOL_REGISTRY}'
     AND (consecutive_failures > 0 OR acknowledged_version IS DISTINCT FROM newest.version)
   GROUP BY geo
   ORDER BY geo`;

export const STATEMENTS = { READ_SYMBOL_RATES, READ_SYMBOL_TARGETS };
