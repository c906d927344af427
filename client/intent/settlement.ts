/** How far the routes of notifications have come, and waiting for their end. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { statusOf } from '../live.ts';
import type { OperatorResources } from '../resources.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';

/** Totals over some notifications. */
export interface Settlement {
  /** Notifications whose routes are all settled, or which ended without any. */
  settled: number;
  notifications: number;
  /** Routes by status; `open` ones will be tried again. */
  open: number;
  published: number;
  skipped: number;
  deadLettered: number;
  /** Notifications that ended without a record: malformed, duplicate or conflict. */
  withoutRecord: number;
}

/** Workflows asked in one look for notifications that have no row; most get one within milliseconds. */
const ASKED_PER_LOOK = 10;

/**
 * Waits until nothing will happen to any of the notifications by itself.
 *
 * @returns how they stand, with `settled` below `notifications` when the time was up.
 */
export async function waitForSettlement(
  resources: OperatorResources,
  notificationIds: readonly string[],
  options: WaitOptions & { onProgress?: (settlement: Settlement) => void },
): Promise<Settlement> {
  const endedWithoutRow = new Set<string>();
  let settlement = await settlementOf(resources, notificationIds, endedWithoutRow);
  await waitUntil(async () => {
    settlement = await settlementOf(resources, notificationIds, endedWithoutRow);
    options.onProgress?.(settlement);
    return settlement.settled >= settlement.notifications ? settlement : undefined;
  }, options);
  return settlement;
}

async function settlementOf(
  resources: OperatorResources,
  notificationIds: readonly string[],
  endedWithoutRow: Set<string>,
): Promise<Settlement> {
  const { rows } = await resources.db.query<SettlementRow>(SETTLEMENT, [notificationIds]);
  const missing = rows.filter(({ kind, id }) => kind === 'missing' && !endedWithoutRow.has(id));
  await Promise.all(
    missing.slice(0, ASKED_PER_LOOK).map(async ({ id }) => {
      const status = await statusOf(resources, notificationWorkflowId(id));
      if (status !== undefined && status !== 'RUNNING') endedWithoutRow.add(id);
    }),
  );
  const sum = (name: 'open' | 'published' | 'skipped' | 'deadLettered') =>
    rows.reduce((total, row) => total + row[name], 0);
  const isSettled = ({ kind, id, open }: SettlementRow) =>
    kind === 'record' ? open === 0 : kind !== 'missing' || endedWithoutRow.has(id);
  return {
    settled: rows.filter(isSettled).length,
    notifications: rows.length,
    open: sum('open'),
    published: sum('published'),
    skipped: sum('skipped'),
    deadLettered: sum('deadLettered'),
    withoutRecord: rows.filter((row) => row.kind !== 'record' && isSettled(row)).length,
  };
}

interface SettlementRow {
  id: string;
  /** `missing`: not decided yet, or ended otherwise. */
  kind: 'record' | 'malformed' | 'duplicate' | 'cancelled' | 'missing';
  open: number;
  published: number;
  skipped: number;
  deadLettered: number;
}

const SETTLEMENT = `
  SELECT wanted.id,
         CASE WHEN record.notification_id IS NOT NULL THEN 'record'
              WHEN stream_entry_id IS NOT NULL THEN 'malformed'
              WHEN intent.status IN ('duplicate', 'cancelled') THEN intent.status
              ELSE 'missing' END AS kind,
         count(*) FILTER (WHERE routes.status IN ('pending', 'failed'))::int AS open,
         count(*) FILTER (WHERE routes.status = 'published')::int AS published,
         count(*) FILTER (WHERE routes.status = 'skipped')::int AS skipped,
         count(*) FILTER (WHERE routes.status = 'dead_letter')::int AS "deadLettered"
    FROM unnest($1::text[]) AS wanted (id)
    LEFT JOIN notification.records AS record ON record.notification_id = wanted.id
    LEFT JOIN notification.malformed_intents ON stream_entry_id = wanted.id
    LEFT JOIN notification.intents AS intent ON intent.notification_id = wanted.id
    LEFT JOIN notification.routes ON routes.notification_id = wanted.id
   GROUP BY 1, 2`;
