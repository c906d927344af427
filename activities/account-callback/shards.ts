/** The shards that users are spread over. As of the history shards of Temporal, there are as many as at the beginning. */
import type { Pool } from 'pg';
import { query } from '../postgres.ts';

/** @returns how many shards there are: as many as asked for while there are no users, and as before afterwards. */
export async function fixShards(db: Pool, shards: number): Promise<number> {
  const [settings] = await query<{ shards: number }>(db, FIX_SHARDS, [shards]);
  return settings!.shards;
}

const FIX_SHARDS = {
  name: 'fix_callback_shards',
  text: `
    UPDATE notification.callback_settings
       SET shards = CASE WHEN (SELECT user_id FROM notification.callback_trackings ORDER BY user_id LIMIT 1) IS NULL
                          AND (SELECT user_id FROM notification.callback_snapshots
                                ORDER BY kind, user_id, period_start_ms LIMIT 1) IS NULL
                         THEN $1 ELSE shards END
    RETURNING shards`,
};
