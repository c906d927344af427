/** What goes away and comes back: the service itself, the progress of its reader, its connections. */
import { publishIntent } from '../../client/notificationintent.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { GATEWAY, OFFSET_KEY, allPublished, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn, turnIntent } from './entries.ts';
import { bothPublished, resultOf } from './rows.ts';

const slot = slotOfEachTest();

let count = 0;
const publish = () => publishTurn(slot.redis, `key-${(count += 1)}`);

const delivered = async (ids: string[]) => {
  await bothPublished(slot, ids);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
};

test('I3 after its progress is lost the reader starts from 0-0, and nothing is delivered twice', async () => {
  const first = await slot.startService();
  const ids = [await publish(), await publish(), await publish()];
  await delivered(ids);
  await first.stop();
  await slot.redis.del(OFFSET_KEY);
  await slot.startService();
  const last = await publish();
  await bothPublished(slot, [last]);
  await eventually('the offset to reach the end', async () => (await slot.redis.get(OFFSET_KEY)) === last);
  await delivered([...ids, last]);
});

test('I36 two services share the work without doing any of it twice', async () => {
  await Promise.all([slot.startService(), slot.startService()]);
  const ids = await Promise.all(Array.from({ length: 30 }, () => publish()));
  await allPublished(slot, 2 * ids.length, 240_000);
  await delivered(ids);
}, 300_000);

test('I9 identical concurrent intents leave one record, conflicting ones are refused', async () => {
  await slot.startService();
  const intent = (turn: number) => turnIntent('at-once', undefined, { turn_number: turn });
  const ids = await Promise.all(
    Array.from({ length: 40 }, (_, index) => publishIntent(slot.redis, intent(index % 2))),
  );
  const outcomes = await Promise.all(
    ids.map(async (id) => ((await resultOf(slot, id)) as { outcome: string }).outcome),
  );
  const { rows } = await slot.db.query<{ notification_id: string }>(
    'SELECT notification_id FROM notification.records',
  );
  expect(rows).toHaveLength(1);
  const winner = ids.indexOf(rows[0]!.notification_id);
  const expected = ids.map((_, index) => {
    if (index === winner) return 'accepted';
    return index % 2 === winner % 2 ? 'duplicate' : 'idempotency_conflict';
  });
  expect(outcomes).toEqual(expected);
  await delivered([rows[0]!.notification_id]);
});

test('I32 a service without its dependencies says which are missing and why', async () => {
  const endpoints = {
    ...slot.endpoints,
    redis: { host: '127.0.0.1', port: 1 },
    postgresDsn: 'postgres://nobody@127.0.0.1:1/none',
  };
  Object.assign(slot.endpoints, endpoints);
  const failure = await slot.startService().catch((error: unknown) => error);
  expect(String(failure)).toMatch(
    /cannot reach Redis at 127\.0\.0\.1:1 \(NOTIFICATION_REDIS_MASTER_ADDR\): .*ECONNREFUSED/,
  );
  expect(String(failure)).toMatch(
    /cannot reach PostgreSQL at 127\.0\.0\.1:1 \(NOTIFICATION_POSTGRES_PRIMARY_DSN\): .*ECONNREFUSED/,
  );
});

test('I1 a connection to Redis that dies without a word is noticed and replaced, the reader’s own as well', async () => {
  const proxy = await startTcpProxy(slot.endpoints.redis);
  const service = await slot.startService(
    // More than the default: how many attempts meet the dead connection is not what is asked here.
    { NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000', NOTIFICATION_ROUTE_BACKOFF_MAX: '1s' },
    { redis: { host: proxy.host, port: proxy.port } },
  );
  try {
    await bothPublished(slot, [await publish()]);
    expect(proxy.connections).toBeGreaterThanOrEqual(2);
    await proxy.set({ kind: 'half-open', silent: 'both' });
    // New connections work.
    await proxy.set({ kind: 'open' });
    await bothPublished(slot, [await publish()]);
    expect(await slot.redis.xlen(GATEWAY)).toBe(2);
  } finally {
    await service.stop();
    await proxy.stop();
  }
});
