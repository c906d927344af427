/** A Redis that changes its role: the old master goes on as a replica, and no connection is cut. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import type { EmbeddedRedis } from '../../dev/servers/redis.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { publishTurn } from './entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

let slot: Slot;
let folder: string;
beforeAll(async () => {
  slot = await takeSlot();
  folder = await mkdtemp(path.join(tmpdir(), 'switchover-'));
});
afterAll(async () => {
  await slot.release();
  await rm(folder, { recursive: true, force: true });
});

const serverOf = async (name: string) => {
  const server = await startRedis({
    dataDir: path.join(folder, name),
    port: 0,
    durable: false,
    report: () => undefined,
  });
  const [host, port] = server.addr.split(':') as [string, string];
  const address = { host, port: Number(port) };
  return { server, address, client: new Redis({ ...address, db: 0 }) };
};

const published = (id: string) =>
  eventually(`both routes of ${id} to be published`, async () => {
    const { rows } = await slot.db.query<{ status: string }>(
      'SELECT status FROM notification.routes WHERE notification_id = $1',
      [id],
    );
    return rows.length === 2 && rows.every(({ status }) => status === 'published');
  });

test('intent-D1 after a switchover that cuts no connection, intents are read and delivered through the new master', async () => {
  const servers: EmbeddedRedis[] = [];
  const [first, second] = await Promise.all([serverOf('first'), serverOf('second')]);
  servers.push(first.server, second.server);
  const proxy = await startTcpProxy(first.address);
  const follow = (client: Redis, master: { host: string; port: number }) =>
    client.replicaof(master.host, master.port);
  await follow(second.client, first.address);
  await eventually('the replica to follow', async () =>
    (await second.client.info('replication')).includes('master_link_status:up'),
  );
  const service = await slot.startService(
    { NOTIFICATION_REDIS_DB: '0' },
    { redis: { host: proxy.host, port: proxy.port } },
  );
  try {
    const before = await publishTurn(first.client, 'before');
    await published(before);
    await eventually('the replica to have all', async () => {
      const ids = await Promise.all(
        [first, second].map(({ client }) => client.xlen('mail:delivery_commands')),
      );
      return ids[0] === 1 && ids[1] === 1;
    });
    await second.client.replicaof('NO', 'ONE');
    proxy.moveTo(second.address);
    await follow(first.client, second.address);
    const after: string[] = [];
    for (const key of ['a', 'b', 'c']) after.push(await publishTurn(second.client, key));
    for (const id of after) await published(id);
    expect(await second.client.xlen('mail:delivery_commands')).toBe(4);
    expect(await second.client.xlen('gateway:client-events')).toBe(4);
  } finally {
    await service.stop();
    await proxy.stop();
    for (const { client } of [first, second]) client.disconnect();
    await Promise.all(servers.map((server) => server.stop()));
  }
});
