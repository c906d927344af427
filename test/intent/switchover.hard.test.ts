/** A Redis that changes its role: the old master goes on as a replica, and no connection is cut. */
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { createRedisServers } from '../redis-servers.ts';
import type { RedisServer, RedisServers } from '../redis-servers.ts';
import { allPublished, deliveriesTo, outboundIds } from '../service-process.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import { publishTurn } from './entries.ts';

const LIMIT_MS = 120_000;
/** More than a push has attempts. */
const REFUSED_ATTEMPTS = 4;
/** Intents whose routes are all tried while the address leads to a replica: what one is refused must not cost another. */
const HELD = 8;

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

async function publishTurns({ client }: RedisServer, keys: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const key of keys) ids.push(await publishTurn(client, key));
  return ids;
}

/** The old master follows the new one; its clients stay, and so does where the address leads. */
async function switchOver(from: RedisServer, to: RedisServer): Promise<void> {
  await to.client.replicaof('NO', 'ONE');
  await redis.follow(from, to);
}

/** What an operator sees of a route in the Web UI. @returns how often it was put off, and why. */
async function deferralsOf(id: string, routeRef: string) {
  const { raw } = await slot.client.workflow.getHandle(routeWorkflowId(id, routeRef)).describe();
  const [activity] = raw.pendingActivities ?? [];
  return { attempts: activity?.attempt ?? 0, reason: activity?.lastFailure?.message ?? '' };
}

test(
  'intent-D1 after a switchover that cuts no connection, intents are read and delivered through the new master',
  async () => {
    const [first, second] = await Promise.all([redis.start(), redis.start()]);
    const [address] = await Promise.all([redis.proxyTo(first), redis.follow(second, first)]);
    await slot.startService(
      { NOTIFICATION_REDIS_DB: '0' },
      { redis: { host: address.host, port: address.port } },
    );
    const ids = await publishTurns(first, ['before']);
    await allPublished(slot, 2 * ids.length, LIMIT_MS);
    await eventually(
      'the replica to have all',
      async () => (await outboundIds(second.client)).length === 2 * ids.length,
    );
    await switchOver(first, second);
    address.moveTo(second.address);
    ids.push(...(await publishTurns(second, ['a', 'b', 'c'])));
    await allPublished(slot, 2 * ids.length, LIMIT_MS);
    expect(await outboundIds(second.client)).toEqual(deliveriesTo('user-1', ids));
  },
  2 * LIMIT_MS,
);

test(
  'I24 intent-D1 attempts that a replica refuses spend no budget, however many they are, and go on with the master',
  async () => {
    const [first, second] = await Promise.all([redis.start(), redis.start()]);
    const [address] = await Promise.all([redis.proxyTo(first), redis.follow(second, first)]);
    await slot.startService(
      {
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
      },
      { redis: { host: address.host, port: address.port } },
    );
    // They are read, and are to be published once the server is no longer the master.
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const held = await publishTurns(
      first,
      Array.from({ length: HELD }, (_, index) => `held-${index}`),
    );
    await eventually('them to wait', async () => {
      const { rows } = await slot.db.query(
        "SELECT FROM notification.intents WHERE status = 'open' AND reason IS NOT NULL",
      );
      return rows.length === HELD;
    });
    await switchOver(first, second);
    slot.userService.heal();
    const routes = held.flatMap((id) =>
      ['push:user:user-1', 'email:user:user-1'].map((routeRef) => ({ id, routeRef })),
    );
    for (const { id, routeRef } of routes) {
      await eventually(
        `${id}/${routeRef} to be refused`,
        async () => {
          const { attempts, reason } = await deferralsOf(id, routeRef).catch(() => ({
            attempts: 0,
            reason: '',
          }));
          return attempts > REFUSED_ATTEMPTS && reason.startsWith('redis_unavailable');
        },
        LIMIT_MS,
      );
    }
    expect(await outboundIds(first.client)).toEqual([]);

    address.moveTo(second.address);
    await allPublished(slot, routes.length, LIMIT_MS);
    expect(await outboundIds(second.client)).toEqual(deliveriesTo('user-1', held));
    const { rows: failed } = await slot.db.query(
      'SELECT FROM notification.routes WHERE last_error_at IS NOT NULL',
    );
    expect(failed).toEqual([]);
  },
  2 * LIMIT_MS,
);
