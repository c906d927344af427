/** Alarms about notifications, each with its fault, and its section of the runbook carried out. */
import { readFileSync } from 'node:fs';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import { Redis } from 'ioredis';
import { envelopeOf } from '../../api/intent/entry.ts';
import { LAST_ENTRY_ID } from '../../api/stream-ids.ts';
import type { OutboxRelay } from '../../client/outbox.ts';
import { publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import type { TcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, operatorOf } from '../harness.ts';
import type { Drill } from '../runbook/drill.ts';
import { drillGround } from '../runbook/drill.ts';
import { MAIL } from '../service-process.ts';
import { publishTurn, turnIntent } from './entries.ts';
import { EMAIL, countOf, outboundSeen, usersUpTo } from './rows.ts';
import type { Shop } from './shop.ts';
import { createShop, statementIn } from './shop.ts';

const INTENTS = 'notification:intents';
const OUTCOMES = 'notification:outcomes';
/** The notification of the runbook's examples. */
const EXAMPLE = '1790000000000-0';
const BY = { requestedBy: 'drill' };
const MINUTE_MS = 60_000;

const ground = drillGround({
  env: () => ({
    NOTIFICATION_ROLES: 'intent',
    // What waits long waits briefly.
    NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '1s',
    // A lease is at least as long as what a command of Redis may take.
    NOTIFICATION_ROUTE_LEASE_TTL: '1s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
    NOTIFICATION_RECONCILIATION_INTERVAL: '2s',
    NOTIFICATION_OUTCOMES: 'all',
  }),
});
const steering = () => operatorOf(ground.slot);
const publish = (key: string, users?: string[]) => publishTurn(ground.slot.redis, key, users);

/** The notification that a drill is about. */
let id = '';
const drill = (one: Drill) => ground.drill({ examples: () => ({ [EXAMPLE]: id }), ...one });

/** Rows are dated back once there are some, as if so much time had passed. */
const age = (table: string, column: string, minutes: number, where = `${column} IS NOT NULL`) =>
  eventually(`rows of ${table} that can be dated back`, async () => {
    const { rowCount } = await ground.slot.db.query(
      `UPDATE notification.${table} SET ${column} = ${column} - $1 * interval '1 minute' WHERE ${where}`,
      [minutes],
    );
    return rowCount !== 0;
  });

const untilRoute = (id: string, channel: string, status: string) =>
  eventually(`${channel} of ${id} to be ${status}`, async () => {
    const where = 'notification_id = $1 AND channel = $2 AND status = $3';
    return (await countOf(ground.slot, 'routes', where, [id, channel, status])) > 0;
  });

/** A route that waits because its channel is paused. */
async function publishHeld(key: string): Promise<void> {
  await steering().channels.pause('email', BY);
  id = await publish(key);
  await untilRoute(id, 'push', 'published');
  await untilRoute(id, 'email', 'pending');
}

/** Something else takes the place of a stream, so that Redis refuses to append to it. */
async function spoil(stream: string): Promise<void> {
  const { redis } = ground.slot;
  if (await redis.exists(stream)) await redis.rename(stream, `${stream}.kept`);
  await redis.set(stream, 'not a stream');
}
async function unspoil(stream: string): Promise<void> {
  const { redis } = ground.slot;
  if ((await redis.type(stream)) === 'string') await redis.del(stream);
  if (await redis.exists(`${stream}.kept`)) await redis.rename(`${stream}.kept`, stream);
}

const untilMailed = () => untilRoute(id, 'email', 'published');

/** Until a notification is published, and the watch over outbound streams has seen it. */
async function publishSeen(key: string): Promise<void> {
  id = await publish(key);
  await untilMailed();
  await outboundSeen(ground.slot);
}

beforeAll(async () => {
  await ground.start();
  // An entry that is delivered says that everything is there.
  id = await publishAgo('first', 20);
  await untilMailed();
}, 300_000);

/** With the time of so long ago in its id, which is what tells how old it is; ids of a stream only grow. */
const publishAgo = async (key: string, minutes: number) => {
  const at = Date.now() - minutes * MINUTE_MS;
  const fields = Object.entries(envelopeOf(turnIntent(key))).flat();
  return (await ground.slot.redis.xadd(INTENTS, `${at}-0`, ...fields))!;
};

async function publishPaused(key: string, minutes: number): Promise<void> {
  await steering().bridge.pause({ reason: 'maintenance', ...BY });
  id = await publishAgo(key, minutes);
}

drill({
  alarm: 'NotificationIntakeStopped',
  fault: 'intake was paused and forgotten',
  inject: () => publishPaused('stopped', 11),
  says: { 'galaxy-notify doctor': /paused/, 'galaxy-notify bridge status': /paused/ },
  cleanUp: untilMailed,
});

drill({
  alarm: 'NotificationIntakeLate',
  fault: 'intake is paused',
  inject: () => publishPaused('late', 2),
  says: { 'galaxy-notify bridge status': /paused/ },
  deeds: [{ words: 'go on as for NotificationIntakeStopped', act: () => steering().bridge.resume(BY) }],
});

drill({
  alarm: 'NotificationStreamDataLost',
  fault: 'the stream of intents was deleted',
  inject: () => ground.slot.redis.del(INTENTS),
  says: { 'galaxy-notify bridge status': /stream_missing/ },
  deeds: [{ words: 'must be published again by their producers', act: () => publish('lost') }],
});

drill({
  alarm: 'NotificationWorkTakenUp',
  fault: 'an operator terminated workflows whose work was open',
  prepare: () => publishHeld('taken-up'),
  inject: async () => {
    for (const workflowId of [notificationWorkflowId(id), routeWorkflowId(id, EMAIL)]) {
      const handle = ground.slot.client.workflow.getHandle(workflowId);
      await handle.terminate('drill').catch(() => undefined);
    }
    await age('routes', 'next_attempt_at', 10);
    await steering().channels.resume('email', BY);
  },
  says: { 'temporal workflow list': /intent-reconciliation/ },
  cleanUp: untilMailed,
});

drill({
  alarm: 'NotificationEntriesRestored',
  fault: 'Redis lost an outbound stream',
  prepare: () => publishSeen('restored'),
  inject: () => ground.slot.redis.del(MAIL),
  says: { 'temporal workflow list': /outboundRepair/ },
});

drill({
  alarm: 'NotificationRepairStuck',
  fault: 'a stream lost entries while its channel was paused',
  prepare: async () => {
    await publishSeen('stuck');
    await steering().channels.pause('email', BY);
  },
  inject: async () => {
    await ground.slot.redis.del(MAIL);
    await age('outbound_streams', 'suspect_since', 11);
  },
  says: { 'galaxy-notify doctor': /mail:delivery_commands/, 'galaxy-notify channels list': /paused/ },
});

drill({
  alarm: 'NotificationOutcomesLate',
  fault: 'Redis refuses entries of the stream of outcomes',
  inject: async () => {
    await spoil(OUTCOMES);
    await publish('outcome');
    await age('outcomes', 'written_at', 2, 'relayed_at IS NULL');
  },
  deeds: [{ words: 'which names the reason, and fix it', act: () => unspoil(OUTCOMES) }],
  cleanUp: () => unspoil(OUTCOMES),
});

describe('outboxes', () => {
  let shop: Shop;
  let relay: OutboxRelay;
  let meters: MeterProvider;
  let redis: Redis;
  let proxy: TcpProxy;

  beforeAll(async () => {
    const { slot, prometheus } = ground;
    shop = await createShop(slot);
    proxy = await startTcpProxy(slot.endpoints.redis);
    redis = new Redis(proxy.port, proxy.host, {
      ...{ db: slot.slot, maxRetriesPerRequest: 0, enableOfflineQueue: false },
    });
    redis.on('error', () => undefined);
    const exporter = new OTLPMetricExporter({ url: `${prometheus.otlpUrl}/v1/metrics` });
    meters = new MeterProvider({
      resource: resourceFromAttributes({ 'service.name': 'shop', 'service.instance.id': 'relay' }),
      readers: [
        new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 500, exportTimeoutMillis: 500 }),
      ],
    });
    await eventually('Redis', async () => redis.status === 'ready');
    relay = await startOutboxRelay({
      ...{ db: shop.db, redis, pollMs: 50, meter: meters.getMeter('shop') },
      // A repeat of what Redis loses later than this might have a second effect.
      keyLifetimeMs: 1,
    });
  });
  afterAll(async () => {
    await relay.stop();
    await meters.shutdown();
    redis.disconnect();
    await proxy.stop();
    await shop.drop();
  });
  const env = () => {
    const dsn = Object.assign(new URL(ground.slot.endpoints.postgresDsn), { pathname: `/${shop.database}` });
    return { NOTIFICATION_OUTBOX_POSTGRES_DSN: dsn.href };
  };
  const publishAgain = () => shop.db.query(statementIn('docs/producers/outbox.md', 'UPDATE'));
  const write = (idempotencyKey: string) => publishToOutbox(shop.db, turnIntent(idempotencyKey));

  drill({
    alarm: 'NotificationOutboxLate',
    fault: 'the relay does not reach Redis',
    inject: async () => {
      await proxy.set({ kind: 'refuse' });
      proxy.cut();
      await write('outbox-late');
      await shop.db.query(
        "UPDATE notification_outbox.intents SET created_at = created_at - interval '2 minutes'",
      );
    },
    env,
    says: { 'galaxy-notify outbox status': /pending/ },
    codes: { 'galaxy-notify outbox status': 1 },
    deeds: [{ words: 'which names the reason, and fix it', act: () => proxy.set({ kind: 'open' }) }],
    cleanUp: () => proxy.set({ kind: 'open' }),
  });

  drill({
    alarm: 'NotificationOutboxSetAside',
    fault: 'Redis lost what a relay had published, long after',
    prepare: () => steering().bridge.pause({ reason: 'drill', ...BY }),
    inject: async () => {
      await write('outbox-set-aside');
      const published = "SELECT FROM notification_outbox.intents WHERE state = 'published'";
      await eventually('it to be in the stream', async () => (await shop.db.query(published)).rowCount !== 0);
      await ground.slot.redis.del(INTENTS);
    },
    env,
    says: { 'galaxy-notify outbox status': /set_aside/ },
    codes: { 'galaxy-notify outbox status': 1 },
    deeds: [{ words: 'publish it again', act: publishAgain }],
    cleanUp: () => steering().bridge.resume(BY),
  });
});

const setPolicy = (policy: string) => ground.slot.redis.config('SET', 'maxmemory-policy', policy);

drill({
  alarm: 'NotificationRedisMayEvict',
  fault: "Redis' policy was changed",
  inject: () => setPolicy('allkeys-lru'),
  says: { 'galaxy-notify doctor': /maxmemory-policy/ },
  deeds: [{ words: 'set `maxmemory-policy noeviction`', act: () => setPolicy('noeviction') }],
  cleanUp: () => setPolicy('noeviction'),
});

const setIdsBack = () =>
  ground.slot.redis.eval(readFileSync('deploy/redis/set-ids-back.lua', 'utf8'), 1, INTENTS, LAST_ENTRY_ID);

drill({
  alarm: 'NotificationStreamIdsAhead',
  fault: 'a producer appended an entry with the last possible id',
  inject: () => ground.slot.redis.xadd(INTENTS, LAST_ENTRY_ID, 'a', 'b'),
  says: { 'galaxy-notify doctor': /stream_ids_ahead/, 'galaxy-notify bridge status': /stream_ids_ahead/ },
  deeds: [{ words: 'set the ids back', act: setIdsBack }],
});

drill({
  alarm: 'NotificationRoutesOverdue',
  fault: 'a channel was paused and forgotten',
  inject: async () => {
    await publishHeld('overdue');
    await age('routes', 'next_attempt_at', 6);
  },
  says: { 'galaxy-notify channels list': /paused/ },
  cleanUp: untilMailed,
});

drill({
  alarm: 'NotificationDeadLetters',
  fault: 'Redis refused to append e-mail commands for longer than the ladder',
  inject: async () => {
    await spoil(MAIL);
    id = await publish('dead');
    await untilRoute(id, 'email', 'dead_letter');
  },
  says: {
    'galaxy-notify dead-letters list': /user-1/,
    'galaxy-notify notifications show': /mail_stream_publish_failed/,
    'galaxy-notify operations list': /replay/,
  },
  deeds: [{ words: 'remove the cause', act: () => unspoil(MAIL), before: 'galaxy-notify replay' }],
  cleanUp: async () => {
    await unspoil(MAIL);
    await untilMailed();
  },
});

drill({
  alarm: 'NotificationPublishingFails',
  fault: 'Redis refuses to append e-mail commands',
  inject: () => spoil(MAIL),
  load: () => publish(`publishing-${Date.now()}`),
  deeds: [{ words: 'fix Redis', act: () => unspoil(MAIL), before: 'galaxy-notify channels resume' }],
  cleanUp: () => unspoil(MAIL),
});

async function restart(env?: Record<string, string>): Promise<void> {
  await ground.killAll();
  await ground.start(env);
}

drill({
  alarm: 'NotificationPublishingDeferred',
  fault: 'fewer replicas of Redis than are asked for have what was handed off',
  inject: () => restart({ NOTIFICATION_REDIS_MIN_REPLICAS: '1' }),
  load: async () => {
    id = await publish(`deferred-${Date.now()}`);
  },
  says: { 'galaxy-notify doctor': /replica/ },
  env: () => ({ NOTIFICATION_REDIS_MIN_REPLICAS: '1' }),
  deeds: [{ words: 'set `NOTIFICATION_REDIS_MIN_REPLICAS` lower and restart', act: () => restart() }],
  cleanUp: untilMailed,
});

drill({
  alarm: 'NotificationAcceptanceLate',
  fault: 'the User Service does not answer about a recipient',
  inject: async () => {
    ground.slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
    id = await publish('unanswered', ['user-9']);
    await age('intents', 'read_at', 11, `notification_id = '${id}'`);
  },
  says: { 'galaxy-notify intents waiting': /user-9|503/ },
  deeds: [{ words: 'fix what the reason names', act: async () => ground.slot.userService.heal() }],
});

drill({
  alarm: 'NotificationRecipientsUnusable',
  fault: 'the User Service refuses one recipient of many',
  inject: async () => {
    ground.slot.userService.fail({ userId: 'user-8', failure: { kind: 'status', status: 422 } });
    id = await publish('unusable', ['user-8']);
  },
  // Without a usable answer about any user, the service is at fault, and every recipient still gets e-mail.
  load: () => publish(`usable-${Date.now()}`),
  deeds: [
    { words: 'have their records fixed', act: async () => ground.slot.userService.heal() },
    { words: 'publish a new intent for them', act: () => publish('usable', ['user-8']) },
  ],
});

/** Each user is asked about once; one that exists, or its intent is refused once the User Service answers. */
let asked = 15_000;

drill({
  alarm: 'NotificationUserServiceFails',
  fault: 'the User Service answers 503',
  inject: async () => {
    ground.slot.userService.fail({ failure: { kind: 'status', status: 503 } });
  },
  load: async () => {
    asked += 1;
    id = await publish(`unanswered-${asked}`, [`user-${asked}`]);
  },
  deeds: [{ words: 'fix the User Service', act: async () => ground.slot.userService.heal() }],
  cleanUp: async () => {
    ground.slot.userService.heal();
    await untilMailed();
  },
});

drill({
  alarm: 'NotificationMalformedIntents',
  fault: 'a producer appends what the contract forbids',
  inject: async () => {
    const incomplete = ['notification_type', 'game.turn.ready', 'producer', 'game_master'];
    id = (await ground.slot.redis.xadd(INTENTS, '*', ...incomplete))!;
  },
});

const deletePlanted = () =>
  ground.slot.db.query("DELETE FROM notification.malformed_intents WHERE stream_entry_id LIKE '%-9'");

drill({
  alarm: 'NotificationMalformedManyKept',
  fault: 'a producer sends what is refused without end',
  inject: () =>
    ground.slot.db.query(`
      INSERT INTO notification.malformed_intents (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
      SELECT n || '-9', 'missing_field', 'x', '{}', now() FROM generate_series(1, 100000) n`),
  deeds: [{ words: 'shorter retention', act: deletePlanted }],
});

describe('a backlog', () => {
  const MANY = 1_000;
  const FEW = 5;
  let published = 0;
  let coming: NodeJS.Timeout | undefined;
  const publishTo = (count: number) => publish(`backlog-${(published += 1)}`, usersUpTo(count));
  afterAll(() => clearInterval(coming));

  // Last, as it leaves much to do, which ends with the processes.
  drill({
    alarm: 'NotificationBacklogGrows',
    fault: 'more and more routes wait for a paused channel',
    prepare: () => steering().channels.pause('email', BY),
    inject: async () => {
      for (let n = 0; n < 12; n += 1) await publishTo(MANY);
      // And it does not end, so that nothing but the resumed channel ends the growth.
      coming = setInterval(() => void publishTo(FEW).catch(() => undefined), 1_000);
    },
    says: { 'galaxy-notify channels list': /paused/ },
    deeds: [
      {
        words: 'as for NotificationRoutesOverdue',
        // While thousands of routes begin, the answer may take longer than the command waits. Who has none asks again.
        act: () => eventually('an answer', () => steering().channels.resume('email', BY)),
      },
    ],
    cleanUp: async () => clearInterval(coming),
  });
});
