/**
 * A Redis that changes under load: sentinels make another server the master, or it dies with all its data and the outbox and the
 * rows of routes fill the next one.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RedisOptions } from 'ioredis';
import { Redis } from 'ioredis';
import type { OutboxRelay } from '../../client/outbox.ts';
import { publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import type { RedisPlace } from '../../config/variables.ts';
import { LOOPBACK, freePort } from '../../dev/servers/ports.ts';
import { findRedis } from '../../dev/servers/redis.ts';
import type { RunningServer } from '../../dev/servers/server-process.ts';
import { startServer } from '../../dev/servers/server-process.ts';
import { cliOfEachTest } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { RedisServer, RedisServers } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import type { Shop } from './shop.ts';
import { createShop } from './shop.ts';
import { turnIntent } from './entries.ts';

const NAME = 'notifications';
const SENTINELS = 3;
const PASSWORD = 'sentinels-5cf0a91be37d';
/** Everything is there within a minute on a machine that has little else to do. */
const LIMIT_MS = 240_000;
jest.setTimeout(5 * LIMIT_MS);
/** Between two intents of the producer, and how long it produces before and after a change. */
const [PACE_MS, AROUND_MS] = [100, 2_000];
const PRODUCER = 'producer';
/** Before each death, ms: shorter and longer than an outbound stream takes to settle, which is six leases. */
const PAUSES_MS = [500, 4_000, 13_000, 2_500, 300, 12_500, 3_500, 800, 13_500, 1_000];

let slot: Slot;
let redis: RedisServers;
let sentinels: Sentinels | undefined;
let relay: OutboxRelay | undefined;
/** The producer's own database, and its connection to Redis. */
let shop: Shop;
let client: Redis | undefined;

beforeEach(async () => {
  slot = await takeSlot();
  redis = await createRedisServers();
  shop = await createShop(slot, slot.ownerDsn);
});
afterEach(async () => {
  await relay?.stop();
  client?.disconnect();
  relay = client = undefined;
  await slot.stopServices();
  await sentinels?.stop();
  sentinels = undefined;
  await redis.stop();
  await shop.drop();
  await slot.release();
});

const cli = cliOfEachTest(() => slot);

type Sentinels = Awaited<ReturnType<typeof startSentinels>>;

/** @param said field, value, ... */
const has = (said: string[] = [], wanted: Record<string, string>): boolean =>
  Object.entries(wanted).every(([field, value]) => said[said.indexOf(field) + 1] === value);

/** As many as outvote one, which watch over a master and its replicas. @param password that they ask for. */
async function startSentinels(master: { host: string; port: number }, password?: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'redis-sentinels-'));
  const command = await findRedis(() => undefined);
  const running: RunningServer[] = [];
  const clients: Redis[] = [];
  const addresses: { host: string; port: number }[] = [];
  for (let at = 1; at <= SENTINELS; at += 1) {
    const port = await freePort();
    const file = path.join(folder, `sentinel-${at}.conf`);
    // They write what they learn into it.
    await writeFile(
      file,
      [
        `bind ${LOOPBACK}`,
        `port ${port}`,
        `dir ${folder}`,
        ...(password === undefined ? [] : [`requirepass ${password}`, `sentinel sentinel-pass ${password}`]),
        `sentinel monitor ${NAME} ${master.host} ${master.port} 2`,
        `sentinel down-after-milliseconds ${NAME} 1000`,
        `sentinel failover-timeout ${NAME} 5000`,
        '',
      ].join('\n'),
    );
    const client = new Redis({
      ...{ host: LOOPBACK, port, lazyConnect: true, enableReadyCheck: false, maxRetriesPerRequest: 0 },
      ...(password === undefined ? {} : { password }),
    });
    client.on('error', () => undefined);
    clients.push(client);
    running.push(
      await startServer({
        name: `sentinel-${at}`,
        title: 'Redis Sentinel',
        dataDir: folder,
        command,
        args: [file, '--sentinel'],
        ports: [{ port, name: 'Redis Sentinel' }],
        ready: () => client.ping().then(() => undefined),
        report: () => undefined,
      }),
    );
    addresses.push({ host: LOOPBACK, port });
  }

  /** Of those that answer. */
  async function saidByAll<T>(...words: [string, ...string[]]): Promise<T[]> {
    const results = await Promise.allSettled(clients.map((client) => client.call('SENTINEL', ...words)));
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value as T] : []));
  }

  async function masterOfMost(): Promise<string> {
    const said = (await saidByAll<string[]>('get-master-addr-by-name', NAME)).map((parts) => parts.join(':'));
    const most = said.find((one) => said.filter((other) => other === one).length >= 2);
    if (most === undefined) throw new Error(`they do not agree: ${said.join(', ')}`);
    return most;
  }

  return {
    addresses,
    /** As `NOTIFICATION_REDIS_SENTINELS` has them. */
    list: addresses.map(({ host, port }) => `${host}:${port}`).join(','),
    /** Where the master is by the word of most of them, as host:port. */
    master: masterOfMost,

    awaitOther: (than: string) =>
      eventually(
        `another master than ${than}`,
        async () => {
          const now = await masterOfMost();
          return now !== than && now;
        },
        LIMIT_MS,
      ),

    /** Until all of them know each other and a replica that follows, which a failover needs. */
    awaitReplica: () =>
      eventually(
        'all sentinels to know each other and the replica',
        async () => {
          const masters = await saidByAll<string[]>('master', NAME);
          const replicas = await saidByAll<string[][]>('replicas', NAME);
          return (
            masters.every((said) => has(said, { 'num-other-sentinels': '2', flags: 'master' })) &&
            replicas.every(
              ([said, ...more]) =>
                more.length === 0 && has(said, { flags: 'slave', 'master-link-status': 'ok' }),
            )
          );
        },
        LIMIT_MS,
      ),

    /** Makes the replica the master while the old one lives. */
    async switchOver() {
      await eventually(
        'a sentinel to begin',
        async () => (await clients[0]!.call('SENTINEL', 'failover', NAME)) === 'OK',
        LIMIT_MS,
      );
    },

    async stopOne() {
      clients.at(-1)!.disconnect();
      await running.at(-1)!.stop();
    },

    async stop() {
      for (const client of clients) client.disconnect();
      await Promise.all(running.map((server) => server.stop()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

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
});

const startService = (place: RedisPlace, env: Record<string, string> = {}) =>
  slot.startService(
    {
      NOTIFICATION_REDIS_DB: '0',
      NOTIFICATION_ROUTE_LEASE_TTL: '2s',
      NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s',
      // An outage without a master must use up no attempts.
      NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
      NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
      ...env,
    },
    { redis: place },
  );
const startBehind = (watchers: Sentinels) =>
  startService({ sentinels: watchers.addresses, master: NAME }, through(watchers));

/** A producer whose outbox is relayed. */
async function startProducer(
  connection: Pick<RedisOptions, 'host' | 'port' | 'sentinels' | 'name' | 'sentinelPassword'>,
) {
  client = new Redis({
    ...{ ...connection, maxRetriesPerRequest: 0, connectionName: PRODUCER },
    reconnectOnError: ({ message }) => message.startsWith('READONLY'),
  });
  client.on('error', () => undefined);
  relay = await startOutboxRelay({ db: shop.db, redis: client, pollMs: 100 });
  let written = 0;
  return {
    /** Produces from before until after what is done. @returns how many intents there are by then. */
    async around(act: () => Promise<void>): Promise<number> {
      const ending = new AbortController();
      const producing = (async () => {
        while (!ending.signal.aborted) {
          const intent = turnIntent(`key-${written}`, undefined, { turn_number: written + 1 });
          await publishToOutbox(shop.db, intent);
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
const startProducerBehind = ({ addresses }: Sentinels) =>
  startProducer({ sentinels: addresses, name: NAME, sentinelPassword: PASSWORD });

/** Until all intents are accepted, one for each key, and the server has their deliveries. @returns what it has to have, sorted. */
async function allArrived(server: RedisServer, count: number): Promise<string[]> {
  const recorded = async () =>
    (
      await slot.db.query<{ id: string; key: string }>(
        'SELECT notification_id AS id, idempotency_key AS key FROM notification.records',
      )
    ).rows;
  await eventually(
    `the deliveries of ${count} intents`,
    async () => {
      const [{ length: accepted }, ids] = await Promise.all([recorded(), outboundIds(server.client)]);
      if (accepted === count && new Set(ids).size >= 2 * count) return true;
      throw new Error(`${accepted} accepted, ${ids.length} delivered`);
    },
    LIMIT_MS,
  );
  const rows = await recorded();
  expect(rows.map(({ key }) => key).sort()).toEqual(
    Array.from({ length: count }, (_, index) => `key-${index}`).sort(),
  );
  return deliveriesTo(
    'user-1',
    rows.map(({ id }) => id),
  );
}

const serverAt = (servers: RedisServer[], address: string): RedisServer =>
  servers.find(({ address: { host, port } }) => `${host}:${port}` === address)!;

test('I91 I46 I75 a switchover and the death of a master under load: every intent arrives once, and doctor shows the master', async () => {
  const master = await redis.start();
  const servers = [master, await startReplica(master.address)];
  sentinels = await startSentinels(master.address, PASSWORD);
  await sentinels.awaitReplica();
  await startBehind(sentinels);
  const producer = await startProducerBehind(sentinels);
  const ofService = {
    ...{ NOTIFICATION_REDIS_MASTER_ADDR: '', NOTIFICATION_REDIS_DB: '0' },
    ...through(sentinels),
  };
  const shown = (sentinelsFound: object, redisFound: object, changes = {}) =>
    cli.untilFound(
      { 'Redis: sentinels': sentinelsFound, Redis: redisFound },
      { ...ofService, ...changes },
      LIMIT_MS,
    );
  let masterNow = await sentinels.master();
  const arrivedAfter = async (change: () => Promise<unknown>) => {
    const count = await producer.around(async () => {
      await change();
      masterNow = await sentinels!.awaitOther(masterNow);
    });
    const server = serverAt(servers, masterNow);
    const wanted = await allArrived(server, count);
    expect(await outboundIds(server.client)).toEqual(wanted);
  };
  await arrivedAfter(() => sentinels!.switchOver());
  await sentinels.awaitReplica();
  const ok = { status: 'ok' };
  await shown({ ...ok, detail: `all 3 can agree on a failover of ${NAME}` }, ok);

  await arrivedAfter(async () => process.kill(serverAt(servers, masterNow).server.pid, 'SIGKILL'));
  await sentinels.stopOne();
  await shown({ status: 'warn', detail: expect.stringContaining('ECONNREFUSED') }, ok);
  await shown(
    { status: 'error', detail: expect.stringContaining('No such master with that name') },
    { detail: expect.stringContaining('the sentinels know no master of the name') },
    through(sentinels, 'unknown'),
  );
});

test('I91 I46 a master that is cut off from the sentinels alone is left for the new one, and what it took meanwhile arrives there', async () => {
  const master = await redis.start();
  // New connections to it can be refused, while those that are open go on.
  const address = await redis.proxyTo(master);
  const replica = await startReplica(address);
  sentinels = await startSentinels(address, PASSWORD);
  await sentinels.awaitReplica();
  await startBehind(sentinels);
  const producer = await startProducerBehind(sentinels);
  const count = await producer.around(async () => {
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
    expect(await master.client.role()).toContain('master');
  });

  await address.set({ kind: 'open' });
  await eventually(
    'the old master to follow the new one',
    async () => String((await master.client.role())[0]) === 'slave',
    LIMIT_MS,
  );
  const wanted = await allArrived(replica, count);
  expect(await outboundIds(replica.client)).toEqual(wanted);
});

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
  sentinels = await startSentinels(master.address);
  await expect(startService({ sentinels: [{ host: '127.0.0.1', port: 1 }], master: NAME })).rejects.toThrow(
    /cannot reach Redis notifications of the sentinels 127\.0\.0\.1:1 \(NOTIFICATION_REDIS_SENTINELS\): no sentinel answers/,
  );
  await expect(startService({ sentinels: sentinels.addresses, master: 'unknown' })).rejects.toThrow(
    /the sentinels know no master of the name at the end of NOTIFICATION_REDIS_SENTINELS/,
  );
});

test('I75 I46 a Redis that is killed with its data ten times under load loses no intent of an outbox, and none has two effects', async () => {
  let server = await redis.start();
  const address = await redis.proxyTo(server);
  const place = { host: address.host, port: address.port };
  await startService(place);
  const producer = await startProducer(place);
  const count = await producer.around(async () => {
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
  });
  // The streams have no reader: whatever a Redis of before had must be in the last one.
  const wanted = await allArrived(server, count);
  expect([...new Set(await outboundIds(server.client))]).toEqual(wanted);
});
