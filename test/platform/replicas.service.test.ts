/** Replicas that the configuration names: looked at by doctor, never needed. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import { freePort } from '../../dev/servers/ports.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { checkReplicas } from '../../cli/check-replicas.ts';
import { cliFor } from '../command-line.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { makeUsers } from '../redis-users.ts';

let slot: Slot;
/** What is started by a test, ended after it. */
let cleanups: (() => Promise<unknown>)[];

beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());
beforeEach(() => {
  cleanups = [];
});
afterEach(async () => {
  for (const cleanup of cleanups.reverse()) await cleanup();
});

/** @param timeout shorter for servers that never answer. */
const check = (redis: string, postgres = '', timeout = '30s') =>
  checkReplicas(
    slot.config({
      NOTIFICATION_REDIS_REPLICA_ADDRS: redis,
      NOTIFICATION_POSTGRES_REPLICA_DSNS: postgres,
      NOTIFICATION_REDIS_OPERATION_TIMEOUT: timeout,
      NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: timeout,
      // At least as long.
      NOTIFICATION_ROUTE_LEASE_TTL: '30s',
    }),
  );

const primaryRedis = () => `${slot.endpoints.redis.host}:${slot.endpoints.redis.port}`;

async function ownRedis(): Promise<{ redis: Redis; address: string; port: number }> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'galaxy-notify-replica-'));
  const { addr, stop } = await startRedis({ dataDir, port: 0, durable: false, report: () => undefined });
  const port = Number(addr.split(':')[1]);
  const redis = new Redis(port);
  // Users are not replicated.
  await makeUsers(redis);
  cleanups.push(async () => {
    redis.disconnect();
    await stop();
    await rm(dataDir, { recursive: true });
  });
  return { redis, address: addr, port };
}

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
  const [primary, replica] = [await ownRedis(), await ownRedis()];
  await primary.redis.config('SET', 'repl-diskless-sync-delay', '0');
  await replica.redis.replicaof('127.0.0.1', primary.port);
  const ok = {
    kind: 'redis',
    address: replica.address,
    ok: true,
    detail: `replica of ${primary.address}, link connected`,
  };
  await eventually('a replica', async () => (await check(replica.address))[0]?.ok);
  expect(await check(replica.address)).toEqual([ok]);

  await replica.redis.replicaof('127.0.0.1', await freePort());
  expect(await check(replica.address)).toMatchObject([
    { ok: false, detail: expect.stringMatching(/^replica of .*, link connect(ing)?$/) },
  ]);
});

test('I30 a PostgreSQL in recovery is a replica', async () => {
  // A function before the real one on the search path: a whole standby would show no more.
  await slot.db.query(
    'CREATE FUNCTION public.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS $$ SELECT true $$',
  );
  const dsn = new URL(slot.endpoints.postgresDsn);
  dsn.searchParams.set('options', '-c search_path=public,pg_catalog');
  expect(await check('', dsn.href)).toEqual([
    { kind: 'postgres', address: dsn.host, ok: true, detail: 'replica' },
  ]);
});

test('I30 primaries, servers that refuse and servers that never answer are named with the reason, and no password', async () => {
  const [dead, silent] = [`127.0.0.1:${await freePort()}`, await silentServer()];
  const { host } = new URL(slot.endpoints.postgresDsn);
  const dsnOf = (at: string) => `postgres://notify:s3cret@${at}/n`;
  const results = [
    ...(await check(`${primaryRedis()},${dead}`, `${slot.endpoints.postgresDsn},${dsnOf(dead)}`)),
    ...(await check(silent, dsnOf(silent), '300ms')),
  ];
  const unanswered = expect.stringMatching(/^does not answer: ./);
  expect(results).toEqual([
    { kind: 'redis', address: primaryRedis(), ok: false, detail: 'is a master, not a replica' },
    {
      kind: 'redis',
      address: dead,
      ok: false,
      detail: expect.stringMatching(/^does not answer: .*ECONNREFUSED/),
    },
    { kind: 'postgres', address: host, ok: false, detail: 'is a primary, not a replica' },
    {
      kind: 'postgres',
      address: dead,
      ok: false,
      detail: expect.stringMatching(/^does not answer: .*ECONNREFUSED/),
    },
    { kind: 'redis', address: silent, ok: false, detail: unanswered },
    { kind: 'postgres', address: silent, ok: false, detail: unanswered },
  ]);
  expect(JSON.stringify(results)).not.toContain('s3cret');
});

test('I30 doctor warns of replicas that are away', async () => {
  const dead = `127.0.0.1:${await freePort()}`;
  const { cli, dispose } = cliFor(slot);
  cleanups.push(async () => dispose());
  const { stdout } = await cli(['doctor', '--json'], {
    changes: {
      NOTIFICATION_REDIS_REPLICA_ADDRS: dead,
      NOTIFICATION_POSTGRES_REPLICA_DSNS: `postgres://notify:s3cret@${dead}/n`,
    },
  });
  const { findings } = JSON.parse(stdout) as { findings: { name: string }[] };
  expect(findings.find(({ name }) => name === 'replicas')).toMatchObject({
    status: 'warn',
    detail: expect.stringMatching(`redis ${dead}: does not answer: .*; postgres ${dead}: does not answer: `),
  });
  expect(stdout).not.toContain('s3cret');
});
