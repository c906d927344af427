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
import { given } from '../../api/given.ts';
import type { OutboxRelay } from '../../client/outbox.ts';
import { publishToOutbox, startOutboxRelay } from '../../client/outbox.ts';
import type { RedisPlace } from '../../config/variables.ts';
import { LOOPBACK, freePort } from '../../dev/servers/ports.ts';
import { findRedis } from '../../dev/servers/redis.ts';
import type { RunningServer } from '../../dev/servers/server-process.ts';
import { startServer } from '../../dev/servers/server-process.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { ofEachTest } from '../of-tests.ts';
import type { RedisServer } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { createShop } from './shop.ts';
import { turnIntent } from './entries.ts';
import { countOf } from './rows.ts';

const NAME = 'notifications';
const PASSWORD = 'sentinels-5cf0a91be37d';
/** Everything is there within a minute on a machine that has little else to do. */
const LIMIT_MS = 240_000;
jest.setTimeout(5 * LIMIT_MS);
/** Between two intents of the producer, and how long it produces before and after a change. */
const [PACE_MS, AROUND_MS] = [100, 2_000];
const PRODUCER = 'producer';
/** Before each death, ms: shorter and longer than an outbound stream takes to settle, which is six leases. */
const PAUSES_MS = [500, 4_000, 13_000, 2_500, 300, 12_500, 3_500, 800, 13_500, 1_000];

let sentinels: Sentinels | undefined;
let relay: OutboxRelay | undefined;
/** The producer's connection to Redis. */
let client: Redis | undefined;
// The services end before the servers that they use.
afterEach(async () => {
  await relay?.stop();
  client?.disconnect();
  await slot.stopServices();
  await sentinels?.stop();
  relay = client = sentinels = undefined;
});
const slot = slotOfEachTest();
const redis = ofEachTest(createRedisServers, (servers) => servers.stop());
/** The producer's own database. */
const shop = ofEachTest(
  () => createShop(slot, slot.ownerDsn),
  (made) => made.drop(),
);
const cli = cliOfEachTest(() => slot);

type Sentinels = Awaited<ReturnType<typeof startSentinels>>;
type Address = RedisServer['address'];

const inTime = <T>(what: string, probe: () => Promise<T | undefined | false>) =>
  eventually(what, probe, LIMIT_MS);

/** @param said field, value, ... */
const has = (said: string[] = [], wanted: Record<string, string>): boolean =>
  Object.entries(wanted).every(([field, value]) => said[said.indexOf(field) + 1] === value);

/** Three, which outvote one, and watch over a master and its replicas. @param password that they ask for. */
async function startSentinels(master: Address, password?: string) {
  const folder = await mkdtemp(path.join(tmpdir(), 'redis-sentinels-'));
  const command = await findRedis(() => undefined);
  const running: { server: RunningServer; client: Redis; address: Address }[] = [];
  for (const name of ['sentinel-1', 'sentinel-2', 'sentinel-3']) {
    const address = { host: LOOPBACK, port: await freePort() };
    const file = path.join(folder, `${name}.conf`);
    const secrets = password ? [`requirepass ${password}`, `sentinel sentinel-pass ${password}`] : [];
    const lines = [
      `bind ${LOOPBACK}`,
      `port ${address.port}`,
      `dir ${folder}`,
      ...secrets,
      `sentinel monitor ${NAME} ${master.host} ${master.port} 2`,
      `sentinel down-after-milliseconds ${NAME} 1000`,
      `sentinel failover-timeout ${NAME} 5000`,
    ];
    // They write what they learn into it.
    await writeFile(file, `${lines.join('\n')}\n`);
    const client = new Redis({
      ...{ ...address, lazyConnect: true, enableReadyCheck: false, maxRetriesPerRequest: 0 },
      ...given({ password }),
    });
    client.on('error', () => undefined);
    const server = await startServer({
      ...{ name, title: 'Redis Sentinel', dataDir: folder, command, args: [file, '--sentinel'] },
      ports: [{ port: address.port, name: 'Redis Sentinel' }],
      ready: () => client.ping().then(() => undefined),
      report: () => undefined,
    });
    running.push({ server, client, address });
  }

  /** Of those that answer. */
  async function saidByAll<T>(...words: [string, ...string[]]): Promise<T[]> {
    const results = await Promise.allSettled(running.map(({ client }) => client.call('SENTINEL', ...words)));
    return results.flatMap((result) => (result.status === 'fulfilled' ? [result.value as T] : []));
  }

  /** Where the master is by the word of most of them, as host:port. */
  async function masterOfMost(): Promise<string> {
    const said = (await saidByAll<string[]>('get-master-addr-by-name', NAME)).map((parts) => parts.join(':'));
    const most = said.find((one) => said.filter((other) => other === one).length >= 2);
    if (most === undefined) throw new Error(`they do not agree: ${said.join(', ')}`);
    return most;
  }

  return {
    addresses: running.map(({ address }) => address),
    master: masterOfMost,

    awaitOther: (than: string) =>
      inTime(`another master than ${than}`, async () => {
        const now = await masterOfMost();
        return now !== than && now;
      }),

    /** Until all of them know each other and a replica that follows, which a failover needs. */
    awaitReplica: () =>
      inTime('all sentinels to know each other and the replica', async () => {
        const masters = await saidByAll<string[]>('master', NAME);
        const replicas = await saidByAll<string[][]>('replicas', NAME);
        return (
          masters.every((said) => has(said, { 'num-other-sentinels': '2', flags: 'master' })) &&
          replicas.every(
            ([said, ...more]) =>
              more.length === 0 && has(said, { flags: 'slave', 'master-link-status': 'ok' }),
          )
        );
      }),

    /** Makes the replica the master while the old one lives. */
    switchOver: () =>
      inTime(
        'a sentinel to begin',
        async () => (await running[0]!.client.call('SENTINEL', 'failover', NAME)) === 'OK',
      ),

    async stopOne() {
      running.at(-1)!.client.disconnect();
      await running.at(-1)!.server.stop();
    },

    async stop() {
      for (const { client } of running) client.disconnect();
      await Promise.all(running.map(({ server }) => server.stop()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A replica of the server at an address, which sentinels find there. */
async function startReplica({ host, port }: Address): Promise<RedisServer> {
  const replica = await redis.start();
  await replica.client.replicaof(host, port);
  await eventually('the replica to follow', async () =>
    (await replica.client.info('replication')).includes('master_link_status:up'),
  );
  return replica;
}

/** The environment of a client that comes through the sentinels. */
const through = ({ addresses }: Sentinels, name = NAME): Record<string, string> => ({
  NOTIFICATION_REDIS_SENTINELS: `${addresses.map(({ host, port }) => `${host}:${port}`).join(',')}/${name}`,
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

/** The service and a producer behind sentinels that know the master and its replica. */
async function startBehind(watchers: Sentinels) {
  await watchers.awaitReplica();
  await startService({ sentinels: watchers.addresses, master: NAME }, through(watchers));
  return startProducer({ sentinels: watchers.addresses, name: NAME, sentinelPassword: PASSWORD });
}

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

/** Until all intents are accepted, one for each key, and the server has their deliveries. @returns what it has to have, sorted. */
async function allArrived(server: RedisServer, count: number): Promise<string[]> {
  const recorded = async () => {
    const { rows } = await slot.db.query<{ id: string; key: string }>(
      'SELECT notification_id AS id, idempotency_key AS key FROM notification.records',
    );
    return rows;
  };
  const rows = await inTime(`the deliveries of ${count} intents`, async () => {
    const [accepted, ids] = await Promise.all([recorded(), outboundIds(server.client)]);
    if (accepted.length === count && new Set(ids).size >= 2 * count) return accepted;
    throw new Error(`${accepted.length} accepted, ${ids.length} delivered`);
  });
  const keys = Array.from({ length: count }, (_, index) => `key-${index}`);
  expect(rows.map(({ key }) => key).sort()).toEqual(keys.sort());
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
  const producer = await startBehind(sentinels);
  const shown = (sentinelsFound: object, redisFound: object, place = through(sentinels!)) =>
    cli.untilFound(
      { 'Redis: sentinels': sentinelsFound, Redis: redisFound },
      { NOTIFICATION_REDIS_MASTER_ADDR: '', NOTIFICATION_REDIS_DB: '0', ...place },
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
  const producer = await startBehind(sentinels);
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
    await inTime(
      'the service to have left the old master',
      async () => (await connectionsOfService(master)) === 0,
    );
    expect(await master.client.role()).toContain('master');
  });

  await address.set({ kind: 'open' });
  await inTime(
    'the old master to follow the new one',
    async () => String((await master.client.role())[0]) === 'slave',
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
    await eventually(
      'both outbound streams to be watched',
      async () => (await countOf(slot, 'outbound_streams')) === 2,
    );
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
