/** Redis servers that die, and replicas that lagged behind in their place: what was acknowledged and is gone comes back. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { RedisServers } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';

const INTENTS = 'notification:intents';
/** Intents whose deliveries the replica has, and has not; each is a push and an e-mail: 60 entries. */
const [REPLICATED, LOST] = [10, 20];
const LIMIT_MS = 120_000;

let slot: Slot;
let redis: RedisServers;
beforeEach(async () => {
  slot = await takeSlot();
  redis = await createRedisServers();
});
afterEach(async () => {
  await slot.stopServices();
  await redis.stop();
  await slot.release();
});

const published = (ids: string[]) =>
  eventually(
    'all routes to be published',
    async () => {
      const { rows } = await slot.db.query(
        "SELECT FROM notification.routes WHERE notification_id = ANY ($1) AND status = 'published'",
        [ids],
      );
      return rows.length === 2 * ids.length;
    },
    LIMIT_MS,
  );

const bothTrusted = () =>
  eventually(
    'both streams to be trusted again',
    async () => {
      const { rows } = await slot.db.query<{ trusted: number }>(
        'SELECT count(*)::int AS trusted FROM notification.outbound_streams WHERE suspect_since IS NULL',
      );
      return rows[0]!.trusted === 2;
    },
    LIMIT_MS,
  );

test(
  'I46 security-1 a failover to a replica with 20 of 60 entries loses none: 60 of 60 arrive, each id once',
  async () => {
    const [master, replica] = await Promise.all([redis.start(), redis.start()]);
    const [address, link] = await Promise.all([redis.proxyTo(master), redis.follow(replica, master)]);
    await slot.startService(
      {
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_LEASE_TTL: '2s',
        NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s',
      },
      { redis: { host: address.host, port: address.port } },
    );
    const ids: string[] = [];
    const publish = async (count: number) => {
      for (let i = 0; i < count; i += 1) ids.push(await publishTurn(master.client, `key-${ids.length}`));
      await published(ids);
    };
    await publish(REPLICATED);
    await eventually(
      'the replica to have all of it',
      async () => (await outboundIds(replica.client)).length === 20,
    );
    await link.set({ kind: 'refuse' });
    link.cut();
    await publish(LOST);
    expect(await outboundIds(master.client)).toHaveLength(60);

    await master.server.stop();
    await replica.client.replicaof('NO', 'ONE');
    address.moveTo(replica.address);
    expect(await outboundIds(replica.client)).toHaveLength(20);

    await eventually(
      'every delivery to be in the surviving streams',
      async () => (await outboundIds(replica.client)).length >= 60,
      LIMIT_MS,
    );
    await bothTrusted();
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
    const after = await publishTurn(replica.client, 'after');
    await published([after]);
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', [...ids, after]));
  },
  3 * LIMIT_MS,
);

/** Shorter than a repair takes, so that some meet one that is under way. */
const [FAILOVERS, BETWEEN_MS, LAG_MS, PUBLISH_EVERY_MS] = [5, 7_000, 1_000, 150];

test(
  'I46 security-1 under load, failovers to replicas that lag lose nothing and leave each id once in the surviving streams',
  async () => {
    let [master, replica] = await Promise.all([redis.start(), redis.start()]);
    const address = await redis.proxyTo(master);
    let link = await redis.follow(replica, master);
    await slot.startService(
      {
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_LEASE_TTL: '2s',
        NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s',
        // An outage without a master must use up no attempts.
        NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
        NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
      },
      { redis: { host: address.host, port: address.port } },
    );
    const producer = startProducer(address);
    let lostEntries = 0;
    try {
      for (let failover = 0; failover < FAILOVERS; failover += 1) {
        await sleep(BETWEEN_MS);
        await link.set({ kind: 'refuse' });
        link.cut();
        await sleep(LAG_MS);
        await eventually('entries that the replica has not', async () => {
          const [there, here] = await Promise.all([master, replica].map(({ client }) => outboundIds(client)));
          return there!.length > here!.length;
        });
        const before = (await outboundIds(master.client)).length;
        await master.server.stop();
        lostEntries += before - (await outboundIds(replica.client)).length;
        await replica.client.replicaof('NO', 'ONE');
        address.moveTo(replica.address);
        await producer.repeatLost();
        master = replica;
        replica = await redis.start();
        link = await redis.follow(replica, master);
      }
      await producer.stop();
    } finally {
      producer.disconnect();
    }
    expect(lostEntries).toBeGreaterThan(0);

    const { keys } = producer;
    const ids = await eventually(
      'every intent to be published',
      async () => {
        const { rows } = await slot.db.query<{ id: string }>(
          `SELECT notification_id AS id
             FROM notification.records JOIN notification.routes USING (notification_id)
            WHERE idempotency_key = ANY ($1)
            GROUP BY notification_id
           HAVING bool_and(status = 'published')`,
          [keys],
        );
        return rows.length === keys.length && rows.map(({ id }) => id);
      },
      LIMIT_MS,
    );
    const all = deliveriesTo('user-1', ids);
    await eventually(
      'every delivery to be in the surviving streams',
      async () => (await outboundIds(master.client)).length >= all.length,
      LIMIT_MS,
    );
    await bothTrusted();
    expect(await outboundIds(master.client)).toEqual(all);
    console.info(`${keys.length} intents, ${FAILOVERS} failovers, ${lostEntries} entries lost and put back`);
  },
  4 * LIMIT_MS,
);

/** Publishes all the time; what fails or is lost is repeated with the same key, as an outbox does. */
function startProducer({ host, port }: { host: string; port: number }) {
  const client = new Redis({ host, port, db: 0, maxRetriesPerRequest: 0, enableOfflineQueue: false });
  client.on('error', () => undefined);
  const keys: string[] = [];
  const timer = setInterval(() => {
    const key = `key-${keys.length}`;
    keys.push(key);
    publishTurn(client, key).catch(() => undefined);
  }, PUBLISH_EVERY_MS);

  /** Until the stream that there is now has every key from before. */
  const repeatLost = () =>
    eventually('the producer to have repeated what was lost', async () => {
      const entries = await client.xrange(INTENTS, '-', '+');
      const kept = new Set(entries.map(([, fields]) => fields[fields.indexOf('idempotency_key') + 1]!));
      for (const key of keys.filter((one) => !kept.has(one))) await publishTurn(client, key);
      return true;
    });

  return {
    keys,
    repeatLost,
    async stop() {
      clearInterval(timer);
      await repeatLost();
    },
    disconnect() {
      clearInterval(timer);
      client.disconnect();
    },
  };
}
