/** Intents with one key that come at the same time, and connections that die without a word. */
import { publishIntent } from '../../client/notificationintent.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { slotOfEachTest } from '../harness.ts';
import { GATEWAY, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn, turnIntent } from './entries.ts';
import { bothPublished, resultOf } from './rows.ts';

const slot = slotOfEachTest();

let count = 0;
const publish = () => publishTurn(slot.redis, `key-${(count += 1)}`);

const delivered = async (ids: string[]) => {
  await bothPublished(slot, ids);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
};

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
