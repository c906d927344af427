/** Which rows of account callbacks are deleted, and when. Callbacks that are still to be delivered stay. */
import type { Expiring, Kept } from '../retention.ts';

/** How long delivered hours are kept, ms. */
const HOURS_KEPT_MS = 72 * 3_600_000;

/** @returns the tables in the order in which they are deleted from. */
export const callbackTables = (settings: {
  recordRetentionMs: number;
  malformedIntentRetentionMs: number;
}): Kept[] => [
  { ...DEAD_LETTERS, keepMs: settings.recordRetentionMs },
  { ...HOURS, keepMs: HOURS_KEPT_MS },
  // Longer than hours: a day that its producer sends again is a repeat, and is not delivered again.
  { ...DAYS, keepMs: settings.recordRetentionMs },
  { ...DROPPED, keepMs: settings.recordRetentionMs },
  { ...TRACKINGS, keepMs: settings.recordRetentionMs },
  { ...MALFORMED, keepMs: settings.malformedIntentRetentionMs },
];

const rowsAbout = (table: string, of: string) =>
  `FROM ${table} AS other
      WHERE other.kind = ${of}.kind AND other.user_id = ${of}.user_id AND other.period_start_ms = ${of}.period_start_ms`;

const IS_RETRIED = rowsAbout('notification.failed_callbacks', 'callback_snapshots');
const HAS_DEAD_LETTER = rowsAbout('notification.callback_dead_letters', 'callback_snapshots');

/** A replay is about to settle a dead letter that is being replayed. */
const DEAD_LETTERS: Expiring = {
  name: 'callback_dead_letters',
  table: 'notification.callback_dead_letters',
  since: 'dropped_at',
  keptBy: [rowsAbout('notification.failed_callbacks', 'callback_dead_letters')],
};

const HOURS: Expiring = {
  name: 'hourly_callbacks',
  table: 'notification.callback_snapshots',
  since: 'settled_at',
  condition: "kind = 'hourly' AND status = 'delivered'",
  keptBy: [IS_RETRIED, HAS_DEAD_LETTER],
};

const DAYS: Expiring = {
  ...HOURS,
  name: 'daily_callbacks',
  condition: "kind = 'daily' AND status = 'delivered'",
};

/** After their dead letters. */
const DROPPED: Expiring = { ...HOURS, name: 'dropped_callbacks', condition: "status = 'dropped'" };

/** Users who take no part since then, and users who were never tracked. Their pending callbacks need no tracking. */
const TRACKINGS: Expiring = {
  name: 'callback_trackings',
  table: 'notification.callback_trackings',
  since: 'changed_at',
  condition: "(until_ms IS NOT NULL OR entry_id = '0-0')",
};

const MALFORMED: Expiring = {
  name: 'malformed_account_inputs',
  table: 'notification.malformed_account_inputs',
  since: 'recorded_at',
};
