/** What an outbound stream has trimmed, or its consumers have deleted, is not handed off again. */
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { GATEWAY, MAIL, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService({
    // Five hundred trees of workflows would take a busy machine minutes.
    NOTIFICATION_ROUTE_DISPATCH: 'direct',
    NOTIFICATION_ROUTE_LEASE_TTL: '1s',
    NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
    NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100',
  });
});
afterAll(() => slot.release());

async function publishAll(count: number, name: string): Promise<void> {
  const ids = await Promise.all(
    Array.from({ length: count }, (_, index) => publishTurn(slot.redis, `${name}-${index}`)),
  );
  await eventually('all routes to be published', async () => {
    const { rowCount } = await slot.db.query(
      "SELECT FROM notification.routes WHERE notification_id = ANY ($1) AND status = 'published'",
      [ids],
    );
    return rowCount === 2 * count;
  });
}

/** The watch has seen how all streams are, and suspects none. */
const isTrusted = async () => {
  const { rows } = await slot.db.query<{ stream: string; last_entry_id: string }>(
    'SELECT stream, last_entry_id FROM notification.outbound_streams WHERE suspect_since IS NULL',
  );
  const newest = await Promise.all(
    [GATEWAY, MAIL].map(async (stream) => (await slot.redis.xrevrange(stream, '+', '-', 'COUNT', 1))[0]?.[0]),
  );
  return newest.every((id) => id === undefined || rows.some(({ last_entry_id }) => last_entry_id === id));
};

/** As a restart of Redis looks, with one more entry in each stream: another run id than the one that was seen. */
async function restartRedis(name: string): Promise<void> {
  await slot.db.query("UPDATE notification.outbound_streams SET server_run_id = 'before the restart'");
  await publishAll(1, name);
  await eventually('the streams to be suspected', isSuspected);
}

const appended = async (stream: string) => {
  const info = (await slot.redis.xinfo('STREAM', stream)) as (string | number)[];
  return Number(info[info.indexOf('entries-added') + 1]);
};

async function isSuspected(): Promise<boolean> {
  const { rowCount } = await slot.db.query(
    'SELECT FROM notification.outbound_streams WHERE suspect_since IS NOT NULL',
  );
  return rowCount! > 0;
}

test('intent-1 what is trimmed while a restart settles is handed off once', async () => {
  await publishAll(100, 'before');
  await eventually('the watch to see all', isTrusted);
  await restartRedis('restarted');
  await publishAll(400, 'after');
  await eventually('the streams to be trusted', isTrusted);
  expect(await appended(GATEWAY)).toBe(501);
  expect(await appended(MAIL)).toBe(501);
});

test('intent-5 what a group has acknowledged and deleted is not handed off again, and a pending one is not doubled', async () => {
  await slot.redis.xgroup('CREATE', MAIL, 'mail', '0');
  const [[, entries]] = (await slot.redis.xreadgroup(
    ...(['GROUP', 'mail', 'm', 'COUNT', 1_000, 'STREAMS', MAIL, '>'] as const),
  )) as [[string, [string, string[]][]]];
  const done = entries.slice(1).map(([id]) => id);
  await slot.redis.xack(MAIL, 'mail', ...done);
  await slot.redis.xdel(MAIL, ...done);
  await eventually('the watch to see what is pending', async () => {
    const { rows } = await slot.db.query<{ pending: string[] }>(
      'SELECT pending FROM notification.outbound_streams WHERE stream = $1',
      [MAIL],
    );
    return rows[0]?.pending.length === 1;
  });
  const before = await appended(MAIL);
  await restartRedis('restarted-again');
  await eventually('the streams to be trusted', async () => !(await isSuspected()));
  expect(await appended(MAIL)).toBe(before + 1);
});

test("intent-5 of a stream that was first seen later, what was published before is another one's", async () => {
  await publishAll(1, 'renamed');
  await eventually('the watch to see all', isTrusted);
  const before = await outboundIds(slot.redis);
  // As after a new name: seen empty, after all of it was published.
  await slot.db.query(
    `UPDATE notification.outbound_streams
        SET last_entry_id = '0-0', entries_added = 0, wanted_from = '0-0', pending = '{}', empty_at = clock_timestamp(),
            server_run_id = 'before the restart'`,
  );
  await slot.redis.del(GATEWAY, MAIL);
  await eventually('the streams to be suspected', isSuspected);
  await eventually('the streams to be trusted', async () => !(await isSuspected()));
  expect(before.length).toBeGreaterThan(0);
  expect(await outboundIds(slot.redis)).toEqual([]);
});

test('intent-5 a stream in another database of Redis is a new one', async () => {
  await publishAll(1, 'moved');
  await eventually('the watch to see all', isTrusted);
  // As if it had been seen in the database of before.
  await slot.db.query('UPDATE notification.outbound_streams SET redis_db = redis_db + 1');
  await slot.redis.del(GATEWAY, MAIL);
  await eventually('the watch to see the new ones', async () => {
    const { rowCount } = await slot.db.query(
      "SELECT FROM notification.outbound_streams WHERE last_entry_id = '0-0' AND suspect_since IS NULL",
    );
    return rowCount === 2;
  });
  expect(await outboundIds(slot.redis)).toEqual([]);
});
