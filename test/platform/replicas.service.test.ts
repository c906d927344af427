/** Replicas that the configuration names: looked at by doctor, never needed. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { freePort } from '../../dev/servers/ports.ts';
import { replicaChecks } from '../../cli/check-replicas.ts';
import { diagnose } from '../../cli/checks.ts';
import { cliFor } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { createRedisServers } from '../redis-servers.ts';
import { makeUsers } from '../redis-users.ts';

const slot = slotOfTests();
/** What is started by a test, ended after it. */
let cleanups: (() => Promise<unknown>)[];

beforeEach(() => {
  cleanups = [];
});
afterEach(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** @param timeout shorter for servers that never answer. */
const check = (redis: string, postgres = '', timeout = '30s') =>
  diagnose(
    replicaChecks(
      slot.config({
        NOTIFICATION_REDIS_REPLICA_ADDRS: redis,
        NOTIFICATION_POSTGRES_REPLICA_DSNS: postgres,
        NOTIFICATION_REDIS_OPERATION_TIMEOUT: timeout,
        NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: timeout,
        // At least as long.
        NOTIFICATION_ROUTE_LEASE_TTL: '30s',
      }),
    ),
    30_000,
  );
const found = (kind: 'redis' | 'postgres', address: string, status: 'ok' | 'warn', detail: unknown) =>
  expect.objectContaining({ name: `replica: ${kind} ${address}`, status, detail }) as unknown;

const primaryRedis = () => `${slot.endpoints.redis.host}:${slot.endpoints.redis.port}`;

async function silentServer(): Promise<string> {
  const server = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(async () => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('I30 without replicas there is nothing to check', async () => {
  expect(await check('')).toEqual([]);
});

test('I30 a Redis replica is one as long as it follows its primary', async () => {
  const servers = await createRedisServers();
  cleanups.push(() => servers.stop());
  const [primary, replica] = [await servers.start(), await servers.start()];
  // Users are not replicated.
  for (const { client } of [primary, replica]) await makeUsers(client);
  const link = await servers.follow(replica, primary);
  const address = `${replica.address.host}:${replica.address.port}`;
  await eventually('a replica', async () => (await check(address))[0]?.status === 'ok');
  expect(await check(address)).toEqual([
    found('redis', address, 'ok', `replica of ${link.host}:${link.port}, link connected`),
  ]);

  await replica.client.replicaof('127.0.0.1', await freePort());
  expect(await check(address)).toMatchObject([
    { status: 'warn', detail: expect.stringMatching(/^replica of .*, link connect(ing)?$/) },
  ]);
});

test('I30 a PostgreSQL in recovery is a replica', async () => {
  // A function before the real one on the search path: a whole standby would show no more.
  await slot.db.query(
    'CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS $$ SELECT true $$',
  );
  const dsn = new URL(slot.endpoints.postgresDsn);
  dsn.searchParams.set('options', '-c search_path=public,pg_catalog');
  expect(await check('', dsn.href)).toEqual([found('postgres', dsn.host, 'ok', 'replica')]);
});

test('I30 primaries, servers that refuse and servers that never answer are named with the reason, and no password', async () => {
  const [dead, silent] = [`127.0.0.1:${await freePort()}`, await silentServer()];
  const { host } = new URL(slot.endpoints.postgresDsn);
  const dsnOf = (at: string) => `postgres://notify:s3cret@${at}/n`;
  const results = [
    ...(await check(`${primaryRedis()},${dead}`, `${slot.endpoints.postgresDsn},${dsnOf(dead)}`)),
    ...(await check(silent, dsnOf(silent), '300ms')),
  ];
  const unanswered = expect.stringMatching(/^does not answer: ./) as unknown;
  const refused = expect.stringMatching(/^does not answer: .*ECONNREFUSED/) as unknown;
  expect(results).toEqual([
    found('redis', primaryRedis(), 'warn', 'is a master, not a replica'),
    found('redis', dead, 'warn', refused),
    found('postgres', host, 'warn', 'is a primary, not a replica'),
    found('postgres', dead, 'warn', refused),
    found('redis', silent, 'warn', unanswered),
    found('postgres', silent, 'warn', unanswered),
  ]);
  expect(JSON.stringify(results)).not.toContain('s3cret');
});

test('I30 doctor warns of replicas that are away', async () => {
  const dead = `127.0.0.1:${await freePort()}`;
  const { findings, dispose } = cliFor(slot);
  cleanups.push(async () => dispose());
  const all = await findings({
    NOTIFICATION_REDIS_REPLICA_ADDRS: dead,
    NOTIFICATION_POSTGRES_REPLICA_DSNS: `postgres://notify:s3cret@${dead}/n`,
  });
  for (const kind of ['redis', 'postgres'])
    expect(all[`replica: ${kind} ${dead}`]).toMatchObject({
      status: 'warn',
      detail: expect.stringContaining('does not answer: ') as unknown,
    });
  expect(JSON.stringify(all)).not.toContain('s3cret');
});
