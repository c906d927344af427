/** What `doctor` finds in rows and streams: consumer groups, overdue trackings, and work that is late. */
import { DEFAULT_INPUT_STREAM } from '../../api/account-callback/input.ts';
import { DEFAULT_MOBILE_STREAM } from '../../api/mobile-push/job.ts';
import { CONSUMER_GROUP } from '../../api/stream-ids.ts';
import { consumerGroup } from '../../cli/checks.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { cliOfTests } from '../command-line.ts';
import { slotOfTests } from '../harness.ts';

const slot = slotOfTests();
const bench = cliOfTests(slot);
beforeAll(() => createDeviceTokens(slot.ownerDsn, { samples: false }));

const HOUR = 3_600_000;

async function findings() {
  const found = await bench.findings({
    NOTIFICATION_ROLES: 'intent,mobile-push,symbol-config,account-callback,subscription',
  });
  return Object.fromEntries(
    Object.entries(found).flatMap(([name, { status, detail }]) =>
      /^(work|mobile|callbacks):/.test(name) ? [[name, `${status}: ${detail}`]] : [],
    ),
  );
}

test('kinds-M1 kinds-V2 kinds-V8 doctor says what stays behind, and nothing where all is well', async () => {
  const snapshot = (kind: string, user: string, startMs: number) =>
    slot.db.query(
      `INSERT INTO notification.callback_snapshots
         (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
          created_at)
       VALUES ($1, $2, $3::bigint, 1, '1-0', '1', $3, '1', $3, '1', now() - interval '1 hour')`,
      [kind, user, startMs],
    );
  // It waits for the others of its shard.
  await snapshot('daily', 'd', Math.floor(Date.now() / (24 * HOUR)) * 24 * HOUR);
  const quiet = Object.values(await findings());
  expect(quiet).toHaveLength(9);
  expect(quiet.filter((text) => !text.startsWith('ok'))).toEqual([]);

  await slot.db.query(`
    INSERT INTO notification.callback_trackings VALUES
      ('a', 1, '1-0', NULL, true, '2026-01-01', '2026-01-01', '2026-01-02'),
      ('b', 1, '1-0', NULL, true, '2026-01-01', '2026-01-01', now()),
      ('c', 2, '1-0', 0, false, '2026-01-01', '2026-01-01', '2026-01-02')`);
  await snapshot('hourly', 'a', HOUR);
  await slot.db.query(
    `INSERT INTO notification.symbol_snapshots VALUES (3, '[{"symbol": "BTC"}]', now() - interval '2 hours')`,
  );
  await slot.db.query(
    `INSERT INTO notification.symbol_targets (target, kind, geo, url, acknowledged_version, consecutive_failures, failing_since)
     VALUES ('fine', 'price_alert', 'eu', 'http://a', 3, 0, NULL),
            ('late', 'price_alert', 'eu', 'http://c', 2, 9, now() - interval '3 hours'),
            ('untried', 'price_alert', 'us', 'http://d', NULL, 0, NULL)`,
  );
  await slot.db.query(
    `INSERT INTO notification.outcomes (events, event_count, written_at) VALUES ('[]', 1, now() - interval '6 minutes')`,
  );
  for (const stream of [DEFAULT_MOBILE_STREAM, DEFAULT_INPUT_STREAM]) {
    await slot.redis.xgroup('CREATE', stream, CONSUMER_GROUP, '$', 'MKSTREAM');
    for (let n = 0; n < 2; n += 1) await slot.redis.xadd(stream, '*', 'n', String(n));
    await slot.redis.xreadgroup('GROUP', CONSUMER_GROUP, 'dead', 'COUNT', 1, 'STREAMS', stream, '>');
    const [[id]] = (await slot.redis.xpending(stream, CONSUMER_GROUP, '-', '+', 1)) as [[string]];
    await slot.redis.xclaim(stream, CONSUMER_GROUP, 'dead', 0, id, 'IDLE', HOUR, 'JUSTID');
  }

  const found = await findings();
  expect(found).toMatchObject({
    'callbacks: trackings': 'warn: not caught up in time: a (2026-01-01)',
    'work: account-callback': 'warn: callbacks: 2, the oldest for 60 min',
    'work: intent': 'warn: events for producers: 1, the oldest for 6 min',
    'work: mobile-push': 'ok: nothing waits for long',
    'work: symbol-config': 'warn: targets in eu: 1, the oldest for 3 h; targets in us: 1, the oldest for 2 h',
  });
  for (const name of ['mobile: consumer group', 'callbacks: consumer group']) {
    expect(found[name]).toMatch(/^warn: 1 unread, 1 not acknowledged, the oldest taken .* ago; 1 consumer, /);
  }
});

test('M2 a group that has read all has nothing unread, whatever Redis counts after a failover', async () => {
  await slot.redis.xgroup('CREATE', 'counted', 'readers', '$', 'MKSTREAM');
  for (let n = 0; n < 3; n += 1) await slot.redis.xadd('counted', '*', 'n', String(n));
  await slot.redis.call('XGROUP', 'SETID', 'counted', 'readers', '$', 'ENTRIESREAD', '1');
  const [fields] = (await slot.redis.xinfo('GROUPS', 'counted')) as [unknown[]];
  expect(fields[fields.indexOf('lag') + 1]).toBe(2);
  const group = { redis: slot.redis, stream: 'counted', group: 'readers' };
  const { detail } = await consumerGroup(group, 'mobile-push');
  expect(detail).toMatch(/^0 unread/);
});
