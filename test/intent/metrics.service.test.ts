/** Metrics as a collector receives them from the running service, and gauges by what they are read from. */
import { intentGauges } from '../../activities/intent/metrics.ts';
import { publishIntent } from '../../client/notificationintent.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { GATEWAY, OFFSET_KEY, append } from '../service-process.ts';
import { entryOf, turnIntent } from './entries.ts';
import { plantRecords, untilLogged } from './rows.ts';

const INTENTS = 'notification:intents';

/** The seed's nine and ours, each with its attributes. */
const ATTRIBUTES: Record<string, string> = {
  'notification.intent.outcomes': 'audience_kind notification_type outcome producer',
  'notification.intent.malformed': 'failure_code notification_type producer',
  'notification.user_enrichment.attempts': 'notification_type result',
  'notification.route.publish_attempts': 'channel( failure_classification)? notification_type result',
  'notification.route.retries': 'channel failure_classification notification_type',
  'notification.route.dead_letters': 'channel failure_classification notification_type',
  'notification.route_schedule.depth': 'channel',
  'notification.route_schedule.oldest_age_ms': 'channel',
  'notification.intent_stream.oldest_unprocessed_age_ms': '',
  'notification.intent_acceptance.waiting': '',
  'notification.intent_acceptance.oldest_age_ms': '',
  'notification.intent_malformed.rows': '',
  'notification.retention.overdue_ms': 'table',
  'notification.outbound_stream.suspect_age_ms': '',
  'notification.intent.unusable_recipients': 'notification_type',
  'notification.route.replays': 'channel notification_type',
  'notification.route.skipped': 'channel notification_type reason',
  'notification.route.deferrals': 'channel reason',
  'notification.intent_stream.findings': 'kind',
  'notification.internal_http.requests': 'path status',
};
const SEED_NAMES = Object.keys(ATTRIBUTES).slice(0, 9);

const slot = slotOfTests();
const collector = collectorOfTests();

/** Everything that is counted happens here, once; the tests look at the counts. */
beforeAll(async () => {
  await slot.startService({
    OTEL_EXPORTER_OTLP_ENDPOINT: `${collector.url}/`,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
    NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: 'ada@example.com,eve@example.com',
  });
  await publishMix();
});

const turnReady = (key: string, recipients: string[], turn_number = 1) =>
  publishIntent(slot.redis, turnIntent(key, recipients, { turn_number }));

async function publishMix(): Promise<void> {
  // A stream that takes no entries, as Redis itself refuses them.
  await slot.redis.set(GATEWAY, 'not a stream');
  await append(slot.redis, [entryOf('lobby.membership.approved', { recipient_user_ids_json: '["user-4"]' })]);
  await untilLogged(slot, { result: 'dead_letter' });
  await slot.redis.del(GATEWAY);

  slot.userService.fail({ failure: { kind: 'status', status: 500 }, userId: 'user-3', times: 1 });
  await turnReady('key-1', ['user-1', 'user-2', 'user-3']);
  await untilLogged(slot, { outcome: 'accepted', notification_type: 'game.turn.ready' });
  await turnReady('key-1', ['user-3', 'user-2', 'user-1']);
  await turnReady('key-1', ['user-1', 'user-2', 'user-3'], 2);
  await turnReady('key-2', ['nonesuch']);
  await append(slot.redis, [entryOf('game.generation_failed', { idempotency_key: 'key-3' })]);
  await slot.redis.xadd(INTENTS, '*', 'notification_type', 'ada@example.com', 'producer', 'user-1');
  await slot.redis.xadd(INTENTS, '*', 'notification_type', 'game.finished', 'producer', 'game_master');
}

/** What is counted of intents and routes, by the values of their attributes. */
const COUNTS: Record<string, Record<string, number>> = {
  'notification.intent.outcomes': {
    'user lobby.membership.approved accepted game_lobby': 1,
    'user game.turn.ready accepted game_master': 1,
    'user game.turn.ready duplicate game_master': 1,
    'user game.turn.ready rejected game_master': 2,
    'admin_email game.generation_failed accepted game_master': 1,
  },
  'notification.intent.malformed': {
    'idempotency_conflict game.turn.ready game_master': 1,
    'recipient_not_found game.turn.ready game_master': 1,
    'invalid_envelope game.finished game_master': 1,
    // What an entry calls itself counts only if it is in the catalog.
    'invalid_envelope unknown unknown': 1,
  },
  'notification.route.publish_attempts': {
    'push gateway_stream_publish_failed lobby.membership.approved failed': 3,
    'email lobby.membership.approved published': 1,
    'push game.turn.ready published': 3,
    'email game.turn.ready published': 3,
    'email game.generation_failed published': 2,
  },
  'notification.route.retries': { 'push gateway_stream_publish_failed lobby.membership.approved': 2 },
  'notification.route.dead_letters': { 'push gateway_stream_publish_failed lobby.membership.approved': 1 },
};

/** The values of a counter by those of its attributes, in the order of their names. */
const tally = (name: string): Record<string, number> =>
  Object.fromEntries(
    collector.latest(name).map(({ attributes, value }) => {
      const inOrder = Object.entries(attributes).sort(([one], [other]) => (one < other ? -1 : 1));
      return [inOrder.map(([, of]) => of).join(' '), value];
    }),
  );

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);

test('I33 I6 I9 I21 I22 intents, refusals, attempts and dead letters count once, by how they ended', async () => {
  for (const [name, expected] of Object.entries(COUNTS))
    await eventually(`all of ${name}`, async () => sum(tally(name)) >= sum(expected));
  // Nothing is counted beyond that.
  const before = collector.exports.length;
  await eventually('another export', async () => collector.exports.length > before + 1);
  expect(Object.fromEntries(Object.keys(COUNTS).map((name) => [name, tally(name)]))).toEqual(COUNTS);
});

test('I33 I11 lookups count by their result', async () => {
  const { 'game.turn.ready found': found, ...others } = await eventually('lookups', async () => {
    const counts = tally('notification.user_enrichment.attempts');
    return counts['game.turn.ready not_found'] === 1 && counts;
  });
  expect(others).toEqual({
    'lobby.membership.approved found': 1,
    'game.turn.ready failed': 1,
    'game.turn.ready not_found': 1,
  });
  // Three of the attempt that succeeded; of the failed one, those that had been answered; and of the two that came again.
  expect(found).toBeGreaterThanOrEqual(3);
  expect(found).toBeLessThanOrEqual(11);
});

test('I33 the nine names arrive, with their attributes and no others, and no id or address as a value', async () => {
  const points = () => collector.exports.flatMap((export_) => [...export_.points]);
  await eventually('all names', async () => {
    const names = new Set(points().map(([name]) => name));
    return SEED_NAMES.every((name) => names.has(name));
  });
  for (const [name, list] of points())
    for (const { attributes } of list) {
      const names = Object.keys(attributes).sort().join(' ');
      expect(`${name}: ${names}`).toMatch(new RegExp(`^${name}: ${ATTRIBUTES[name] ?? 'no such metric'}$`));
      expect(Object.values(attributes).join(' ')).not.toMatch(/@|user-|nonesuch|key-|\d{5}/);
    }
});

test('I33 exports name the service and the process, traces go to the same collector', async () => {
  const { resource } = collector.exports[0]!;
  expect(resource).toMatchObject({
    'service.name': 'galaxy-notify',
    'service.instance.id': expect.stringMatching(/^[0-9a-f-]{36}$/),
  });
  await eventually('traces', async () => collector.paths.includes('/v1/traces'));
  expect(new Set(collector.paths)).toEqual(new Set(['/v1/metrics', '/v1/traces']));
});

test("I33 metrics of Temporal's SDK come along: how long tasks wait, and what calls cost", async () => {
  await eventually("Temporal's metrics", async () => collector.temporalMetrics.size > 0);
  const names = [
    ...['workflow_task_schedule_to_start_latency', 'activity_schedule_to_start_latency'],
    ...['workflow_task_execution_latency', 'worker_task_slots_available', 'worker_task_slots_used'],
    ...['num_pollers', 'sticky_cache_size', 'request', 'request_latency'],
  ];
  expect([...collector.temporalMetrics]).toEqual(
    expect.arrayContaining(names.map((name) => `temporal_${name}`)),
  );
});
describe('gauges', () => {
  const DEPTH = 'notification.route_schedule.depth';
  const OLDEST_ROUTE = 'notification.route_schedule.oldest_age_ms';
  const WAITING = 'notification.intent_acceptance.waiting';
  const OLDEST_WAITING = 'notification.intent_acceptance.oldest_age_ms';
  const MALFORMED_ROWS = 'notification.intent_malformed.rows';
  const OLDEST_ENTRY = 'notification.intent_stream.oldest_unprocessed_age_ms';

  /** Without a service. */
  const slot = slotOfTests();

  /** @returns values by channel, `all` for a gauge without, by the names of the gauges; none of a server that is away. */
  async function read(): Promise<Record<string, Record<string, number>>> {
    const { db, redis } = slot;
    const found: Record<string, Record<string, number>> = {};
    for (const reads of intentGauges({ db, redis, intentsStream: INTENTS, tellsOutcomes: false }))
      for (const { gauge, value, attributes } of await reads.read().catch(() => []))
        (found[gauge] ??= {})[String(attributes?.['channel'] ?? 'all')] = value;
    return found;
  }

  const tenMinutes = (ms: number | undefined) => {
    expect(ms).toBeGreaterThanOrEqual(600_000);
    expect(ms).toBeLessThan(660_000);
  };

  test('I33 the schedule: routes that wait, and for how long the oldest has been due', async () => {
    expect((await read())[DEPTH]).toEqual({ push: 0, email: 0 });
    await plantRecords(slot, 'long-', 1, { overdue: '10 minutes' });
    await plantRecords(slot, 'short-', 1, { overdue: '1 minute' });
    await plantRecords(slot, 'later-', 1, { channel: 'email', overdue: '-5 minutes' });
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
    expect(found).toMatchObject({ [WAITING]: { all: 2 }, [MALFORMED_ROWS]: { all: 7 } });
    tenMinutes(found[OLDEST_WAITING]!['all']);
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
    const { [DEPTH]: depth, [OLDEST_ENTRY]: early } = await read();
    expect(depth).toBeUndefined();
    expect(early!['all']).toBeLessThanOrEqual(Date.now() - publishedAt + 1);
    await eventually('a greater age', async () => (await read())[OLDEST_ENTRY]!['all']! > early!['all']!);
    await restore();
    await slot.redis.set(OFFSET_KEY, id!);
    expect(await read()).toMatchObject({ [DEPTH]: { push: 0 }, [OLDEST_ENTRY]: { all: 0 } });
  });
});
