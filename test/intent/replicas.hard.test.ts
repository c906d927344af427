/** Replicas of Redis that must have what was handed off before its row is settled. */
import { cliFor } from '../command-line.ts';
import type { TcpProxy } from '../../dev/servers/tcp-proxy.ts';
import type { Service } from '../../workers/service.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { RedisServer, RedisServers } from '../redis-servers.ts';
import { createRedisServers } from '../redis-servers.ts';
import { allPublished, deliveriesTo, outboundIds, routeCounts } from '../service-process.ts';
import { publishTurn } from './entries.ts';

/** A stream is trusted again half a minute after a failover, which is six leases. */
const LIMIT_MS = 120_000;
/** Their hand-offs wait together. */
const INTENTS = 5;

let slot: Slot;
let redis: RedisServers;
let master: RedisServer;
let replica: RedisServer;
let address: TcpProxy;
let link: TcpProxy;
let service: Service | undefined;
beforeEach(async () => {
  slot = await takeSlot();
  redis = await createRedisServers();
  [master, replica] = await Promise.all([redis.start(), redis.start()]);
  [address, link] = await Promise.all([redis.proxyTo(master), redis.follow(replica, master)]);
  service = await slot.startService(
    {
      NOTIFICATION_REDIS_DB: '0',
      NOTIFICATION_REDIS_MIN_REPLICAS: '1',
    },
    { redis: { host: address.host, port: address.port } },
  );
});
afterEach(async () => {
  await service?.stop();
  await redis.stop();
  await slot.release();
});

const publish = (server: RedisServer, ...keys: string[]) =>
  Promise.all(keys.map((key) => publishTurn(server.client, key)));
const keys = Array.from({ length: INTENTS }, (_, n) => `key-${n}`);

async function cutLink(): Promise<void> {
  await link.set({ kind: 'refuse' });
  link.cut();
}

/** Every route was handed off to the master and put off because of that, and nothing was spent. */
const untilHeldBack = () =>
  eventually(
    'every route to wait for the replica',
    async () => {
      const handedOff = (await outboundIds(master.client)).length;
      return handedOff === 2 * INTENTS && (await routeCounts(slot))['pending after 0'] === 2 * INTENTS;
    },
    LIMIT_MS,
  );

test(
  'I55 what is handed off is settled once a replica has it, and the wait spends no budget',
  async () => {
    const [first] = await publish(master, 'first');
    await allPublished(slot, 2, LIMIT_MS);
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', [first!]));
  },
  3 * LIMIT_MS,
);

test(
  'I55 a replica that is cut off holds rows back, not hand-offs; when it is back each is settled, handed off once',
  async () => {
    await cutLink();
    const ids = await publish(master, ...keys);
    await untilHeldBack();
    expect(await outboundIds(replica.client)).toEqual([]);

    await link.set({ kind: 'open' });
    await allPublished(slot, 2 * INTENTS, LIMIT_MS);
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
    expect(await outboundIds(master.client)).toEqual(deliveriesTo('user-1', ids));
  },
  3 * LIMIT_MS,
);

test(
  'I55 security-1 a failover to a replica that lags finds no row that says more than the replica has',
  async () => {
    await cutLink();
    const ids = await publish(master, ...keys);
    await untilHeldBack();

    // Without its own replica, the new master would confirm nothing either.
    const spare = await redis.start();
    await master.server.stop();
    await replica.client.replicaof('NO', 'ONE');
    await redis.follow(spare, replica);
    address.moveTo(replica.address);
    await eventually(
      'every route to be published',
      async () => {
        const { rows } = await slot.db.query("SELECT FROM notification.routes WHERE status = 'published'");
        return rows.length === 2 * INTENTS;
      },
      LIMIT_MS,
    );
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
    await eventually('both streams to be trusted again', async () => {
      const { rows } = await slot.db.query<{ trusted: number }>(
        'SELECT count(*)::int AS trusted FROM notification.outbound_streams WHERE suspect_since IS NULL',
      );
      return rows[0]!.trusted === 2;
    });
    expect(await outboundIds(replica.client)).toEqual(deliveriesTo('user-1', ids));
    expect(slot.logs.filter(({ msg }) => msg === 'lost entry handed off again')).toEqual([]);
  },
  3 * LIMIT_MS,
);

test(
  'I55 doctor says when fewer replicas follow than must have a hand-off',
  async () => {
    const { cli, dispose } = cliFor(slot);
    /** On a machine with much else to do, Redis may not answer within the time-out of a command. */
    const shown = (expected: object) =>
      eventually(
        'doctor to show it',
        async () => {
          expect(await finding()).toMatchObject(expected);
          return true;
        },
        LIMIT_MS,
      );
    const finding = async () => {
      const { stdout } = await cli(['doctor', '--json'], {
        changes: {
          NOTIFICATION_REDIS_MASTER_ADDR: `${address.host}:${address.port}`,
          NOTIFICATION_REDIS_DB: '0',
          NOTIFICATION_REDIS_MIN_REPLICAS: '1',
        },
      });
      const { findings } = JSON.parse(stdout) as { findings: { name: string }[] };
      return findings.find(({ name }) => name === 'Redis: replicas');
    };
    try {
      await shown({ status: 'ok', detail: '1 online, 1 must have a hand-off' });
      await cutLink();
      await eventually('the master to notice', async () =>
        (await master.client.info('replication')).includes('connected_slaves:0'),
      );
      await shown({ status: 'error', detail: '0 online, 1 must have a hand-off' });
    } finally {
      dispose();
    }
  },
  4 * LIMIT_MS,
);
