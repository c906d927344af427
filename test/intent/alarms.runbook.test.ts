/** Alarms about notifications, each with its fault, and its section of the runbook carried out. */
import { readFileSync } from 'node:fs';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { envelopeOf } from '../../api/intent/entry.ts';
import { LAST_ENTRY_ID } from '../../api/stream-ids.ts';
import { openDatabase } from '../../client/connect.ts';
import type { OutboxRelay } from '../../client/outbox.ts';
import { publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, operatorOf } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import { MAIL } from '../service-process.ts';
import { publishTurn, turnIntent } from './entries.ts';
import { countOf, outboundSeen, usersUpTo } from './rows.ts';
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
const { drill } = ground;
const steering = () => operatorOf(ground.slot);
const publish = (key: string, users?: string[]) => publishTurn(ground.slot.redis, key, users);

/** Rows are dated back, as if so much time had passed. */
const age = (table: string, column: string, minutes: number) =>
  ground.slot.db.query(
    `UPDATE notification.${table} SET ${column} = ${column} - $1 * interval '1 minute' WHERE ${column} IS NOT NULL`,
    [minutes],
  );

const untilRoute = (id: string, channel: string, status: string) =>
  eventually(`${channel} of ${id} to be ${status}`, async () => {
    const where = 'notification_id = $1 AND channel = $2 AND status = $3';
    return (await countOf(ground.slot, 'routes', where, [id, channel, status])) > 0;
  });

/** A route that waits because its channel is paused. */
async function waitingRoute(key: string): Promise<string> {
  await steering().channels.pause('email', BY);
  const id = await publish(key);
  await untilRoute(id, 'push', 'published');
  await untilRoute(id, 'email', 'pending');
  return id;
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

let id = '';
const example = () => ({ [EXAMPLE]: id });

beforeAll(async () => {
  await ground.start();
  // An entry that is delivered says that everything is there.
  await untilRoute(await publishAgo('first', 20), 'email', 'published');
}, 300_000);

/** With the time of so long ago in its id, which is what tells how old it is; ids of a stream only grow. */
const publishAgo = async (key: string, minutes: number) => {
  const at = Date.now() - minutes * MINUTE_MS;
  const fields = Object.entries(envelopeOf(turnIntent(key))).flat();
  return (await ground.slot.redis.xadd(INTENTS, `${at}-0`, ...fields))!;
};

drill({
  alarm: 'NotificationIntakeStopped',
  fault: 'intake was paused and forgotten',
  inject: async () => {
    await steering().bridge.pause({ reason: 'maintenance', ...BY });
    id = await publishAgo('stopped', 11);
  },
  says: { 'galaxy-notify doctor': /paused/, 'galaxy-notify bridge status': /paused/ },
  cleanUp: () => untilRoute(id, 'email', 'published'),
});

drill({
  alarm: 'NotificationIntakeLate',
  fault: 'intake is paused',
  inject: async () => {
    await steering().bridge.pause({ reason: 'maintenance', ...BY });
    id = await publishAgo('late', 2);
  },
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
  prepare: async () => {
    id = await waitingRoute('taken-up');
  },
  inject: async () => {
    const { client } = ground.slot;
    for (const workflowId of [notificationWorkflowId(id), `${notificationWorkflowId(id)}/email:user:user-1`])
      await client.workflow
        .getHandle(workflowId)
        .terminate('drill')
        .catch(() => undefined);
    await age('routes', 'next_attempt_at', 10);
    await steering().channels.resume('email', BY);
  },
  says: { 'temporal workflow list': /intent-reconciliation/ },
  cleanUp: () => untilRoute(id, 'email', 'published'),
});

drill({
  alarm: 'NotificationEntriesRestored',
  fault: 'Redis lost an outbound stream',
  prepare: async () => {
    id = await publish('restored');
    await untilRoute(id, 'email', 'published');
    await outboundSeen(ground.slot);
  },
  inject: () => ground.slot.redis.del(MAIL),
  says: { 'temporal workflow list': /outboundRepair/ },
});

drill({
  alarm: 'NotificationRepairStuck',
  fault: 'a stream lost entries while its channel was paused',
  prepare: async () => {
    id = await publish('stuck');
    await untilRoute(id, 'email', 'published');
    await outboundSeen(ground.slot);
    await steering().channels.pause('email', BY);
  },
  inject: async () => {
    await ground.slot.redis.del(MAIL);
    await eventually('a suspicion', async () => {
      const { rowCount } = await age('outbound_streams', 'suspect_since', 11);
      return (rowCount ?? 0) > 0;
    });
  },
  says: { 'galaxy-notify doctor': /mail:delivery_commands/, 'galaxy-notify channels list': /paused/ },
});

drill({
  alarm: 'NotificationOutcomesLate',
  fault: 'Redis refuses entries of the stream of outcomes',
  inject: async () => {
    await spoil(OUTCOMES);
    await publish('outcome');
    await eventually('an event to wait', async () => {
      const { rowCount } = await ground.slot.db.query(
        "UPDATE notification.outcomes SET written_at = written_at - interval '2 minutes' WHERE relayed_at IS NULL",
      );
      return (rowCount ?? 0) > 0;
    });
  },
  deeds: [{ words: 'which names the reason, and fix it', act: () => unspoil(OUTCOMES) }],
  cleanUp: () => unspoil(OUTCOMES),
});

describe('outboxes', () => {
  let shop: Shop;
  let relay: OutboxRelay;
  let meters: MeterProvider;
  let redis: Redis;
  let db: Pool;
  let proxy: Awaited<ReturnType<typeof startTcpProxy>>;
  /** So long may Redis lose what was published, before a repeat might have a second effect, ms. */
  const KEY_LIFETIME_MS = 1;

  beforeAll(async () => {
    const { slot, prometheus } = ground;
    shop = await createShop(slot);
    proxy = await startTcpProxy(slot.endpoints.redis);
    redis = new Redis({
      host: '127.0.0.1',
      port: proxy.port,
      db: slot.slot,
      maxRetriesPerRequest: 0,
      enableOfflineQueue: false,
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
    db = openDatabase(env().NOTIFICATION_OUTBOX_POSTGRES_DSN);
    relay = await startOutboxRelay({
      db,
      redis,
      pollMs: 50,
      keyLifetimeMs: KEY_LIFETIME_MS,
      meter: meters.getMeter('shop'),
    });
  });
  afterAll(async () => {
    await relay.stop();
    await db.end();
    await meters.shutdown();
    redis.disconnect();
    await proxy.stop();
    await shop.drop();
  });
  const env = () => {
    const dsn = new URL(ground.slot.endpoints.postgresDsn);
    dsn.pathname = `/${shop.database}`;
    return { NOTIFICATION_OUTBOX_POSTGRES_DSN: dsn.href };
  };
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
    deeds: [{ words: 'which names the reason, and fix it', act: () => proxy.set({ kind: 'open' }) }],
    cleanUp: () => proxy.set({ kind: 'open' }),
  });

  drill({
    alarm: 'NotificationOutboxSetAside',
    fault: 'Redis lost what a relay had published, long after',
    prepare: () => steering().bridge.pause({ reason: 'drill', ...BY }),
    inject: async () => {
      await write('outbox-set-aside');
      await eventually('it to be in the stream', async () => {
        const { rowCount } = await shop.db.query(
          "SELECT FROM notification_outbox.intents WHERE state = 'published'",
        );
        return (rowCount ?? 0) > 0;
      });
      await ground.slot.redis.del(INTENTS);
    },
    env,
    says: { 'galaxy-notify outbox status': /set_aside/ },
    codes: { 'galaxy-notify outbox status': 1 },
    deeds: [
      {
        words: 'publish it again',
        act: () => shop.db.query(statementIn('docs/producers/outbox.md', 'UPDATE')),
      },
    ],
    cleanUp: () => steering().bridge.resume(BY),
  });
});

drill({
  alarm: 'NotificationRedisMayEvict',
  fault: "Redis' policy was changed",
  inject: () => ground.slot.redis.config('SET', 'maxmemory-policy', 'allkeys-lru'),
  says: { 'galaxy-notify doctor': /maxmemory-policy/ },
  deeds: [
    {
      words: 'set `maxmemory-policy noeviction`',
      act: () => ground.slot.redis.config('SET', 'maxmemory-policy', 'noeviction'),
    },
  ],
  cleanUp: () => ground.slot.redis.config('SET', 'maxmemory-policy', 'noeviction'),
});

drill({
  alarm: 'NotificationStreamIdsAhead',
  fault: 'a producer appended an entry with the last possible id',
  inject: () => ground.slot.redis.xadd(INTENTS, LAST_ENTRY_ID, 'a', 'b'),
  says: { 'galaxy-notify doctor': /stream_ids_ahead/, 'galaxy-notify bridge status': /stream_ids_ahead/ },
  deeds: [
    {
      words: 'set the ids back',
      act: () =>
        ground.slot.redis.eval(
          readFileSync('deploy/redis/set-ids-back.lua', 'utf8'),
          1,
          INTENTS,
          LAST_ENTRY_ID,
        ),
    },
  ],
});

drill({
  alarm: 'NotificationRoutesOverdue',
  fault: 'a channel was paused and forgotten',
  inject: async () => {
    id = await waitingRoute('overdue');
    await age('routes', 'next_attempt_at', 6);
  },
  examples: example,
  says: { 'galaxy-notify channels list': /paused/ },
  cleanUp: () => untilRoute(id, 'email', 'published'),
});

drill({
  alarm: 'NotificationDeadLetters',
  fault: 'Redis refused to append e-mail commands for longer than the ladder',
  inject: async () => {
    await spoil(MAIL);
    id = await publish('dead');
    await untilRoute(id, 'email', 'dead_letter');
  },
  examples: example,
  says: {
    'galaxy-notify dead-letters list': /user-1/,
    'galaxy-notify notifications show': /mail_stream_publish_failed/,
    'galaxy-notify operations list': /replay/,
  },
  deeds: [{ words: 'remove the cause', act: () => unspoil(MAIL), before: 'galaxy-notify replay' }],
  cleanUp: async () => {
    await unspoil(MAIL);
    await untilRoute(id, 'email', 'published');
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

drill({
  alarm: 'NotificationPublishingDeferred',
  fault: 'fewer replicas of Redis than are asked for have what was handed off',
  inject: async () => {
    await ground.killAll();
    await ground.start({ NOTIFICATION_REDIS_MIN_REPLICAS: '1' });
  },
  load: async () => {
    id = await publish(`deferred-${Date.now()}`);
  },
  says: { 'galaxy-notify doctor': /replica/ },
  env: () => ({ NOTIFICATION_REDIS_MIN_REPLICAS: '1' }),
  deeds: [
    {
      words: 'set `NOTIFICATION_REDIS_MIN_REPLICAS` lower and restart',
      act: async () => {
        await ground.killAll();
        await ground.start();
      },
    },
  ],
  cleanUp: () => untilRoute(id, 'email', 'published'),
});

drill({
  alarm: 'NotificationAcceptanceLate',
  fault: 'the User Service does not answer about a recipient',
  inject: async () => {
    ground.slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
    id = await publish('unanswered', ['user-9']);
    await eventually('the intent to wait', async () => {
      const { rowCount } = await age('intents', 'read_at', 11);
      return (rowCount ?? 0) > 0;
    });
  },
  examples: example,
  says: { 'galaxy-notify intents waiting': /user-9|503/ },
  cleanUp: async () => ground.slot.userService.heal(),
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
  examples: example,
  deeds: [
    { words: 'have their records fixed', act: async () => ground.slot.userService.heal() },
    { words: 'publish a new intent for them', act: () => publish('usable', ['user-8']) },
  ],
});

/** Each user is asked about once. */
const FIRST_ASKED = 15_000;
let asked = 0;

drill({
  alarm: 'NotificationUserServiceFails',
  fault: 'the User Service answers 503',
  inject: async () => {
    ground.slot.userService.fail({ failure: { kind: 'status', status: 503 } });
  },
  load: async () => {
    asked += 1;
    // One that exists, or its intent is refused once the User Service answers.
    id = await publish(`unanswered-${asked}`, [`user-${FIRST_ASKED + asked}`]);
  },
  deeds: [{ words: 'fix the User Service', act: async () => ground.slot.userService.heal() }],
  cleanUp: async () => {
    ground.slot.userService.heal();
    await untilRoute(id, 'email', 'published');
  },
});

drill({
  alarm: 'NotificationMalformedIntents',
  fault: 'a producer appends what the contract forbids',
  inject: async () => {
    id = (await ground.slot.redis.xadd(
      INTENTS,
      '*',
      'notification_type',
      'game.turn.ready',
      'producer',
      'game_master',
    ))!;
  },
  examples: example,
});

drill({
  alarm: 'NotificationMalformedManyKept',
  fault: 'a producer sends what is refused without end',
  inject: () =>
    ground.slot.db.query(`
      INSERT INTO notification.malformed_intents (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
      SELECT n || '-9', 'missing_field', 'x', '{}', now() FROM generate_series(1, 100000) n`),
  deeds: [
    {
      words: 'shorter retention',
      act: () =>
        ground.slot.db.query("DELETE FROM notification.malformed_intents WHERE stream_entry_id LIKE '%-9'"),
    },
  ],
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
