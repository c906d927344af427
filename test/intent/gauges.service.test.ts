/** The gauges: true while their server answers, absent while it does not. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import { Redis } from 'ioredis';
import { observeGauges } from '../../activities/intent/metrics.ts';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { createLogger } from '../../workers/logger.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { LogLine, Slot } from '../harness.ts';
import { eventually, takeSlot, untilStarted } from '../harness.ts';
import type { Collector } from '../otlp-collector.ts';
import { startCollector } from '../otlp-collector.ts';

const INTENTS = 'notification:intents';
const DEPTH = 'notification.route_schedule.depth';
const OLDEST_ROUTE = 'notification.route_schedule.oldest_age_ms';
const WAITING = 'notification.intent_acceptance.waiting';
const OLDEST_WAITING = 'notification.intent_acceptance.oldest_age_ms';
const MALFORMED_ROWS = 'notification.intent_malformed.rows';
const SUSPECT_AGE = 'notification.outbound_stream.suspect_age_ms';
const OLDEST_ENTRY = 'notification.intent_stream.oldest_unprocessed_age_ms';

let slot: Slot;
let collector: Collector;

beforeAll(async () => {
  [slot, collector] = [await takeSlot(), await startCollector()];
  await slot.startService({
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/gauges`,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  });
});
afterAll(async () => {
  await slot.release();
  await collector.stop();
});

/** Values of the newest export by channel, `all` for a gauge without. */
const values = (name: string) =>
  Object.fromEntries(
    collector.latest(name).map(({ attributes, value }) => [attributes['channel'] ?? 'all', value]),
  );

/** Routes of a notification whose workflow has ended, so that nothing publishes or counts them but the gauges. */
async function scheduleRoutes(): Promise<void> {
  const id = await publishIntent(
    slot.redis,
    newGameTurnReady({
      idempotencyKey: 'key-1',
      occurredAt: Date.now(),
      recipientUserIds: ['user-1'],
      payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
    }),
  );
  const workflow = slot.client.workflow.getHandle(notificationWorkflowId(id));
  await untilStarted(workflow);
  await workflow.result();
  await slot.db.query(
    `INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
                                      created_at, updated_at, next_attempt_at)
     SELECT $1, channel || ':g' || n, channel, 'g' || n, 'pending', 3, now(), now(), now() + due::interval
       FROM (VALUES (1, 'push', '-10 minutes'), (2, 'push', '-1 minute'), (3, 'email', '5 minutes'))
            AS waiting (n, channel, due)`,
    [id],
  );
}

test('I33 the schedule: routes that wait, and for how long the oldest has been due', async () => {
  await eventually('an empty schedule', async () => values(DEPTH)['push'] === 0);
  await scheduleRoutes();

  await eventually('the new depth', async () => values(DEPTH)['push'] === 2);
  expect(values(DEPTH)).toEqual({ push: 2, email: 1 });
  expect(values(OLDEST_ROUTE)['email']).toBe(0);
  expect(values(OLDEST_ROUTE)['push']).toBeGreaterThanOrEqual(600_000);
  expect(values(OLDEST_ROUTE)['push']).toBeLessThan(660_000);
  await slot.db.query(`DELETE FROM notification.routes WHERE recipient_ref LIKE 'g_'`);
  await eventually('an empty schedule', async () => values(DEPTH)['push'] === 0);
  expect(values(OLDEST_ROUTE)).toEqual({ push: 0, email: 0 });
});

test('intent-D6 I33 intents that wait to be accepted: how many, and for how long the oldest', async () => {
  await eventually('none', async () => values(WAITING)['all'] === 0);
  const add = (id: string, since: string, status: string) =>
    slot.db.query(
      `INSERT INTO notification.intents (notification_id, notification_type, producer, idempotency_key, fingerprint, lane,
              status, entry, dispatched_at, read_at, updated_at)
       VALUES ($1, 'game.turn.ready', 'game_master', $1, 'f', 1, $3, CASE $3 WHEN 'open' THEN '{}'::jsonb END, now(),
               now() - $2::interval, now())`,
      [id, since, status],
    );
  await add('1-0', '10 minutes', 'open');
  await add('2-0', '1 minute', 'open');
  await add('3-0', '2 days', 'cancelled');
  await eventually('two', async () => values(WAITING)['all'] === 2);
  expect(values(OLDEST_WAITING)['all']).toBeGreaterThanOrEqual(600_000);
  expect(values(OLDEST_WAITING)['all']).toBeLessThan(660_000);
  await slot.db.query('DELETE FROM notification.intents');
  await eventually('none', async () => values(WAITING)['all'] === 0);
  expect(values(OLDEST_WAITING)['all']).toBe(0);
});

test('security-16 refused entries that are kept are counted', async () => {
  await slot.db.query(`
    INSERT INTO notification.malformed_intents (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
    SELECT n || '-9', 'missing_field', 'x', '{}', now() FROM generate_series(1, 7) n`);
  await eventually('seven', async () => values(MALFORMED_ROWS)['all'] === 7);
  await slot.db.query('DELETE FROM notification.malformed_intents');
  await eventually('none', async () => values(MALFORMED_ROWS)['all'] === 0);
});

test('I33 I24 without PostgreSQL the schedule is absent, and the age of the unread grows; then both recover', async () => {
  await eventually('a drained stream', async () => values(OLDEST_ENTRY)['all'] === 0);
  const { restore } = await slot.cutOffDatabase();
  const publishedAt = Date.now();
  // Malformed: it cannot be recorded now, so the offset must not pass it.
  await slot.redis.xadd(INTENTS, '*', 'notification_type', 'game.finished');

  await eventually('no schedule', async () => !collector.exports.at(-1)?.points.has(DEPTH));
  const early = await eventually('an unread entry', async () => values(OLDEST_ENTRY)['all']);
  expect(early).toBeLessThanOrEqual(Date.now() - publishedAt + 1);
  await eventually('a greater age', async () => values(OLDEST_ENTRY)['all']! > early);
  expect(collector.latest(DEPTH)).toEqual([]);
  expect(collector.latest(OLDEST_ROUTE)).toEqual([]);

  await restore();
  await eventually('the schedule', async () => values(DEPTH)['push'] === 0);
  await eventually('a drained stream', async () => values(OLDEST_ENTRY)['all'] === 0);
});

test.each(['refuses', 'never answers'])('I33 a Redis that %s only takes its own gauge away', async (how) => {
  const logs: LogLine[] = [];
  const silent = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  if (how === 'refuses') silent.close();
  const redis = new Redis({ port, host: '127.0.0.1', enableReadyCheck: false, maxRetriesPerRequest: 0 });
  redis.on('error', () => undefined);
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const meters = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] });
  const log = createLogger('debug', {
    write: (line: string) => void logs.push(JSON.parse(line) as LogLine),
  });
  const stopObserving = observeGauges(meters.getMeter('test'), {
    db: slot.db,
    redis,
    log,
    intentsStream: INTENTS,
    tellsOutcomes: false,
  });

  // As many connections as gauges ask for at the same time: the test before has ended them.
  await Promise.all(Array.from({ length: 5 }, () => slot.db.query('SELECT 1')));
  const startedAt = performance.now();
  await meters.forceFlush();
  const names = exporter
    .getMetrics()
    .flatMap(({ scopeMetrics }) =>
      scopeMetrics.flatMap(({ metrics }) => metrics.map(({ descriptor }) => descriptor.name)),
    );
  expect(names.sort()).toEqual([OLDEST_WAITING, WAITING, MALFORMED_ROWS, SUSPECT_AGE, DEPTH, OLDEST_ROUTE]);
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  expect(logs).toMatchObject([{ level: 'warn', msg: 'gauge not read', gauge: 'intent stream' }]);
  stopObserving();
  await meters.shutdown();
  redis.disconnect();
  if (how !== 'refuses') silent.close();
});
