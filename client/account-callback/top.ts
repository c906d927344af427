/** Account callbacks at one glance. */
import { DAY_MS } from '../../workflows/account-callback/contract.ts';
import type { KindLook } from '../look.ts';
import { COUNTED_AT_MOST, READ_AT_MOST, ageMs, lookOf, readDead, readWaits } from '../look.ts';
import type { OperatorResources } from '../resources.ts';

/** Never throws: what could not be read is said. */
export function callbackLook({ db }: OperatorResources): Promise<KindLook> {
  return lookOf(
    ['waiting callbacks', () => readWaits(db, READ_CALLBACKS)],
    ['failed callbacks', () => readWaits(db, READ_CALLBACK_RETRIES)],
    ['trackings', () => readWaits(db, READ_CALLBACK_TRACKINGS)],
    ['dead letters', () => readDead(db, READ_CALLBACKS_DEAD)],
  );
}

const READ_CALLBACKS = `
  SELECT 'callbacks' AS what, count(*)::float8 AS count, ${ageMs('min(created_at)')} AS "oldestMs"
    FROM (SELECT created_at
            FROM notification.callback_snapshots
           WHERE status = 'pending'
           ORDER BY shard, kind, period_start_ms, position
           LIMIT ${READ_AT_MOST}) AS pending`;

const READ_CALLBACK_RETRIES = `
  SELECT 'callbacks to be repeated' AS what, count(*)::float8 AS count,
         ${ageMs('min(next_attempt_at)')} AS "oldestMs"
    FROM (SELECT next_attempt_at
            FROM notification.failed_callbacks
           ORDER BY shard, next_attempt_at
           LIMIT ${COUNTED_AT_MOST}) AS failed`;

/** How long ago the oldest day ended to whose end a tracking of a shard has not caught up. */
const READ_CALLBACK_TRACKINGS = `
  SELECT 'days that have ended' AS what, NULL AS count,
         ${ageMs(`to_timestamp((min(caught_up_date) - date '1970-01-01' + 2) * ${DAY_MS / 1000}.0)`)} AS "oldestMs"
    FROM notification.callback_settings
   CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
   CROSS JOIN LATERAL (
     SELECT caught_up_date
       FROM notification.callback_trackings
      WHERE callback_trackings.shard = shard.number AND is_waited_for
      ORDER BY caught_up_date
      LIMIT 1
   ) AS oldest`;

/** Of the newest, those that nobody has replayed. */
const READ_CALLBACKS_DEAD = `
  SELECT left(last_error, 80) AS failure, count(*)::float8 AS count
    FROM (SELECT last_error, replayed_at
            FROM notification.callback_dead_letters
           ORDER BY dropped_at DESC, kind, user_id, period_start_ms
           LIMIT ${READ_AT_MOST}) AS newest
   WHERE replayed_at IS NULL
   GROUP BY 1`;

export const STATEMENTS = {
  READ_CALLBACKS,
  READ_CALLBACK_RETRIES,
  READ_CALLBACK_TRACKINGS,
  READ_CALLBACKS_DEAD,
};
