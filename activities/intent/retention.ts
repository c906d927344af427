/**
 * Which rows of intents are deleted, and when. A record may have tens of thousands of routes, so they go before it. A
 * record with an open route stays with all of its routes: a paused channel, for instance, may still deliver it.
 */
import type { Expiring, Kept } from '../retention.ts';

interface IntentRetention {
  recordRetentionMs: number;
  malformedIntentRetentionMs: number;
  /** Of events that were relayed. */
  outcomeRetentionMs: number;
  /** How long at least an idempotency key stays reserved, ms. */
  idempotencyTtlMs: number;
}

/** @returns the tables in the order in which they are deleted from. */
export function intentTables(settings: IntentRetention): Kept[] {
  const { recordRetentionMs, malformedIntentRetentionMs, outcomeRetentionMs, idempotencyTtlMs } = settings;
  // Younger records have their key reserved: reading each of them would find nothing to delete.
  const recordAgeMs = Math.max(recordRetentionMs, idempotencyTtlMs);
  return [
    { ...ROUTES, keepMs: recordAgeMs },
    { ...RECORDS, keepMs: recordAgeMs },
    { ...DECIDED, keepMs: recordRetentionMs },
    { ...THROTTLES, keepMs: 0 },
    { ...MALFORMED, keepMs: malformedIntentRetentionMs },
    { ...RELAYED, keepMs: outcomeRetentionMs },
    { ...UNRELAYED, keepMs: recordRetentionMs },
  ];
}

/** Their dead letters and replays go with them. A route that was opened again meanwhile stays, and its record with it. */
const ROUTES: Expiring = {
  name: 'routes',
  table: 'notification.routes',
  since: 'accepted_at',
  condition: 'idempotency_expires_at < now()',
  keptBy: [
    `FROM notification.routes AS route
      WHERE route.notification_id = records.notification_id AND route.next_attempt_at IS NOT NULL`,
  ],
  parent: {
    table: 'notification.records',
    key: 'notification_id',
    partCondition: 'part.next_attempt_at IS NULL',
  },
};

const RECORDS: Expiring = {
  name: 'records',
  table: 'notification.records',
  since: 'accepted_at',
  condition: 'idempotency_expires_at < now()',
  keptBy: ['FROM notification.routes WHERE routes.notification_id = records.notification_id'],
};

/** After their records. */
const DECIDED: Expiring = {
  name: 'intents',
  table: 'notification.intents',
  since: 'updated_at',
  condition: "status <> 'open'",
  keptBy: ['FROM notification.records WHERE records.notification_id = intents.notification_id'],
};

/** What has left the window of every throttle. */
const THROTTLES: Expiring = { name: 'throttles', table: 'notification.throttles', since: 'ends_at' };

const MALFORMED: Expiring = {
  name: 'malformed_intents',
  table: 'notification.malformed_intents',
  since: 'recorded_at',
};

const RELAYED: Expiring = {
  name: 'relayed_outcomes',
  table: 'notification.outcomes',
  since: 'relayed_at',
  condition: 'relayed_at IS NOT NULL',
};

/** Outcomes that are not relayed any more, since outcomes were switched off. */
const UNRELAYED: Expiring = {
  name: 'unrelayed_outcomes',
  table: 'notification.outcomes',
  since: 'written_at',
  condition: 'relayed_at IS NULL',
  walk: { key: 'outcome_id', type: 'bigint', from: '-1', among: 'relayed_at IS NULL' },
};
