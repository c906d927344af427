/**
 * Retention of old records among ten times as many, beside a load: how many of them go in a second, and what the load hears of it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { migrate } from '../migrations/migrate.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import { retentionScheduleId } from '../workflows/recovery-contract.ts';
import type { Bench, Part } from './environment.ts';
import { ROUTES_PER_RECIPIENT, serviceOf } from './intent.ts';
import { openProbe, paced } from './latency.ts';
import type { Finding, Measurement } from './measurement.ts';
import { quantile } from './statistics.ts';

/** What a large installation accepts in a second, and so what must go in one. */
const LEAST_RATE = 1_000;
/** Intents a second beside the deletion. */
const LOAD = 200;
const MOST_SLOWDOWN = 2;
/** Records in the table, of which one is old: the others are younger than their retention. */
const RECORDS_EACH = 10;
/** The deletion may take as many times as long as its target says. */
const MOST_TIMES = 5;
/** The load beside the deletion comes in parts of so long, until nothing old is left, s. */
const PART_S = 10;
/** Of one statement that fills tables: each is one transaction. */
const FILL_SIZE = 250_000;
const LOOK_INTERVAL_MS = 500;
const WAY = 'direct';
const ROW = 'scale.retention';

export const scaleRetention: Measurement = {
  name: ROW,
  meaning: `deletion of old records with their routes and intents, beside ${LOAD} intents a second`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.rate`,
      unit: '/s',
      target: { atLeast: LEAST_RATE },
      meaning: `records deleted, each with ${ROUTES_PER_RECIPIENT} routes and its intent`,
    },
    {
      name: `${ROW}.slowdown`,
      unit: '',
      target: { atMost: MOST_SLOWDOWN },
      meaning: 'p99 from XADD to push event beside the deletion, in the p99 without it',
    },
    { name: `${ROW}.p99`, unit: 'ms', meaning: 'from XADD to push event beside the deletion' },
  ],
  run: measure,
};

async function measure(bench: Bench): Promise<Finding[]> {
  const part = await bench.part(WAY);
  await migrate(part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!);
  const old = bench.sizes.oldRecords;
  const records = RECORDS_EACH * old;
  bench.report(`Writing ${records} records, of which ${old} are old`);
  for (let first = 0; first < records; first += FILL_SIZE) {
    await part.db.query(FILL, [first + 1, Math.min(first + FILL_SIZE, records), old]);
  }
  await part.db.query('VACUUM ANALYZE');
  await serviceOf(bench, WAY);
  bench.report(`${LOAD} intents a second, alone and beside the deletion`);
  await load(part, PART_S);
  const alone = await load(part, bench.sizes.loadSeconds);

  const deleting = deleteAll(part, (1_000 * MOST_TIMES * old) / LEAST_RATE);
  let isDone = false;
  const done = deleting.finally(() => (isDone = true));
  done.catch(() => undefined);
  const beside: number[] = [];
  while (!isDone) beside.push(...(await load(part, PART_S)));
  const tookMs = await deleting;

  const [p99Alone, p99] = [quantile(alone, 0.99), quantile(beside, 0.99)];
  return [
    { row: `${ROW}.rate`, value: (1_000 * old) / tookMs, details: { records, old, tookMs } },
    { row: `${ROW}.slowdown`, value: p99 / p99Alone, details: { p99, p99Alone } },
    { row: `${ROW}.p99`, value: p99 },
  ];
}

/** @returns ms from XADD to push event of each. */
async function load(part: Part, seconds: number): Promise<number[]> {
  const probe = await openProbe(part);
  try {
    await paced(LOAD, seconds, () => probe.publish());
    return await probe.latencies();
  } finally {
    probe.close();
  }
}

/**
 * As the schedule does it each hour. Rows of `intents` go last.
 *
 * @returns how long it took, ms.
 */
async function deleteAll({ client, db }: Part, limitMs: number): Promise<number> {
  const beganAt = performance.now();
  await client.schedule.getHandle(retentionScheduleId(INTENT_TASK_QUEUE)).trigger();
  for (;;) {
    const { rowCount } = await db.query(IS_LEFT);
    const tookMs = performance.now() - beganAt;
    if (rowCount === 0) return tookMs;
    if (tookMs > limitMs) throw new Error(`old rows are left after ${Math.round(limitMs / 1_000)} s`);
    await sleep(LOOK_INTERVAL_MS);
  }
}

const IS_LEFT = `
  SELECT FROM notification.intents WHERE status <> 'open' AND updated_at < now() - interval '30 days' LIMIT 1`;

/** $1 and $2 numbers of records, a tenth of a second apart, in the order in which they came; $3 how many of them are old. */
const FILL = `
  WITH given AS MATERIALIZED (
    SELECT n || '-0' AS id, now() - CASE WHEN n <= $3::int THEN interval '60 days' ELSE interval '29 days' END + n * interval '0.1 seconds' AS at
      FROM generate_series($1::int, $2::int) AS n
  ), decided AS (
    INSERT INTO notification.intents (notification_id, notification_type, producer, idempotency_key, fingerprint, lane,
           status, read_at, updated_at)
    SELECT id, 'game.turn.ready', 'game_master', id, 'f', 1, 'accepted', at, at FROM given
  ), accepted AS (
    INSERT INTO notification.records (notification_id, notification_type, producer, audience_kind, recipient_user_ids,
           payload_json, idempotency_key, request_fingerprint, occurred_at, accepted_at, updated_at,
           idempotency_expires_at)
    SELECT id, 'game.turn.ready', 'game_master', 'user', '["user-1"]',
           '{"game_id": "game-7", "game_name": "Andromeda", "turn_number": 54}', id, md5(id), at, at, at,
           at + interval '7 days'
      FROM given
    RETURNING notification_id, accepted_at
  )
  INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, attempt_count, max_attempts,
         resolved_email, resolved_locale, created_at, updated_at, published_at, entry_id)
  SELECT notification_id, channel || ':user:user-' || hashtext(notification_id) % 10000, channel,
         'user:user-' || hashtext(notification_id) % 10000, 'published', 1, 3, 'someone@example.com', 'en', accepted_at,
         accepted_at, accepted_at, '1-1'
    FROM accepted CROSS JOIN unnest(ARRAY['push', 'email']) AS channel`;
