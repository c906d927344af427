/** What becomes of outcomes and tallies that have done their work, and of ends that nobody told. */
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import { query } from '../postgres.ts';
import { MAX_RUN_MS, deletionOf, inBatches } from '../retention.ts';
import { run } from '../transactions.ts';
import type { Outcomes } from './outcomes.ts';
import { END_LEFT_TALLIES } from './outcomes.ts';

/** A tally that is so old and has no open route was not told of by whoever closed the last one, ms. */
const LEFT_AFTER_MS = 600_000;
/** Tallies that are looked at together. */
const TALLIES_TOGETHER = 200;

interface Upkeep {
  db: Pool;
  log: Logger;
  outcomes: Outcomes;
}

/**
 * Ends what nobody has told the end of: the last route was closed by a process without outcomes, or by a release before
 * them. Takes away tallies that are left over.
 *
 * @throws ApplicationFailure of PostgreSQL, and the reason of a stop.
 */
export async function endLeftTallies({ db, log, outcomes }: Upkeep): Promise<void> {
  if (!outcomes.isOn) return;
  let after = '';
  let ended = 0;
  await inBatches(TALLIES_TOGETHER, MAX_RUN_MS, async (limit) => {
    const page = await query<{ notification_id: string; is_left: boolean; is_done: boolean }>(
      db,
      LIST_TALLIES,
      [after, LEFT_AFTER_MS, limit],
    );
    const left = page.filter(({ is_left }) => is_left).map(({ notification_id }) => notification_id);
    const done = page.filter(({ is_done }) => is_done).map(({ notification_id }) => notification_id);
    if (left.length > 0) await outcomes.run(db, END_LEFT_TALLIES, [left]);
    if (done.length > 0) await query(db, FORGET_TALLIES, [done]);
    ended += left.length;
    after = page.at(-1)?.notification_id ?? after;
    return page.length >= limit;
  });
  if (ended > 0) log.warn({ notifications: ended }, 'outcomes were told that nobody had told');
}

/** Takes away tallies of intents whose end is relayed, in the transaction that marks it so. */
export async function forgetTallies(client: PoolClient, notificationIds: readonly string[]): Promise<void> {
  if (notificationIds.length > 0) await run(client, FORGET_TALLIES, [notificationIds]);
}

/** Of those whose end is told. A cancellation before acceptance stays for a while, in case that it is being accepted. $1 notifications. */
const FORGET_TALLIES = {
  name: 'forget_outcome_tallies',
  text: `
    DELETE FROM notification.outcome_tallies
     WHERE notification_id = ANY ($1::text[]) AND open < 1
       AND (routes > 0 OR counted_at < now() - ${LEFT_AFTER_MS} * interval '1 millisecond')`,
};

/** $1 the last notification of the page before, $2 age in ms, $3 rows at most. */
const LIST_TALLIES = {
  name: 'list_left_outcome_tallies',
  text: `
    SELECT notification_id, is_old AND open < 1 OR NOT has_record AS is_done,
           is_old AND open > 0 AND has_record
             AND NOT EXISTS (SELECT FROM notification.routes
                              WHERE routes.notification_id = tally.notification_id AND next_attempt_at IS NOT NULL) AS is_left
      FROM (SELECT notification_id, open, counted_at < now() - $2::bigint * interval '1 millisecond' AS is_old
              FROM notification.outcome_tallies
             WHERE notification_id > $1
             ORDER BY notification_id
             LIMIT $3) AS tally
     CROSS JOIN LATERAL (
       SELECT EXISTS (SELECT FROM notification.records
                       WHERE records.notification_id = tally.notification_id) OR NOT is_old AS has_record
     ) AS of_tally
     ORDER BY notification_id`,
};

/** Relayed ones. */
export const DELETE_RELAYED = deletionOf({
  name: 'delete_relayed_outcomes',
  table: 'notification.outcomes',
  key: 'outcome_id',
  since: 'relayed_at',
  condition: 'relayed_at IS NOT NULL',
});

/** Those that nobody relays any more, since outcomes were switched off. $1 age in ms, $2 rows at most. */
export const DELETE_UNRELAYED = {
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
