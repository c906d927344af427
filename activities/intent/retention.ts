/**
 * Which rows of intents are deleted, and when. A record may have tens of thousands of routes, so they go before it. A
 * record with an open route stays with all of its routes: a paused channel, for instance, may still deliver it.
 */
import type { Kept } from '../retention.ts';

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
  const expired = {
    since: 'accepted_at',
    condition: 'idempotency_expires_at < now()',
    // Younger records have their key reserved: reading each of them would find nothing to delete.
    keepMs: Math.max(recordRetentionMs, idempotencyTtlMs),
  };
  return [
    // Their dead letters and replays go with them. A route that was opened again meanwhile stays, and its record with it.
    {
      ...{ ...expired, name: 'routes', table: 'notification.routes' },
      keptBy: [
        `FROM notification.routes AS route
          WHERE route.notification_id = records.notification_id AND route.next_attempt_at IS NOT NULL`,
      ],
      parent: {
        table: 'notification.records',
        key: 'notification_id',
        partCondition: 'part.next_attempt_at IS NULL',
      },
    },
    {
      ...{ ...expired, name: 'records', table: 'notification.records' },
      keptBy: ['FROM notification.routes WHERE routes.notification_id = records.notification_id'],
    },
    // After their records.
    {
      ...{ name: 'intents', table: 'notification.intents', since: 'updated_at', keepMs: recordRetentionMs },
      condition: "status <> 'open'",
      keptBy: ['FROM notification.records WHERE records.notification_id = intents.notification_id'],
    },
    // What has left the window of every throttle.
    { name: 'throttles', table: 'notification.throttles', since: 'ends_at', keepMs: 0 },
    {
      ...{ name: 'malformed_intents', table: 'notification.malformed_intents', since: 'recorded_at' },
      keepMs: malformedIntentRetentionMs,
    },
    {
      ...{ name: 'relayed_outcomes', table: 'notification.outcomes', since: 'relayed_at' },
      condition: 'relayed_at IS NOT NULL',
      keepMs: outcomeRetentionMs,
    },
    // Outcomes that are not relayed any more, since outcomes were switched off.
    {
      ...{ name: 'unrelayed_outcomes', table: 'notification.outcomes', since: 'written_at' },
      condition: 'relayed_at IS NULL',
      keepMs: recordRetentionMs,
    },
  ];
}
