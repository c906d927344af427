/** `why` among a million routes: each cause is planted many times, and asked for one after the other. */
import { PLANTS, plantCauses, plantedUser } from '../dev/planted-causes.ts';
import { createOperator } from '../client/operator.ts';
import { migrate } from '../migrations/migrate.ts';
import type { Bench, Part } from './environment.ts';
import type { Finding, Measurement } from './measurement.ts';
import { quantile } from './statistics.ts';

const ROUTES = 1_000_000;
const TIMES = 50;
const LONGEST_MS = 100;
const PART = 'why';
const ROW = 'scale.why';

export const scaleWhy: Measurement = {
  name: ROW,
  meaning: `why a user received an intent or not, ${PLANTS.length} causes ${TIMES} times each among ${ROUTES} routes`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.right`,
      unit: '',
      target: { atLeast: PLANTS.length * TIMES },
      meaning: 'recipients of whom the planted cause was said',
    },
    { name: `${ROW}.p99`, unit: 'ms', target: { atMost: LONGEST_MS }, meaning: 'of the answers' },
  ],
  run: measure,
};

async function measure(bench: Bench): Promise<Finding[]> {
  const part = await bench.part(PART);
  const dsn = part.env['NOTIFICATION_POSTGRES_PRIMARY_DSN']!;
  await migrate(dsn);
  bench.report(`planting ${ROUTES} routes`);
  await part.db.query(OTHERS, [ROUTES / 2]);
  await plantCauses(part.db, TIMES);
  await part.db.query('VACUUM ANALYZE');
  const { right, tookMs, wrong } = await ask(part);
  return [
    { row: `${ROW}.right`, value: right, details: { wrong } },
    { row: `${ROW}.p99`, value: quantile(tookMs, 0.99) },
  ];
}

async function ask({ db, redis, client }: Part) {
  const operator = createOperator({
    ...{ temporal: client, db, redis },
    namespace: client.options.namespace,
    intentsStream: 'notification:intents',
  });
  const tookMs: number[] = [];
  const wrong: string[] = [];
  for (let n = 1; n <= TIMES; n += 1) {
    for (const { cause } of PLANTS) {
      const beganAt = performance.now();
      const { answers } = await operator.why(plantedUser(cause, n));
      tookMs.push(performance.now() - beganAt);
      if (answers[0]?.cause !== cause) wrong.push(`${cause}: ${answers[0]?.sentence}`);
    }
  }
  return { right: tookMs.length - wrong.length, tookMs, wrong };
}

/** $1 notifications, each for one of ten thousand users on two channels. */
const OTHERS = `
  WITH record AS (
    INSERT INTO notification.records
    SELECT n || '-0', 'game.turn.ready', 'game_master', 'user', '["u"]', '{"game_id": "g"}', 'k' || n, 'f', NULL, NULL,
           at, at, at, at + interval '7 days'
      FROM (SELECT n, now() - n * interval '2 seconds' AS at FROM generate_series(1, $1::int) AS n) AS numbered
    RETURNING notification_id, accepted_at
  )
  INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, attempt_count, max_attempts,
         created_at, updated_at, published_at, entry_id)
  SELECT notification_id, channel || ':user:u' || hashtext(notification_id) % 10000, channel,
         'user:u' || hashtext(notification_id) % 10000, 'published', 1, 3, accepted_at, accepted_at, accepted_at, '1-1'
    FROM record CROSS JOIN unnest(ARRAY['push', 'email']) AS channel`;
