/** What can be wrong with account callbacks: their inputs, shards that do not get on, and what was given up. */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { CheckGroup, Diagnosis } from '../checks.ts';
import { ok, warn } from '../checks.ts';
import { consumerGroup } from '../consumer-group.ts';
import { countOf, durationOf } from '../output.ts';

/** An hour is computed minutes after its end; a user for whom two are not says that a shard stands still, ms. */
const LATE_MS = 2 * 3_600_000;

export interface CallbackNeeds {
  redis: Redis;
  db: Pool;
  stream: string;
  group: string;
}

export const callbackChecks = (needs: CallbackNeeds): CheckGroup => [
  ['callbacks: consumer group', () => consumerGroup({ ...needs, role: 'account-callback' })],
  ['callbacks: shards', () => shards(needs.db)],
  ['callbacks: dead letters', () => deadLetters(needs.db)],
];

async function shards(db: Pool): Promise<Diagnosis> {
  const { rows } = await db.query<ShardRow>(LOAD_SHARDS);
  if (rows.length === 0) return ok('no user is tracked');
  const paused = rows.filter(({ is_paused: isPaused }) => isPaused).map(({ shard }) => shard);
  if (paused.length > 0) {
    return warn(
      `paused: ${paused.slice(0, 5).join(', ')}`,
      'see callbacks status for by whom and why, and callbacks resume',
    );
  }
  const late = rows.filter(({ caught_up_to_ms: to }) => Date.now() - to > LATE_MS);
  if (late.length === 0)
    return ok(`${countOf(rows.length, 'shard')} with users, all computed up to the last hours`);
  const named = late.map(({ shard, caught_up_to_ms: to }) => `${shard}: ${durationOf(Date.now() - to)}`);
  return warn(
    `${late.length} of ${countOf(rows.length, 'shard')} behind, ${named.slice(0, 5).join(', ')}`,
    'see callbacks status, and the workflow account-callback/<shard> in the Web UI',
  );
}

async function deadLetters(db: Pool): Promise<Diagnosis> {
  const { rows } = await db.query<{ dead: number; oldest: Date | null }>(COUNT_DEAD);
  const { dead, oldest } = rows[0]!;
  if (dead === 0) return ok('none');
  return warn(
    `${countOf(dead, 'callback')} given up, the oldest at ${oldest!.toISOString()}`,
    'see callbacks failed --dead, and callbacks replay',
  );
}

interface ShardRow {
  shard: number;
  caught_up_to_ms: number;
  is_paused: boolean;
}

/** One look into the index for each shard, however many users it has. */
const LOAD_SHARDS = `
  SELECT numbered.shard, slowest.caught_up_to_ms::float8 AS caught_up_to_ms,
         EXISTS (SELECT FROM notification.callback_pauses AS pause
                  WHERE pause.shard = numbered.shard AND is_paused) AS is_paused
    FROM notification.callback_settings, generate_series(0, shards - 1) AS numbered (shard),
         LATERAL (SELECT caught_up_to_ms
                    FROM notification.callback_trackings AS tracking
                   WHERE tracking.shard = numbered.shard
                   ORDER BY caught_up_to_ms
                   LIMIT 1) AS slowest`;

const COUNT_DEAD = `
  SELECT count(*)::int AS dead, min(dropped_at) AS oldest
    FROM notification.callback_dead_letters
   WHERE replayed_at IS NULL`;
