/** Entries that an outbound stream has lost after their routes were settled, and those that it has trimmed or that consumers deleted. */
import { repairWorkflowId } from '../../workflows/recovery-contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { GATEWAY, MAIL, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { PUSH, bothPublished, countOf, outboundSeen, routeIn } from './rows.ts';

const slot = slotOfTests();
beforeAll(async () => {
  // An attempt ends within a lease time; so long is waited before entries are looked for.
  await slot.startService({
    NOTIFICATION_ROUTE_LEASE_TTL: '1s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
  });
});

async function publishedTurns(...keys: string[]): Promise<string[]> {
  const ids = await Promise.all(keys.map((key) => publishTurn(slot.redis, key)));
  await bothPublished(slot, ids);
  return ids;
}

const seen = () => outboundSeen(slot);
const suspected = () => countOf(slot, 'outbound_streams', 'suspect_since IS NOT NULL');
const untilSuspected = () => eventually('the streams to be suspected', async () => (await suspected()) > 0);
const untilTrusted = () => eventually('the streams to be trusted', async () => (await suspected()) === 0);

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

/** @returns the ids of the entries that a group has not read yet; it has then. */
async function readMails(group: string): Promise<string[]> {
  const streams = await slot.redis.xreadgroup('GROUP', group, 'm', 'COUNT', 1_000, 'STREAMS', MAIL, '>');
  const [[, entries]] = streams as [[string, [string, string[]][]]];
  return entries.map(([id]) => id);
}

const repairSays = (stream: string, words: string) =>
  eventually(`the repair of ${stream} to say that ${words}`, async () => {
    const { raw } = await slot.client.workflow.getHandle(repairWorkflowId(stream)).describe();
    return raw.pendingActivities?.[0]?.lastFailure?.message?.includes(words);
  });

test('I46 security-1 the unread entries of a deleted stream are handed off again, under the same ids', async () => {
  await slot.redis.xgroup('CREATE', MAIL, 'mail-service', '0', 'MKSTREAM');
  const read = await publishedTurns('read');
  await slot.redis.xack(MAIL, 'mail-service', ...(await readMails('mail-service')));
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
  // By each of the two walks.
  expect(result).toEqual({ checked: 6, repaired: 3 });
});

test('I46 security-1 entries of a paused channel come back when it is resumed', async () => {
  const operator = operatorOf(slot);
  const ids = await publishedTurns('paused-1', 'paused-2');
  await seen();
  await operator.channels.pause('email', { requestedBy: 'test' });
  await slot.redis.del(MAIL);
  await repairSays(MAIL, 'email is paused');
  expect(await idsIn(MAIL)).toEqual([]);
  await operator.channels.resume('email', { requestedBy: 'test' });
  await eventually('the e-mails to be there again', async () => (await idsIn(MAIL)).length >= 2);
  expect(await idsIn(MAIL)).toEqual(expect.arrayContaining(all(ids, 'email')));
  await seen();
});

test('I46 security-1 a row that is being written while the routes are walked through is found later', async () => {
  const [id] = await publishedTurns('being-written');
  await seen();
  const { entry_id: entryId } = await routeIn(slot, id!, PUSH, 'published');
  const push = `notification_id = '${id}' AND channel = 'push'`;
  await slot.db.query(
    `UPDATE notification.routes SET status = 'skipped', skipped_at = now(), published_at = NULL, entry_id = NULL WHERE ${push}`,
  );
  const writer = await slot.db.connect();
  await writer.query('BEGIN');
  await writer.query(
    `UPDATE notification.routes SET status = 'published', skipped_at = NULL, published_at = statement_timestamp(), entry_id = $1
      WHERE ${push}`,
    [entryId],
  );
  await slot.redis.del(GATEWAY);
  await repairSays(GATEWAY, 'may still be written down');
  await writer.query('COMMIT');
  writer.release();
  await untilTrusted();
  expect(await idsIn(GATEWAY)).toContain(`${id}/${PUSH}`);
});

const appended = async (stream: string) => {
  const info = (await slot.redis.xinfo('STREAM', stream)) as (string | number)[];
  return Number(info[info.indexOf('entries-added') + 1]);
};

test('intent-5 what a group has acknowledged and deleted is not handed off again, and a pending one is not doubled', async () => {
  await slot.redis.xgroup('CREATE', MAIL, 'mail', '0');
  const [, ...done] = await readMails('mail');
  await slot.redis.xack(MAIL, 'mail', ...done);
  await slot.redis.xdel(MAIL, ...done);
  const pending = 'stream = $1 AND cardinality(pending) = 1';
  await eventually(
    'the watch to see what is pending',
    async () => (await countOf(slot, 'outbound_streams', pending, [MAIL])) === 1,
  );
  const before = await appended(MAIL);
  // As a restart of Redis looks, with one more entry in each stream: another run id than the one that was seen.
  await slot.db.query("UPDATE notification.outbound_streams SET server_run_id = 'before the restart'");
  await publishedTurns('restarted');
  await untilSuspected();
  await untilTrusted();
  expect(await appended(MAIL)).toBe(before + 1);
});

test("intent-5 of a stream that was first seen later, what was published before is another one's", async () => {
  await publishedTurns('renamed');
  await seen();
  // As after a new name: seen empty, after all of it was published.
  await slot.db.query(
    `UPDATE notification.outbound_streams
        SET last_entry_id = '0-0', entries_added = 0, wanted_from = '0-0', pending = '{}', empty_at = clock_timestamp(),
            server_run_id = 'before the restart'`,
  );
  await slot.redis.del(GATEWAY, MAIL);
  await untilSuspected();
  await untilTrusted();
  expect(await outboundIds(slot.redis)).toEqual([]);
});

test('intent-5 a stream in another database of Redis is a new one', async () => {
  await publishedTurns('moved');
  await seen();
  // As if it had been seen in the database of before.
  await slot.db.query('UPDATE notification.outbound_streams SET redis_db = redis_db + 1');
  await slot.redis.del(GATEWAY, MAIL);
  const isNew = "last_entry_id = '0-0' AND suspect_since IS NULL";
  await eventually(
    'the watch to see the new ones',
    async () => (await countOf(slot, 'outbound_streams', isNew)) === 2,
  );
  expect(await outboundIds(slot.redis)).toEqual([]);
});
