/**
 * A Redis with a replica that takes its place: one that takes over while no connection is cut, one that must have what
 * was handed off before its row is settled. Fault runs have failovers to replicas that lag, see faults/fault-kinds.ts.
 */
import type { TcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { ofEachTest } from '../of-tests.ts';
import type { RedisServer } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { allPublished, deliveriesTo, outboundIds, routeCounts } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { bothPublished, countOf } from './rows.ts';

/** A stream is trusted again half a minute after a failover, which is six leases. */
const LIMIT_MS = 120_000;
jest.setTimeout(4 * LIMIT_MS);

let master: RedisServer;
let replica: RedisServer;
/** Where the service looks for the master. */
let address: TcpProxy;
/** Over which the replica follows it. */
let link: TcpProxy;
// The services end before the servers that they use.
afterEach(() => slot.stopServices());
const slot = slotOfEachTest();
const redis = ofEachTest(createRedisServers, (servers) => servers.stop());
beforeEach(async () => {
  [master, replica] = await Promise.all([redis.start(), redis.start()]);
  [address, link] = await Promise.all([redis.proxyTo(master), redis.follow(replica, master)]);
  await slot.startService(
    { NOTIFICATION_REDIS_DB: '0', NOTIFICATION_REDIS_MIN_REPLICAS: '1' },
    { redis: { host: address.host, port: address.port } },
  );
});

const cli = cliOfEachTest(() => slot);

async function publishTurns({ client }: RedisServer, keys: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const key of keys) ids.push(await publishTurn(client, key));
  return ids;
}

async function cutLink(): Promise<void> {
  await link.set({ kind: 'refuse' });
  link.cut();
}

/** Their hand-offs wait together. */
const KEYS = ['key-1', 'key-2', 'key-3', 'key-4', 'key-5'];
const ROUTES = 2 * KEYS.length;

/** Every route was handed off to the master and put off because of that, and nothing was spent. */
const untilHeldBack = () =>
  eventually(
    'every route to wait for the replica',
    async () =>
      (await outboundIds(master.client)).length === ROUTES &&
      (await routeCounts(slot))['pending after 0'] === ROUTES,
    LIMIT_MS,
  );

test('I55 a replica that is cut off holds rows back, not hand-offs, and spends no budget; when it is back each is settled, handed off once', async () => {
  await cutLink();
  const ids = await publishTurns(master, KEYS);
  await untilHeldBack();
  expect(await outboundIds(replica.client)).toEqual([]);

  await link.set({ kind: 'open' });
  await allPublished(slot, ROUTES, LIMIT_MS);
  expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
  expect(await outboundIds(master.client)).toEqual(deliveriesTo('user-1', ids));
});

test('I55 security-1 a failover to a replica that lags finds no row that says more than the replica has', async () => {
  await cutLink();
  const ids = await publishTurns(master, KEYS);
  await untilHeldBack();

  // Without its own replica, the new master would confirm nothing either.
  const spare = await redis.start();
  await master.server.stop();
  await replica.client.replicaof('NO', 'ONE');
  await redis.follow(spare, replica);
  address.moveTo(replica.address);
  await bothPublished(slot, ids);
  expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
  await eventually(
    'both streams to be trusted again',
    async () => (await countOf(slot, 'outbound_streams', 'suspect_since IS NULL')) === 2,
    LIMIT_MS,
  );
  expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
  expect(slot.logs.filter(({ msg }) => msg === 'lost entry handed off again')).toEqual([]);
});

test('I55 I24 once another server is the master, its replicas confirm what it is handed, although no connection was cut', async () => {
  await bothPublished(slot, await publishTurns(master, ['before']));
  const spare = await redis.start();
  await replica.client.replicaof('NO', 'ONE');
  await redis.follow(spare, replica);
  await redis.follow(master, replica);
  address.moveTo(replica.address);
  await bothPublished(slot, await publishTurns(replica, ['after']));
});

test('I55 doctor says when fewer replicas follow than must have a hand-off', async () => {
  const changes = {
    NOTIFICATION_REDIS_MASTER_ADDR: `${address.host}:${address.port}`,
    NOTIFICATION_REDIS_DB: '0',
    NOTIFICATION_REDIS_MIN_REPLICAS: '1',
  };
  const shown = (expected: object) => cli.untilFound({ 'Redis: replicas': expected }, changes, LIMIT_MS);
  await shown({ status: 'ok', detail: '1 online, 1 must have a hand-off' });
  await cutLink();
  await eventually('the master to notice', async () =>
    (await master.client.info('replication')).includes('connected_slaves:0'),
  );
  await shown({ status: 'error', detail: '0 online, 1 must have a hand-off' });
});
