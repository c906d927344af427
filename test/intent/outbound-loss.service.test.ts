/** What becomes of entries that an outbound stream has lost after their routes were settled. */
import { repairWorkflowId } from '../../workflows/recovery-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { GATEWAY, MAIL, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
  // An attempt ends within a lease time; so long is waited before entries are looked for.
  await slot.startService({
    NOTIFICATION_ROUTE_LEASE_TTL: '1s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
  });
});
afterAll(() => slot.release());

async function publishedTurns(...keys: string[]): Promise<string[]> {
  const ids = await Promise.all(keys.map((key) => publishTurn(slot.redis, key)));
  await eventually('all routes to be published', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.routes WHERE notification_id = ANY ($1) AND status = 'published' AND entry_id IS NOT NULL",
      [ids],
    );
    return rows.length === 2 * ids.length;
  });
  return ids;
}

/** The watch has seen all that is in both streams. */
const seen = () =>
  eventually('the watch to see both streams', async () => {
    const { rows } = await slot.db.query<{ stream: string; last_entry_id: string }>(
      'SELECT stream, last_entry_id FROM notification.outbound_streams WHERE suspect_since IS NULL',
    );
    const found = await Promise.all(
      rows.map(async ({ stream, last_entry_id }) => {
        const [last] = await slot.redis.xrevrange(stream, '+', '-', 'COUNT', 1);
        return last === undefined || last[0] === last_entry_id;
      }),
    );
    return found.length === 2 && found.every(Boolean);
  });

const idsIn = async (stream: string) =>
  (await outboundIds(slot.redis)).filter((id) => id.includes(stream === MAIL ? '/email:' : '/push:'));
const all = (ids: string[], channel: 'email' | 'push') =>
  deliveriesTo('user-1', ids).filter((id) => id.includes(`/${channel}:`));

/** Rows and streams agree about every entry. */
async function expectAgreement(): Promise<void> {
  const { rows } = await slot.db.query<{ delivery: string; channel: string; entry_id: string }>(
    `SELECT notification_id || '/' || route_id AS delivery, channel, entry_id FROM notification.routes`,
  );
  for (const { delivery, channel, entry_id } of rows) {
    const [entry] = await slot.redis.xrange(channel === 'email' ? MAIL : GATEWAY, entry_id, entry_id);
    if (entry) expect(entry[1]).toContain(delivery);
  }
}

test('I46 security-1 the unread entries of a deleted stream are handed off again, under the same ids', async () => {
  await slot.redis.xgroup('CREATE', MAIL, 'mail-service', '0', 'MKSTREAM');
  const read = await publishedTurns('read');
  const [, entries] = (
    (await slot.redis.xreadgroup('GROUP', 'mail-service', 'm', 'STREAMS', MAIL, '>')) as [
      string,
      [string, string[]][],
    ][]
  )[0]!;
  await slot.redis.xack(MAIL, 'mail-service', ...entries.map(([id]) => id));
  const unread = await publishedTurns('a', 'b', 'c');
  await seen();
  await slot.redis.del(MAIL, GATEWAY);

  await eventually('what was lost to be there again', async () => {
    const [mails, pushes] = await Promise.all([idsIn(MAIL), idsIn(GATEWAY)]);
    return mails.length >= unread.length && pushes.length >= unread.length + 1;
  });
  await seen();
  // No consumer has acknowledged the push events.
  expect(await idsIn(GATEWAY)).toEqual(all([...read, ...unread], 'push'));
  expect(await idsIn(MAIL)).toEqual(all(unread, 'email'));
  await expectAgreement();
  const result = await slot.client.workflow.getHandle(repairWorkflowId(MAIL)).result();
  expect(result).toEqual({ checked: 3, repaired: 3 });
});

test('I46 security-1 entries of a paused channel come back when it is resumed', async () => {
  const operator = operatorOf(slot);
  const ids = await publishedTurns('paused-1', 'paused-2');
  await seen();
  await operator.channels.pause('email', { requestedBy: 'test' });
  await slot.redis.del(MAIL);
  const repair = slot.client.workflow.getHandle(repairWorkflowId(MAIL));
  await eventually('the repair to wait', async () => {
    const { raw } = await repair.describe();
    return raw.pendingActivities?.[0]?.lastFailure?.message?.includes('email is paused');
  });
  expect(await idsIn(MAIL)).toEqual([]);
  await operator.channels.resume('email', { requestedBy: 'test' });
  await eventually('the e-mails to be there again', async () => (await idsIn(MAIL)).length >= 2);
  expect(await idsIn(MAIL)).toEqual(expect.arrayContaining(all(ids, 'email')));
  await seen();
});

test('I46 security-1 a repair that is made twice hands off once', async () => {
  const ids = await publishedTurns('twice');
  await seen();
  const before = await outboundIds(slot.redis);
  await slot.db.query(
    `UPDATE notification.outbound_streams SET suspect_since = now(), suspect_reason = 'a test' WHERE stream = $1`,
    [GATEWAY],
  );
  const [next] = await publishedTurns('next');
  await seen();
  const after = [...before, ...deliveriesTo('user-1', [next!])].sort();
  expect(await outboundIds(slot.redis)).toEqual(after);
  expect(before).toEqual(expect.arrayContaining(deliveriesTo('user-1', ids)));
});
