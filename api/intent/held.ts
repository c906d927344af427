/** How the row of a channel or a producer is changed, by operators' programs and by the workflow that steers it. */

/**
 * Holds a channel or producer, or lets it go, and writes down who asked, unless the row says the same already. $1 channel or
 * producer, $2 whether it is held, $3 reason or null, $4 who asks, $5 waiting routes to let go per second, or null.
 *
 * @param returning SQL of what the changed row is to tell.
 */
export const setHeldSql = (returning: string): string => `
    WITH noted AS (
      INSERT INTO notification.operator_actions (action, target, requested_by, detail)
      SELECT CASE WHEN $1 LIKE 'producer:%' THEN 'producers' ELSE 'channels' END
               || CASE WHEN $2 THEN ' pause' ELSE ' resume' END,
             regexp_replace($1, '^producer:', ''), $4, $3
       WHERE NOT EXISTS (
             SELECT FROM notification.channels
              WHERE channel = $1 AND is_paused = $2 AND changed_by = $4 AND reason IS NOT DISTINCT FROM $3)
    )
    INSERT INTO notification.channels (channel, is_paused, reason, changed_by, changed_at, drain_rate)
    VALUES ($1::text, $2::boolean, $3::text, $4::text, clock_timestamp(), $5::double precision)
    ON CONFLICT (channel) DO UPDATE
       SET is_paused = excluded.is_paused, reason = excluded.reason, changed_by = excluded.changed_by,
           changed_at = excluded.changed_at, drain_rate = excluded.drain_rate
    RETURNING ${returning}`;
