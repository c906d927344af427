/** What becomes of events that their stream has lost after they were relayed. */
import { inTransaction } from '../../activities/transactions.ts';
import { writeEvent } from '../../activities/subscription/events.ts';
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';
import { AGENT, takeSubscriptionAgent } from './agent.ts';

const EVENTS = 'notification:subscription-events';

let agent: SubscriptionAgent;
beforeAll(async () => {
  agent = await takeSubscriptionAgent();
  // Three times as long passes between a loss and its repair.
  await agent.start({ NOTIFICATION_REDIS_OPERATION_TIMEOUT: '2s' });
});
afterAll(() => agent.release());

async function relayed(...connIds: string[]): Promise<void> {
  const { db } = agent.slot;
  const before = (await eventsInStream()).length;
  for (const connId of connIds) {
    await inTransaction(db, (transaction) =>
      writeEvent(transaction, { agentId: AGENT, kind: 'ERRS', errors: [{ connId, error: 'SMP QUOTA' }] }),
    );
  }
  await eventually('the events to be relayed', async () => {
    const waiting = await agent.rows('SELECT 1 FROM subscriptions.events WHERE relayed_at IS NULL');
    return waiting.length === 0 && (await eventsInStream()).length === before + connIds.length;
  });
}

/** Each once: one whose relay was not answered in time may be there twice. */
async function eventsInStream(): Promise<{ eventId: string; connId: string }[]> {
  const entries = await agent.slot.redis.xrange(EVENTS, '-', '+');
  const connIds = entries.map(([, fields]): [string, string] => {
    const of = (name: string) => fields[fields.indexOf(name) + 1]!;
    const [{ connId }] = JSON.parse(of('errors_json')) as [{ connId: string }];
    return [of('event_id'), connId];
  });
  return [...new Map(connIds)].map(([eventId, connId]) => ({ eventId, connId }));
}

/** The watch has seen all that is in the stream, and what of it was read. */
const seen = () =>
  eventually('the watch to see the stream', async () => {
    const [row] = await agent.rows<{ entries_added: string }>(
      `SELECT entries_added FROM notification.outbound_streams WHERE stream = '${EVENTS}' AND suspect_since IS NULL`,
    );
    const info = (await agent.slot.redis.xinfo('STREAM', EVENTS)) as unknown[];
    return Number(row?.entries_added) === info[info.indexOf('entries-added') + 1];
  });

test('N16 security-1 unread events of a deleted stream are relayed again, under the same ids', async () => {
  const { redis } = agent.slot;
  await redis.xgroup('CREATE', EVENTS, 'clients', '0', 'MKSTREAM');
  await relayed('read');
  const [[, entries]] = (await redis.xreadgroup('GROUP', 'clients', 'c', 'STREAMS', EVENTS, '>')) as [
    [string, [string, string[]][]],
  ];
  await redis.xack(EVENTS, 'clients', ...entries.map(([id]) => id));
  await relayed('a', 'b', 'c');
  const unread = (await eventsInStream()).slice(1);
  await seen();
  await redis.del(EVENTS);

  await eventually('the events to be there again', async () => {
    return (await eventsInStream()).length >= unread.length;
  });
  await seen();
  expect(await eventsInStream()).toEqual(unread);
  expect(agent.slot.logs).toContainEqual(
    expect.objectContaining({ msg: 'lost entries are relayed again', restored: 3 }),
  );
});

test('N16 a stream that its clients trim is not filled again', async () => {
  const { redis } = agent.slot;
  await relayed('d', 'e');
  await seen();
  await redis.xtrim(EVENTS, 'MAXLEN', 0);
  await relayed('f');
  await seen();
  expect((await eventsInStream()).map(({ connId }) => connId)).toEqual(['f']);
});
