/**
 * Which records and malformed intents are old enough to be deleted. Owns the SQL of their end.
 *
 * A record may have tens of thousands of routes, so they are deleted first and in batches of their own, and the record
 * when it has none left. A record with an open route stays: a paused channel, for instance, may still deliver it.
 */
import { query } from '../postgres.ts';
import { IS_ENDED_TALLY } from './outcome-relay.ts';
import type { RetentionResources } from '../retention.ts';
import { MAX_RUN_MS, deleteOlderThan, deletionOf, inBatches } from '../retention.ts';

/** An intent that waits is tried every half minute: one that was not for so long was terminated. */
const ABANDONED_AFTER_MS = 7 * 86_400_000;

/** Records that are looked at together. */
const PAGE_SIZE = 100;
/** Routes of one statement: never one long lock. */
const ROUTES_PER_STATEMENT = 5_000;

/** Tallies that are looked at together. */
const TALLIES_TOGETHER = 200;

interface IntentRetentionResources extends RetentionResources {
  retention: RetentionResources['retention'] & {
    /** Of events that were relayed. */
    outcomeRetentionMs: number;
  };
  intent: {
    /** How long at least an idempotency key stays reserved, ms. */
    idempotencyTtlMs: number;
  };
}

export type IntentRetentionActivities = ReturnType<typeof createIntentRetentionActivities>;

export function createIntentRetentionActivities(resources: IntentRetentionResources) {
  const { db, log, intent } = resources;
  const { recordRetentionMs, malformedIntentRetentionMs, outcomeRetentionMs } = resources.retention;
  // Younger ones have their key reserved: looking at each of them would find nothing to delete.
  const recordAgeMs = Math.max(recordRetentionMs, intent.idempotencyTtlMs);

  return {
    /**
     * Removes records past their retention with their routes and dead letters, unless their key is still reserved or a
     * route is open; and what is known about intents without a record.
     *
     * @returns how many records.
     */
    async deleteExpiredRecords(): Promise<number> {
      await deleteOlderThan(recordRetentionMs, DELETE_DUPLICATES, resources);
      await deleteOlderThan(recordRetentionMs, DELETE_CANCELLED, resources);
      await deleteOlderThan(ABANDONED_AFTER_MS, DELETE_ABANDONED, resources);
      await deleteOlderThan(outcomeRetentionMs, DELETE_RELAYED, resources);
      await deleteOlderThan(recordRetentionMs, DELETE_UNRELAYED, resources);
      await deleteEndedTallies();
      const endAt = performance.now() + MAX_RUN_MS;
      const leftMs = () => Math.max(0, endAt - performance.now());
      let deleted = 0;
      let open = 0;
      let after: [at: string, id: string] = ['-infinity', ''];
      await inBatches(PAGE_SIZE, MAX_RUN_MS, async (limit) => {
        const page = await query<ExpiredRecord>(db, LIST_EXPIRED, [recordAgeMs, ...after, limit]);
        const doomed = page.filter(({ is_reserved, is_open }) => !is_reserved && !is_open);
        const ids = doomed.map(({ notification_id }) => notification_id);
        if (ids.length > 0) {
          const isDone = await inBatches(ROUTES_PER_STATEMENT, leftMs(), async (routes) => {
            const [row] = await query<{ deleted: number }>(db, DELETE_ROUTES, [ids, routes]);
            return row!.deleted >= routes;
          });
          if (!isDone) return false;
          const [row] = await query<{ deleted: number }>(db, DELETE_RECORDS, [ids]);
          deleted += row!.deleted;
        }
        open += page.filter(({ is_open }) => is_open).length;
        const last = page.at(-1);
        if (last) after = [last.accepted_at, last.notification_id];
        return page.length >= limit;
      });
      if (deleted > 0) log.info({ deleted }, 'expired records deleted');
      if (open > 0) log.warn({ records: open }, 'expired records are kept, since they have open routes');
      return deleted;
    },

    deleteExpiredMalformedIntents: () =>
      deleteOlderThan(malformedIntentRetentionMs, DELETE_MALFORMED, resources),
  };

  /** Those that the relay has left: of intents that were cancelled before acceptance, and of ends that nobody relays. */
  async function deleteEndedTallies(): Promise<void> {
    let after = '';
    await inBatches(TALLIES_TOGETHER, MAX_RUN_MS, async (limit) => {
      const [page] = await query<{ last: string | null; count: number }>(db, DELETE_ENDED_TALLIES, [
        after,
        limit,
      ]);
      after = page?.last ?? after;
      return page!.count >= limit;
    });
  }
}

interface ExpiredRecord {
  notification_id: string;
  /** To the microsecond, for paging. */
  accepted_at: string;
  is_reserved: boolean;
  is_open: boolean;
}

/** $1 age in ms, $2 and $3 the last record of the page before, $4 records at most. */
const LIST_EXPIRED = {
  name: 'list_expired_records',
  text: `
    SELECT notification_id, accepted_at::text, idempotency_expires_at >= now() AS is_reserved,
           EXISTS (SELECT FROM notification.routes
                    WHERE routes.notification_id = record.notification_id AND next_attempt_at IS NOT NULL) AS is_open
      FROM notification.records AS record
     WHERE accepted_at < now() - $1::bigint * interval '1 millisecond'
       AND accepted_at >= $2::timestamptz AND (accepted_at, notification_id) > ($2::timestamptz, $3)
     ORDER BY record.accepted_at, notification_id
     LIMIT $4`,
};

/** One that was opened again meanwhile stays, and its record with it. $1 ids of records, $2 routes at most. */
const DELETE_ROUTES = {
  name: 'delete_expired_routes',
  text: `
    WITH expired AS (
      SELECT notification_id, route_id
        FROM notification.routes
       WHERE notification_id = ANY($1::text[]) AND next_attempt_at IS NULL
       LIMIT $2
         FOR UPDATE SKIP LOCKED
    ), deleted AS (
      DELETE FROM notification.routes AS old USING expired
       WHERE old.notification_id = expired.notification_id AND old.route_id = expired.route_id
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

const DELETE_RECORDS = {
  name: 'delete_expired_records',
  text: `
    WITH deleted AS (
      DELETE FROM notification.records AS record
       WHERE notification_id = ANY($1::text[])
         AND NOT EXISTS (SELECT FROM notification.routes WHERE routes.notification_id = record.notification_id)
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

const DELETE_MALFORMED = deletionOf({
  name: 'delete_expired_malformed_intents',
  table: 'notification.malformed_intents',
  key: 'stream_entry_id',
  since: 'recorded_at',
});

const DELETE_DUPLICATES = deletionOf({
  name: 'delete_expired_duplicates',
  table: 'notification.duplicates',
  key: 'notification_id',
  since: 'decided_at',
});

const DELETE_CANCELLED = deletionOf({
  name: 'delete_expired_cancelled_intents',
  table: 'notification.cancelled_intents',
  key: 'notification_id',
  since: 'cancelled_at',
});

const DELETE_ABANDONED = deletionOf({
  name: 'delete_abandoned_waiting_intents',
  table: 'notification.waiting_intents',
  key: 'notification_id',
  since: 'updated_at',
});

/** Relayed ones. */
const DELETE_RELAYED = deletionOf({
  name: 'delete_relayed_outcomes',
  table: 'notification.outcomes',
  key: 'outcome_id',
  since: 'relayed_at',
  condition: 'relayed_at IS NOT NULL',
});

/** Those that nobody relays any more, since outcomes were switched off. $1 age in ms, $2 rows at most. */
const DELETE_UNRELAYED = {
  name: 'delete_unrelayed_outcomes',
  text: `
    WITH expired AS (
      SELECT outcome_id
        FROM (SELECT outcome_id, written_at
                FROM notification.outcomes
               WHERE relayed_at IS NULL
               ORDER BY outcome_id
               LIMIT $2) AS oldest
       WHERE written_at < now() - $1::bigint * interval '1 millisecond'
    ), deleted AS (
      DELETE FROM notification.outcomes AS old USING expired WHERE old.outcome_id = expired.outcome_id
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};

/** $1 the last notification of the page before, $2 rows at most. */
const DELETE_ENDED_TALLIES = {
  name: 'delete_ended_outcome_tallies',
  text: `
    WITH page AS (
      SELECT notification_id, ${IS_ENDED_TALLY} AS is_ended
        FROM notification.outcome_tallies
       WHERE notification_id > $1
       ORDER BY notification_id
       LIMIT $2
    ), deleted AS (
      DELETE FROM notification.outcome_tallies AS old USING page
       WHERE old.notification_id = page.notification_id AND is_ended
    )
    SELECT max(notification_id) AS last, count(*)::int AS count FROM page`,
};
