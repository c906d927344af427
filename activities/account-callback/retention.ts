/** Which rows of account callbacks are deleted, and when. Callbacks that are still to be delivered stay. */
import type { Kept, RetentionTimes } from '../retention.ts';

/** How long delivered hours are kept, ms. */
const HOURS_KEPT_MS = 72 * 3_600_000;

const rowsAbout = (table: string, of: string) =>
  `FROM notification.${table} AS other
      WHERE other.kind = ${of}.kind AND other.user_id = ${of}.user_id AND other.period_start_ms = ${of}.period_start_ms`;

const SETTLED = {
  table: 'notification.callback_snapshots',
  since: 'settled_at',
  keptBy: [
    rowsAbout('failed_callbacks', 'callback_snapshots'),
    rowsAbout('callback_dead_letters', 'callback_snapshots'),
  ],
};

/** @returns the tables in the order in which they are deleted from. */
export const callbackTables = ({ recordRetentionMs, malformedIntentRetentionMs }: RetentionTimes): Kept[] => [
  {
    name: 'callback_dead_letters',
    table: 'notification.callback_dead_letters',
    since: 'dropped_at',
    // A replay is about to settle a dead letter that is being replayed.
    keptBy: [rowsAbout('failed_callbacks', 'callback_dead_letters')],
    keepMs: recordRetentionMs,
  },
  {
    ...SETTLED,
    name: 'hourly_callbacks',
    condition: "kind = 'hourly' AND status = 'delivered'",
    keepMs: HOURS_KEPT_MS,
  },
  {
    ...SETTLED,
    name: 'daily_callbacks',
    condition: "kind = 'daily' AND status = 'delivered'",
    // Longer than hours: a day that its producer sends again is a repeat, and is not delivered again.
    keepMs: recordRetentionMs,
  },
  // After their dead letters.
  { ...SETTLED, name: 'dropped_callbacks', condition: "status = 'dropped'", keepMs: recordRetentionMs },
  {
    // Users who take no part since then, and users who were never tracked. Their pending callbacks need no tracking.
    name: 'callback_trackings',
    table: 'notification.callback_trackings',
    since: 'changed_at',
    condition: "(until_ms IS NOT NULL OR entry_id = '0-0')",
    walk: { key: 'user_id', type: 'text', from: '' },
    keepMs: recordRetentionMs,
  },
  {
    name: 'malformed_account_inputs',
    table: 'notification.malformed_account_inputs',
    since: 'recorded_at',
    keepMs: malformedIntentRetentionMs,
  },
];
