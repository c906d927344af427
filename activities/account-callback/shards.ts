/** The shards that users are spread over: how many there are, and which of them a user has. */
import type { Pool } from 'pg';
import { query } from '../postgres.ts';

/** Rows that one statement looks at. */
const BATCH_SIZE = 1_000;

/**
 * Spreads the users over so many shards. Without a change there is nothing to do, and moving them is done in parts: one
 * that was cut off is done again by the next start. Callbacks of a shard that continues stay with it.
 *
 * @returns users that were moved.
 */
export async function assignShards(db: Pool, shards: number): Promise<number> {
  const [settings] = await query<{ users_placed: boolean }>(db, SET_SHARDS, [shards]);
  if (settings!.users_placed) return 0;
  let moved = 0;
  for (let after = ''; ;) {
    const [page] = await query<PageRow>(db, PLACE_USERS, [after, BATCH_SIZE]);
    moved += page!.moved;
    if (page!.last_user === null) break;
    after = page!.last_user;
  }
  await query(db, SET_PLACED, [shards]);
  return moved;
}

/** Gives what is left in shards that are no more to those that are there. */
export async function adoptOrphans(db: Pool): Promise<void> {
  const [found] = await query<{ has_orphans: boolean }>(db, FIND_ORPHANS, []);
  if (!found!.has_orphans) return;
  for (const statement of ADOPTIONS) {
    for (let adopted = BATCH_SIZE; adopted === BATCH_SIZE;) {
      const [row] = await query<{ adopted: number }>(db, statement, [BATCH_SIZE]);
      adopted = row!.adopted;
    }
  }
}

interface PageRow {
  moved: number;
  /** null: there are no more. */
  last_user: string | null;
}

/** $1 how many there are to be. Users have their shards by it from now on. */
const SET_SHARDS = {
  name: 'set_callback_shards',
  text: `
    UPDATE notification.callback_settings SET shards = $1, users_placed = users_placed AND shards = $1
    RETURNING users_placed`,
};

/** $1 how many there are. Another process may have set another number meanwhile, and moves them itself. */
const SET_PLACED = {
  name: 'set_callback_users_placed',
  text: 'UPDATE notification.callback_settings SET users_placed = true WHERE shards = $1',
};

/** $1 the last user of the page before, $2 users at most. */
const PLACE_USERS = {
  name: 'place_callback_users',
  text: `
    WITH page AS MATERIALIZED (
      SELECT user_id, shard, notification.callback_shard(user_id) AS own
        FROM notification.callback_trackings
       WHERE user_id > $1
       ORDER BY user_id
       LIMIT $2
    ), locked AS (
      SELECT tracking.user_id, own
        FROM notification.callback_trackings AS tracking
        JOIN page ON page.user_id = tracking.user_id AND tracking.shard <> own
       ORDER BY tracking.user_id
         FOR UPDATE OF tracking
    ), moved AS (
      UPDATE notification.callback_trackings AS tracking SET shard = own
        FROM locked
       WHERE tracking.user_id = locked.user_id
      RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM moved) AS moved, max(user_id) AS last_user FROM page`,
};

/** The greatest shard of each table is one look into an index; for whether there is one, tables may be read. */
const FIND_ORPHANS = {
  name: 'find_callback_orphans',
  text: `
    SELECT coalesce(greatest((SELECT max(shard) FROM notification.callback_trackings),
                             (SELECT max(shard) FROM notification.callback_snapshots WHERE status = 'pending'),
                             (SELECT max(shard) FROM notification.failed_callbacks)) >= shards, false) AS has_orphans
      FROM notification.callback_settings`,
};

/** $1 rows at most. */
const adoption = (table: string, key: readonly string[], condition = 'true') => ({
  name: `adopt_${table}`,
  text: `
    WITH orphans AS (
      SELECT ${key.join(', ')}
        FROM notification.${table}
       WHERE shard >= (SELECT shards FROM notification.callback_settings) AND ${condition}
       ORDER BY shard
       LIMIT $1
         FOR UPDATE SKIP LOCKED
    ), adopted AS (
      UPDATE notification.${table} AS own SET shard = notification.callback_shard(own.user_id)
        FROM orphans
       WHERE ${key.map((column) => `own.${column} = orphans.${column}`).join(' AND ')}
      RETURNING 1
    )
    SELECT count(*)::int AS adopted FROM adopted`,
});

const CALLBACK_KEY = ['kind', 'user_id', 'period_start_ms'];
const ADOPTIONS = [
  adoption('callback_trackings', ['user_id']),
  adoption('callback_snapshots', CALLBACK_KEY, "status = 'pending'"),
  adoption('failed_callbacks', CALLBACK_KEY),
];
