/** The gauges: true while their server answers, absent while it does not. Each is read by itself, see test/platform/gauges.unit.test.ts. */
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { intentGauges } from '../../activities/intent/metrics.ts';
import { observeReads } from '../../activities/metrics.ts';
import { createLogger } from '../../workers/logger.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { OFFSET_KEY } from '../service-process.ts';

const INTENTS = 'notification:intents';
const DEPTH = 'notification.route_schedule.depth';
const OLDEST_ROUTE = 'notification.route_schedule.oldest_age_ms';
const WAITING = 'notification.intent_acceptance.waiting';
const OLDEST_WAITING = 'notification.intent_acceptance.oldest_age_ms';
const MALFORMED_ROWS = 'notification.intent_malformed.rows';
const OLDEST_ENTRY = 'notification.intent_stream.oldest_unprocessed_age_ms';

const slot = slotOfTests();

/** Reads all gauges once. @returns values by channel, `all` for a gauge without, by the names of the gauges. */
async function read(): Promise<Record<string, Record<string, number>>> {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const meters = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] });
  const { db, redis } = slot;
  const gauges = intentGauges({ db, redis, intentsStream: INTENTS, tellsOutcomes: false });
  const stopObserving = observeReads(meters.getMeter('test'), createLogger('silent'), gauges);
  await meters.forceFlush();
  stopObserving();
  const metrics = exporter
    .getMetrics()
    .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics: ofScope }) => ofScope));
  await meters.shutdown();
  return Object.fromEntries(
    metrics.map(({ descriptor, dataPoints }) => [
      descriptor.name,
      Object.fromEntries(
        dataPoints.map(({ attributes, value }) => [attributes['channel'] ?? 'all', value as number]),
      ),
    ]),
  );
}

const tenMinutes = (ms: number | undefined) => {
  expect(ms).toBeGreaterThanOrEqual(600_000);
  expect(ms).toBeLessThan(660_000);
};

test('I33 the schedule: routes that wait, and for how long the oldest has been due', async () => {
  expect((await read())[DEPTH]).toEqual({ push: 0, email: 0 });
  await slot.db.query(
    `WITH record AS (
       INSERT INTO notification.records
       SELECT '1-0', 'game.turn.ready', 'game_master', 'user', '["u"]', '{}', 'key', 'f', NULL, NULL, now(), now(),
              now(), now() + interval '7 days')
     INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
                                      created_at, updated_at, next_attempt_at)
     SELECT '1-0', channel || ':g' || n, channel, 'g' || n, 'pending', 3, now(), now(), now() + due::interval
       FROM (VALUES (1, 'push', '-10 minutes'), (2, 'push', '-1 minute'), (3, 'email', '5 minutes'))
            AS waiting (n, channel, due)`,
  );
  const { [DEPTH]: depth, [OLDEST_ROUTE]: oldest } = await read();
  expect(depth).toEqual({ push: 2, email: 1 });
  expect(oldest!['email']).toBe(0);
  tenMinutes(oldest!['push']);
  await slot.db.query('DELETE FROM notification.records');
  expect((await read())[OLDEST_ROUTE]).toEqual({ push: 0, email: 0 });
});

test('intent-D6 I33 security-16 intents that wait to be accepted, how many and how long, and refused ones that are kept', async () => {
  await slot.db.query(
    `INSERT INTO notification.intents (notification_id, notification_type, producer, idempotency_key, fingerprint, lane,
            status, entry, dispatched_at, read_at, updated_at)
     SELECT id, 'game.turn.ready', 'game_master', id, 'f', 1, status, CASE status WHEN 'open' THEN '{}'::jsonb END, now(),
            now() - since::interval, now()
       FROM (VALUES ('1-0', '10 minutes', 'open'), ('2-0', '1 minute', 'open'), ('3-0', '2 days', 'cancelled'))
            AS intent (id, since, status)`,
  );
  await slot.db.query(`
    INSERT INTO notification.malformed_intents (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
    SELECT n || '-9', 'missing_field', 'x', '{}', now() FROM generate_series(1, 7) n`);
  const found = await read();
  expect(found[WAITING]).toEqual({ all: 2 });
  tenMinutes(found[OLDEST_WAITING]!['all']);
  expect(found[MALFORMED_ROWS]).toEqual({ all: 7 });
  await slot.db.query('DELETE FROM notification.intents');
  await slot.db.query('DELETE FROM notification.malformed_intents');
  expect(await read()).toMatchObject({
    ...{ [WAITING]: { all: 0 }, [OLDEST_WAITING]: { all: 0 }, [MALFORMED_ROWS]: { all: 0 } },
  });
});

test('I33 I24 without PostgreSQL the schedule is absent, and the age of the unread grows; then both recover', async () => {
  expect((await read())[OLDEST_ENTRY]).toEqual({ all: 0 });
  const { restore } = await slot.cutOffDatabase();
  const publishedAt = Date.now();
  const id = await slot.redis.xadd(INTENTS, '*', 'notification_type', 'game.finished');
  const early = await read();
  expect(early[DEPTH]).toBeUndefined();
  expect(early[OLDEST_ENTRY]!['all']).toBeLessThanOrEqual(Date.now() - publishedAt + 1);
  await eventually(
    'a greater age',
    async () => (await read())[OLDEST_ENTRY]!['all']! > early[OLDEST_ENTRY]!['all']!,
  );
  await restore();
  await slot.redis.set(OFFSET_KEY, id!);
  expect(await read()).toMatchObject({ [DEPTH]: { push: 0 }, [OLDEST_ENTRY]: { all: 0 } });
});
