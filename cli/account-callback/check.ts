/** Checks of account callbacks: the consumer group, shards, trackings, and dead letters. */
import type { Pool } from 'pg';
import type { CheckGroup, ConsumerGroup, Diagnosis } from '../checks.ts';
import { consumerGroup, ok, rowCheck, warn } from '../checks.ts';
import { listOverdue } from '../../client/account-callback/callbacks.ts';
import { countOf, durationOf } from '../output.ts';

/** An hourly callback is tried minutes after its entry came; a longer wait says that a shard stands still, ms. */
const LATE_MS = 900_000;
/** Trackings that are named. */
const NAMED = 5;

export const callbackChecks = (db: Pool, group: ConsumerGroup): CheckGroup => [
  ['callbacks: consumer group', () => consumerGroup(group, 'account-callback')],
  rowCheck(db, 'callbacks: shards', LOAD_SHARDS, diagnosisOfShards),
  ['callbacks: trackings', () => trackings(db)],
  rowCheck(db, 'callbacks: dead letters', COUNT_DEAD, ([{ dead, oldest }]: [DeadRow]) =>
    dead === 0
      ? ok('none')
      : warn(
          `${countOf(dead, 'callback')} given up, the oldest at ${oldest!.toISOString()}`,
          'see callbacks failed --dead, and callbacks replay',
        ),
  ),
];

function diagnosisOfShards(rows: ShardRow[]): Diagnosis {
  const late = rows.filter(({ behind_ms: behindMs }) => behindMs > LATE_MS);
  if (late.length === 0) return ok(`${countOf(rows.length, 'shard')}, no hourly callback waits for long`);
  const named = late.map(({ shard, behind_ms: behindMs }) => `${shard}: ${durationOf(behindMs)}`);
  return warn(
    `${late.length} of ${countOf(rows.length, 'shard')} behind, ${named.slice(0, NAMED).join(', ')}`,
    'see callbacks status, and the workflow account-callback/<shard> in the Web UI',
  );
}

/** Names trackings that did not catch up in time: daily callbacks of their shards wait for them. */
async function trackings(db: Pool): Promise<Diagnosis> {
  const { items, hasMore } = await listOverdue(db, { limit: NAMED });
  if (items.length === 0) return ok('all have caught up');
  const named = items.map(({ userId, caughtUpDate }) => `${userId} (${caughtUpDate})`);
  return warn(
    `not caught up in time: ${named.join(', ')}${hasMore ? ' and others' : ''}`,
    'their producer must send the missing days; else see callbacks overdue, and callbacks release',
  );
}

interface ShardRow {
  shard: number;
  behind_ms: number;
}

/** One look into the index for each shard, however many callbacks it has. */
const LOAD_SHARDS = `
  SELECT numbered.shard,
         coalesce((SELECT extract(epoch FROM clock_timestamp() - created_at) * 1000
                     FROM notification.callback_snapshots AS snapshot
                    WHERE snapshot.shard = numbered.shard AND kind = 'hourly' AND status = 'pending'
                    ORDER BY period_start_ms, position
                    LIMIT 1), 0)::float8 AS behind_ms
    FROM notification.callback_settings, generate_series(0, shards - 1) AS numbered (shard)`;

interface DeadRow {
  dead: number;
  oldest: Date | null;
}

const COUNT_DEAD = `
  SELECT count(*)::int AS dead, min(dropped_at) AS oldest
    FROM notification.callback_dead_letters
   WHERE replayed_at IS NULL`;
