/** A Redis that dies, and a replica that lagged behind in its place: what was acknowledged and is gone comes back. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import type { EmbeddedRedis } from '../../dev/servers/redis.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';

/** Intents whose deliveries the replica has, and has not; each is a push and an e-mail. */
const [REPLICATED, LOST] = [10, 20];
const LIMIT_MS = 120_000;

let slot: Slot;
let folder: string;
const servers: EmbeddedRedis[] = [];
const clients: Redis[] = [];
beforeAll(async () => {
  slot = await takeSlot();
  folder = await mkdtemp(path.join(tmpdir(), 'failover-'));
});
afterAll(async () => {
  await slot.release();
  for (const client of clients) client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
  await rm(folder, { recursive: true, force: true });
});

async function serverOf(name: string) {
  const dataDir = path.join(folder, name);
  const server = await startRedis({ dataDir, port: 0, durable: false, report: () => undefined });
  servers.push(server);
  const [host, port] = server.addr.split(':') as [string, string];
  const address = { host, port: Number(port) };
  const client = new Redis({ ...address, db: 0, maxRetriesPerRequest: 0 });
  client.on('error', () => undefined);
  clients.push(client);
  return { server, address, client };
}

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

test(
  'I46 security-1 a failover to a replica that lags loses no acknowledged delivery, and repeats none',
  async () => {
    const [master, replica] = await Promise.all([serverOf('master'), serverOf('replica')]);
    const [address, link] = await Promise.all([startTcpProxy(master.address), startTcpProxy(master.address)]);
    await replica.client.replicaof(link.host, link.port);
    await eventually('the replica to follow', async () =>
      (await replica.client.info('replication')).includes('master_link_status:up'),
    );
    const service = await slot.startService(
      { NOTIFICATION_REDIS_DB: '0', NOTIFICATION_ROUTE_LEASE_TTL: '2s' },
      { redis: { host: address.host, port: address.port } },
    );
    try {
      const ids: string[] = [];
      const publish = async (count: number) => {
        for (let i = 0; i < count; i += 1) {
          ids.push(await publishTurn(master.client, `key-${ids.length}`));
        }
        await published(ids);
      };
      await publish(REPLICATED);
      await eventually(
        'the replica to have all of it',
        async () => (await outboundIds(replica.client)).length === 2 * REPLICATED,
      );
      await link.set({ kind: 'refuse' });
      link.cut();
      await publish(LOST);

      await master.server.stop();
      await replica.client.replicaof('NO', 'ONE');
      address.moveTo(replica.address);
      expect(await outboundIds(replica.client)).toHaveLength(2 * REPLICATED);

      const all = deliveriesTo('user-1', ids);
      await eventually(
        'every delivery to be in the surviving streams',
        async () => (await outboundIds(replica.client)).length >= all.length,
        LIMIT_MS,
      );
      await eventually('both streams to be trusted again', async () => {
        const { rows } = await slot.db.query<{ trusted: number }>(
          'SELECT count(*)::int AS trusted FROM notification.outbound_streams WHERE suspect_since IS NULL',
        );
        return rows[0]!.trusted === 2;
      });
      const after = await publishTurn(replica.client, 'after');
      await published([after]);
      expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', [...ids, after]));
    } finally {
      await service.stop();
      await Promise.all([address.stop(), link.stop()]);
    }
  },
  3 * LIMIT_MS,
);
