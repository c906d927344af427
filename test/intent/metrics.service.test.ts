/** Metrics, as a collector receives them from the running service. */
import type { NotificationIntent } from '../../client/notificationintent.ts';
import {
  newGameGenerationFailed,
  newLobbyMembershipApproved,
  publishIntent,
} from '../../client/notificationintent.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { GATEWAY } from '../service-process.ts';
import { turnIntent } from './entries.ts';

const INTENTS = 'notification:intents';

/** The seed's nine and ours, each with its attributes; those in brackets are there in some points. */
const ATTRIBUTES: Record<string, string> = {
  'notification.intent.outcomes': 'audience_kind notification_type outcome producer',
  'notification.intent.malformed': 'failure_code notification_type producer',
  'notification.user_enrichment.attempts': 'notification_type result',
  'notification.route.publish_attempts': 'channel [failure_classification] notification_type result',
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

const publish = (intent: NotificationIntent) => publishIntent(slot.redis, intent);
const turnReady = (key: string, recipients: string[], turn_number = 1) =>
  turnIntent(key, recipients, { turn_number });

async function publishMix(): Promise<void> {
  // A stream that takes no entries, as Redis itself refuses them.
  await slot.redis.set(GATEWAY, 'not a stream');
  const payload = { game_id: 'g', game_name: 'G' };
  await publish(
    newLobbyMembershipApproved({
      idempotencyKey: 'key-0',
      occurredAt: Date.now(),
      recipientUserIds: ['user-4'],
      payload,
    }),
  );
  await logged('dead_letter', 'result');
  await slot.redis.del(GATEWAY);

  slot.userService.fail({ failure: { kind: 'status', status: 500 }, userId: 'user-3', times: 1 });
  await publish(turnReady('key-1', ['user-1', 'user-2', 'user-3']));
  await logged('accepted', 'outcome', 'game.turn.ready');
  await publish(turnReady('key-1', ['user-3', 'user-2', 'user-1']));
  await publish(turnReady('key-1', ['user-1', 'user-2', 'user-3'], 2));
  await publish(turnReady('key-2', ['nonesuch']));
  await publish(
    newGameGenerationFailed({
      idempotencyKey: 'key-3',
      occurredAt: Date.now(),
      payload: { ...payload, failure_reason: 'r' },
    }),
  );
  await slot.redis.xadd(INTENTS, '*', 'notification_type', 'ada@example.com', 'producer', 'user-1');
  await slot.redis.xadd(INTENTS, '*', 'notification_type', 'game.finished', 'producer', 'game_master');
}

const logged = (value: string, field: string, type?: string) =>
  eventually(`${field} ${value} in the logs`, async () =>
    slot.logs.some((line) => line[field] === value && (!type || line['notification_type'] === type)),
  );

/** What is counted of intents and routes: each with the attributes that tell them apart. */
const COUNTS: [name: string, type: string, keys: string[], expected: Record<string, number>][] = [
  [
    'notification.intent.outcomes',
    'game.turn.ready',
    ['producer', 'audience_kind', 'outcome'],
    {
      'game_master user accepted': 1,
      'game_master user duplicate': 1,
      'game_master user rejected': 2,
    },
  ],
  [
    'notification.intent.outcomes',
    'game.generation_failed',
    ['producer', 'audience_kind', 'outcome'],
    { 'game_master admin_email accepted': 1 },
  ],
  [
    'notification.intent.malformed',
    'game.turn.ready',
    ['producer', 'failure_code'],
    { 'game_master idempotency_conflict': 1, 'game_master recipient_not_found': 1 },
  ],
  ['notification.intent.malformed', 'game.finished', ['producer'], { game_master: 1 }],
  // What an entry calls itself counts only if it is in the catalog.
  ['notification.intent.malformed', 'unknown', ['producer'], { unknown: 1 }],
  [
    'notification.route.publish_attempts',
    'lobby.membership.approved',
    ['channel', 'result', 'failure_classification'],
    { 'push failed gateway_stream_publish_failed': 3, 'email published ': 1 },
  ],
  [
    'notification.route.publish_attempts',
    'game.generation_failed',
    ['channel', 'result'],
    { 'email published': 2 },
  ],
  [
    'notification.route.retries',
    'lobby.membership.approved',
    ['channel', 'failure_classification'],
    { 'push gateway_stream_publish_failed': 2 },
  ],
  [
    'notification.route.dead_letters',
    'lobby.membership.approved',
    ['channel', 'failure_classification'],
    { 'push gateway_stream_publish_failed': 1 },
  ],
];

/** A counter's values for one notification type, by the values of some attributes: `{ 'push published': 3 }`. */
function tally(name: string, type: string, keys: string[]): Record<string, number> {
  const points = collector.latest(name).filter(({ attributes }) => attributes['notification_type'] === type);
  return Object.fromEntries(
    points.map(({ attributes, value }) => [keys.map((key) => attributes[key]).join(' '), value]),
  );
}

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((a, b) => a + b, 0);

describe('counters', () => {
  test('I33 I6 I9 I21 I22 intents, refusals, attempts and dead letters count once, by how they ended', async () => {
    for (const [name, type, keys, expected] of COUNTS)
      await eventually(`all of ${name}`, async () => sum(tally(name, type, keys)) >= sum(expected));
    // Nothing is counted beyond that.
    const before = collector.exports.length;
    await eventually('another export', async () => collector.exports.length > before + 1);
    expect(COUNTS.map(([name, type, keys]) => [name, type, keys, tally(name, type, keys)])).toEqual(COUNTS);
  });

  test('I33 I11 lookups count by their result', async () => {
    const { found, ...others } = await eventually('lookups', async () => {
      const counts = tally('notification.user_enrichment.attempts', 'game.turn.ready', ['result']);
      return counts['not_found'] === 1 && counts;
    });
    expect(others).toEqual({ failed: 1, not_found: 1 });
    // Three of the attempt that succeeded; of the failed one, those that had been answered; and of the two that came again.
    expect(found).toBeGreaterThanOrEqual(3);
    expect(found).toBeLessThanOrEqual(11);
  });
});

describe('attributes', () => {
  test('I33 the nine names arrive, with their attributes and no others, and no id or address as a value', async () => {
    const points = () => collector.exports.flatMap((export_) => [...export_.points]);
    await eventually('all names', async () => {
      const names = new Set(points().map(([name]) => name));
      return SEED_NAMES.every((name) => names.has(name));
    });
    for (const [name, list] of points()) {
      const [required, allowed] = [
        (ATTRIBUTES[name] ?? 'no such metric').replaceAll(/\[.*?\]/g, ''),
        (ATTRIBUTES[name] ?? 'no such metric').replaceAll(/[[\]]/g, ''),
      ].map((text) => text.split(' ').filter(Boolean));
      for (const { attributes } of list) {
        const keys = Object.keys(attributes);
        expect({ name, keys }).toEqual({ name, keys: expect.arrayContaining(required!) });
        expect(keys.filter((key) => !allowed!.includes(key))).toEqual([]);
        expect(Object.values(attributes).join(' ')).not.toMatch(/@|user-|nonesuch|key-|\d{5}/);
      }
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
    expect([...collector.temporalMetrics]).toEqual(
      expect.arrayContaining([
        'temporal_workflow_task_schedule_to_start_latency',
        'temporal_activity_schedule_to_start_latency',
        'temporal_workflow_task_execution_latency',
        'temporal_worker_task_slots_available',
        'temporal_worker_task_slots_used',
        'temporal_num_pollers',
        'temporal_sticky_cache_size',
        'temporal_request',
        'temporal_request_latency',
      ]),
    );
  });
});
