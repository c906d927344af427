/** How far the routes of notifications have come, and waiting for their end. */
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
  /** Notifications that ended without a record: malformed, refused, cancelled, duplicate or conflict. */
  withoutRecord: number;
}

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
  let settlement!: Settlement;
  await waitUntil(async () => {
    settlement = await settlementOf(resources, notificationIds);
    options.onProgress?.(settlement);
    return settlement.settled >= settlement.notifications ? settlement : undefined;
  }, options);
  return settlement;
}

async function settlementOf(
  { db }: OperatorResources,
  notificationIds: readonly string[],
): Promise<Settlement> {
  const { rows } = await db.query<SettlementRow>(SETTLEMENT, [notificationIds]);
  const sum = (name: 'open' | 'published' | 'skipped' | 'deadLettered') =>
    rows.reduce((total, row) => total + row[name], 0);
  const withoutRecord = rows.filter(({ kind }) => kind === 'without record').length;
  return {
    settled: withoutRecord + rows.filter(({ kind, open }) => kind === 'record' && open === 0).length,
    notifications: rows.length,
    open: sum('open'),
    published: sum('published'),
    skipped: sum('skipped'),
    deadLettered: sum('deadLettered'),
    withoutRecord,
  };
}

interface SettlementRow {
  /** `undecided`: it has no row yet, or an open one. */
  kind: 'record' | 'without record' | 'undecided';
  open: number;
  published: number;
  skipped: number;
  deadLettered: number;
}

const SETTLEMENT = `
  SELECT CASE WHEN record.notification_id IS NOT NULL THEN 'record'
              WHEN stream_entry_id IS NOT NULL OR intent.status <> 'open' THEN 'without record'
              ELSE 'undecided' END AS kind,
         count(*) FILTER (WHERE routes.status IN ('pending', 'failed'))::int AS open,
         count(*) FILTER (WHERE routes.status = 'published')::int AS published,
         count(*) FILTER (WHERE routes.status = 'skipped')::int AS skipped,
         count(*) FILTER (WHERE routes.status = 'dead_letter')::int AS "deadLettered"
    FROM unnest($1::text[]) AS wanted (id)
    LEFT JOIN notification.records AS record ON record.notification_id = wanted.id
    LEFT JOIN notification.malformed_intents ON stream_entry_id = wanted.id
    LEFT JOIN notification.intents AS intent ON intent.notification_id = wanted.id
    LEFT JOIN notification.routes ON routes.notification_id = wanted.id
   GROUP BY wanted.id, 1`;
