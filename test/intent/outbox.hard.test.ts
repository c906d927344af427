/** A Redis that dies with all its data, again and again under load: the outbox and the rows of routes fill it again. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { OutboxRelay } from '../../client/outbox.ts';
import { outboxStatus, publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { RedisServers } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { outboundIds } from '../service-process.ts';
import type { Shop } from './shop.ts';
import { createShop } from './shop.ts';
import { turnIntent } from './entries.ts';

/** Before each death, ms: shorter and longer than an outbound stream takes to settle, which is six leases. */
const PAUSES_MS = [500, 4_000, 13_000, 2_500, 300, 12_500, 3_500, 800, 13_500, 1_000];
const LEASE_MS = 2_000;
/** Between two intents of the producer, ms. */
const PACE_MS = 100;
const LIMIT_MS = 300_000;

let slot: Slot;
let redis: RedisServers;
let producerDatabase: Shop;
let shop: Shop['db'];
let relay: OutboxRelay | undefined;
let client: Redis | undefined;

beforeEach(async () => {
  slot = await takeSlot();
  redis = await createRedisServers();
  producerDatabase = await createShop(slot);
  shop = producerDatabase.db;
});
afterEach(async () => {
  await relay?.stop();
  client?.disconnect();
  await slot.stopServices();
  await redis.stop();
  await producerDatabase.drop();
  await slot.release();
});

test(
  'I75 I46 a Redis that is killed with its data ten times under load loses no intent of an outbox, and none has two effects',
  async () => {
    let server = await redis.start();
    const address = await redis.proxyTo(server);
    client = new Redis({ host: address.host, port: address.port, maxRetriesPerRequest: 0 });
    client.on('error', () => undefined);
    await slot.startService(
      {
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_LEASE_TTL: `${LEASE_MS}ms`,
        NOTIFICATION_REDIS_OPERATION_TIMEOUT: `${LEASE_MS}ms`,
        // A budget that is spent while there is no Redis would be another story.
        NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
        NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
      },
      { redis: { host: address.host, port: address.port } },
    );
    relay = await startOutboxRelay({ db: shop, redis: client, pollMs: 100 });

    const producing = new AbortController();
    let written = 0;
    const producer = (async () => {
      while (!producing.signal.aborted) {
        const idempotencyKey = `key-${written}`;
        await publishToOutbox(shop, turnIntent(idempotencyKey, undefined, { turn_number: written + 1 }));
        written += 1;
        await sleep(PACE_MS);
      }
    })();
    // What a stream loses that no process has looked at yet is not known.
    await eventually('both outbound streams to be watched', async () => {
      const { rows } = await slot.db.query('SELECT FROM notification.outbound_streams');
      return rows.length === 2;
    });
    for (const pauseMs of PAUSES_MS) {
      await sleep(pauseMs);
      await server.server.stop();
      server = await redis.start();
      address.moveTo(server.address);
      address.cut();
    }
    producing.abort();
    await producer;

    await eventually(
      'the service to pass all of them',
      async () => {
        const { counts } = await outboxStatus(shop);
        return counts.pending + counts.published === 0 && counts;
      },
      LIMIT_MS,
    );
    const recorded = async () => {
      const { rows } = await slot.db.query<{ id: string; key: string }>(
        'SELECT notification_id AS id, idempotency_key AS key FROM notification.records',
      );
      return rows;
    };
    await eventually(
      'all to be accepted',
      async () => {
        const { length } = await recorded();
        if (length < written) throw new Error(`${length} of ${written} are`);
        return true;
      },
      LIMIT_MS,
      500,
    );
    const rows = await recorded();
    // One for each key, none twice.
    expect(rows.map(({ key }) => key).sort()).toEqual(
      Array.from({ length: written }, (_, index) => `key-${index}`).sort(),
    );
    const wanted = rows.flatMap(({ id }) => [`${id}/email:user:user-1`, `${id}/push:user:user-1`]);
    // The streams have no reader: whatever a Redis of before had must be in the last one.
    await eventually(
      'all deliveries to be there',
      async () => {
        const there = new Set(await outboundIds(server.client));
        const missing = wanted.filter((id) => !there.has(id));
        if (missing.length > 0)
          throw new Error(`${missing.length} of ${wanted.length} are not: ${missing.join(', ')}`);
        return true;
      },
      LIMIT_MS,
      500,
    );
    expect(new Set(await outboundIds(server.client)).size).toBe(wanted.length);
  },
  3 * LIMIT_MS,
);
