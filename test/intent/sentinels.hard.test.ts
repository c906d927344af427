/** Redis behind sentinels, which make another server the master while intents come in. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { OutboxRelay } from '../../client/outbox.ts';
import { publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import { cliOfEachTest } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { Sentinels } from '../redis-sentinels.ts';
import { startSentinels } from '../redis-sentinels.ts';
import type { RedisServer, RedisServers } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import type { Shop } from './shop.ts';
import { createShop } from './shop.ts';
import { turnIntent } from './entries.ts';

const NAME = 'notifications';
const PASSWORD = 'sentinels-5cf0a91be37d';
/** Everything is there within a minute on a machine that has little else to do. */
const LIMIT_MS = 120_000;
/** Between two intents of the producer, and how long it produces before and after a change. */
const [PACE_MS, AROUND_MS] = [200, 2_000];
const PRODUCER = 'producer';

let slot: Slot;
let redis: RedisServers;
let sentinels: Sentinels | undefined;
let relay: OutboxRelay | undefined;
/** The producer's own database, and its connection to Redis. */
let producerDatabase: Shop;
let shop: Shop['db'];
let client: Redis | undefined;

beforeEach(async () => {
  slot = await takeSlot();
  redis = await createRedisServers();
  producerDatabase = await createShop(slot, slot.ownerDsn);
  shop = producerDatabase.db;
});
afterEach(async () => {
  await relay?.stop();
  client?.disconnect();
  relay = client = undefined;
  await slot.stopServices();
  await sentinels?.stop();
  sentinels = undefined;
  await redis.stop();
  await producerDatabase.drop();
  await slot.release();
});

const cli = cliOfEachTest(() => slot);

/** A replica of the server at an address, which sentinels find there. */
async function startReplica(of: { host: string; port: number }): Promise<RedisServer> {
  const replica = await redis.start();
  await replica.client.replicaof(of.host, of.port);
  await eventually('the replica to follow', async () =>
    (await replica.client.info('replication')).includes('master_link_status:up'),
  );
  return replica;
}

/** The environment of a client that comes through the sentinels. */
const through = ({ list }: Sentinels, name = NAME): Record<string, string> => ({
  NOTIFICATION_REDIS_SENTINELS: `${list}/${name}`,
  NOTIFICATION_REDIS_SENTINEL_PASSWORD: PASSWORD,
  NOTIFICATION_REDIS_DB: '0',
});

async function startService(watchers: Sentinels) {
  await slot.startService(
    {
      ...through(watchers),
      NOTIFICATION_ROUTE_LEASE_TTL: '2s',
      NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s',
      // An outage without a master must use up no attempts.
      NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
      NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
    },
    { redis: { sentinels: watchers.addresses, master: NAME } },
  );
}

/** A producer whose outbox is relayed through the sentinels. */
async function startProducer({ addresses }: Sentinels) {
  client = new Redis({
    ...{ sentinels: addresses, name: NAME, sentinelPassword: PASSWORD, maxRetriesPerRequest: 0 },
    connectionName: PRODUCER,
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
  });
  client.on('error', () => undefined);
  relay = await startOutboxRelay({ db: shop, redis: client, pollMs: 100 });
  let written = 0;
  return {
    /** Produces from before until after what is done. @returns how many intents there are by then. */
    async around(act: () => Promise<void>): Promise<number> {
      const ending = new AbortController();
      const producing = (async () => {
        while (!ending.signal.aborted) {
          const intent = turnIntent(`key-${written}`, undefined, { turn_number: written + 1 });
          await publishToOutbox(shop, intent);
          written += 1;
          await sleep(PACE_MS);
        }
      })();
      try {
        await sleep(AROUND_MS);
        await act();
        await sleep(AROUND_MS);
      } finally {
        ending.abort();
        await producing;
      }
      return written;
    },
  };
}

/** Until the server has both deliveries of as many intents, each once. @returns how many ms it took since `beganAt`. */
async function allArrived(server: RedisServer, count: number, beganAt: number): Promise<number> {
  const accepted = async () => {
    const { rows } = await slot.db.query<{ id: string }>(
      'SELECT notification_id AS id FROM notification.records',
    );
    return rows.map(({ id }) => id);
  };
  await eventually(
    `the deliveries of ${count} intents`,
    async () => {
      const [ids, { length }] = await Promise.all([accepted(), outboundIds(server.client)]);
      if (ids.length === count && length >= 2 * count) return true;
      throw new Error(`${ids.length} accepted, ${length} delivered`);
    },
    LIMIT_MS,
  );
  const tookMs = Date.now() - beganAt;
  expect(await outboundIds(server.client)).toEqual(deliveriesTo('user-1', await accepted()));
  return tookMs;
}

const serverAt = (servers: RedisServer[], address: string): RedisServer =>
  servers.find(({ address: { host, port } }) => `${host}:${port}` === address)!;

test(
  'I91 I46 I75 a switchover and the death of a master under load: every intent arrives once within a minute, and doctor shows the master',
  async () => {
    const master = await redis.start();
    const servers = [master, await startReplica(master.address)];
    sentinels = await startSentinels({ name: NAME, master: master.address, password: PASSWORD });
    await sentinels.awaitReplica();
    await startService(sentinels);
    const producer = await startProducer(sentinels);
    const ofService = { NOTIFICATION_REDIS_MASTER_ADDR: '', ...through(sentinels) };
    const shown = (sentinelsFound: object, redisFound: object, changes = {}) =>
      cli.untilFound(
        { 'Redis: sentinels': sentinelsFound, Redis: redisFound },
        { ...ofService, ...changes },
        LIMIT_MS,
      );
    let masterNow = await sentinels.master();
    let beganAt = 0;
    let count = await producer.around(async () => {
      beganAt = Date.now();
      await sentinels!.switchOver();
      masterNow = await sentinels!.awaitOther(masterNow);
    });
    const tookSwitch = await allArrived(serverAt(servers, masterNow), count, beganAt);

    await sentinels.awaitReplica();
    const ok = { status: 'ok' };
    await shown({ ...ok, detail: `all 3 can agree on a failover of ${NAME}` }, ok);

    let failedOverMs = 0;
    count = await producer.around(async () => {
      beganAt = Date.now();
      process.kill(serverAt(servers, masterNow).server.pid, 'SIGKILL');
      masterNow = await sentinels!.awaitOther(masterNow);
      failedOverMs = Date.now() - beganAt;
    });
    const tookDeath = await allArrived(serverAt(servers, masterNow), count, beganAt);

    await sentinels.stopOne();
    await shown({ status: 'warn', detail: expect.stringContaining('ECONNREFUSED') }, ok);
    await shown(
      { status: 'error', detail: expect.stringContaining('No such master with that name') },
      { detail: expect.stringContaining('the sentinels know no master of the name') },
      through(sentinels, 'unknown'),
    );
    console.info(
      `${count} intents; switchover: all within ${tookSwitch} ms; death: another master after ${failedOverMs} ms, all within ${tookDeath} ms`,
    );
  },
  5 * LIMIT_MS,
);

test(
  'I91 I46 a master that is cut off from the sentinels alone is left for the new one, and what it took meanwhile arrives there',
  async () => {
    const master = await redis.start();
    // New connections to it can be refused, while those that are open go on.
    const address = await redis.proxyTo(master);
    const replica = await startReplica(address);
    sentinels = await startSentinels({ name: NAME, master: address, password: PASSWORD });
    await sentinels.awaitReplica();
    await startService(sentinels);
    const producer = await startProducer(sentinels);
    let [beganAt, leftMs] = [0, 0];
    const count = await producer.around(async () => {
      beganAt = Date.now();
      await address.set({ kind: 'refuse' });
      const others = String(await master.client.client('LIST'))
        .split('\n')
        .filter((line) => /name=sentinel-|flags=S/.test(line));
      expect(others.length).toBeGreaterThanOrEqual(4);
      for (const line of others) await master.client.client('KILL', 'ID', Number(/^id=(\d+)/.exec(line)![1]));
      const now = await sentinels!.awaitOther(`${address.host}:${address.port}`);
      expect(now).toBe(`${replica.address.host}:${replica.address.port}`);
      // Nothing has told the service but the sentinels: the old master answers, and takes what the producer writes.
      expect(await master.client.role()).toContain('master');
      await eventually(
        'the service to have left the old master',
        async () => (await connectionsOfService(master)) === 0,
        LIMIT_MS,
      );
      leftMs = Date.now() - beganAt;
      expect(await master.client.role()).toContain('master');
    });

    await address.set({ kind: 'open' });
    await eventually(
      'the old master to follow the new one',
      async () => String((await master.client.role())[0]) === 'slave',
      LIMIT_MS,
    );
    const tookMs = await allArrived(replica, count, beganAt);
    console.info(
      `${count} intents; the old master was left after ${leftMs} ms; all there after ${tookMs} ms`,
    );
  },
  5 * LIMIT_MS,
);

/** All but those of the test, of its producer, of sentinels and of replicas. */
async function connectionsOfService({ client: administrator }: RedisServer): Promise<number> {
  const clients = String(await administrator.client('LIST')).split('\n');
  const own = `id=${String(await administrator.client('ID'))} `;
  return clients.filter(
    (line) =>
      line.includes(' flags=') &&
      !line.startsWith(own) &&
      !/ name=(producer|sentinel-\S*) | flags=\S*S/.test(line),
  ).length;
}

test('I91 I32 without a sentinel that answers, or that knows the master, a start fails immediately and says why', async () => {
  const master = await redis.start();
  sentinels = await startSentinels({ name: NAME, master: master.address });
  const start = (place: { sentinels: { host: string; port: number }[]; master: string }) =>
    slot.startService({ NOTIFICATION_REDIS_DB: '0' }, { redis: place });

  await expect(start({ sentinels: [{ host: '127.0.0.1', port: 1 }], master: NAME })).rejects.toThrow(
    /cannot reach Redis notifications of the sentinels 127\.0\.0\.1:1 \(NOTIFICATION_REDIS_SENTINELS\): no sentinel answers/,
  );
  await expect(start({ sentinels: sentinels.addresses, master: 'unknown' })).rejects.toThrow(
    /the sentinels know no master of the name at the end of NOTIFICATION_REDIS_SENTINELS/,
  );
});
