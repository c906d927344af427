/** What `doctor` finds in rows and streams: groups, shards, what was given up, targets that stay behind. */
import { callbackChecks } from '../../cli/account-callback/callbacks.ts';
import { diagnose } from '../../cli/checks.ts';
import { mobileChecks } from '../../cli/mobile-push/jobs.ts';
import { subscriptionChecks } from '../../cli/subscription/check.ts';
import { symbolChecks } from '../../cli/symbol-config/symbols.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { consumerGroup } from '../../cli/checks.ts';
import { slotOfTests } from '../harness.ts';
import { namespaceOf } from '../slots.ts';

const slot = slotOfTests();
beforeAll(() => createDeviceTokens(slot.ownerDsn, { samples: false }));

const HOUR = 3_600_000;

async function findings() {
  const { db, redis, client } = slot;
  const group = 'readers';
  const resources = {
    ...{ db, redis, temporal: client, namespace: namespaceOf(slot.slot), uiUrl: undefined },
    ...{ intentsStream: 'notification:intents', keyBox: undefined },
  } as unknown as Parameters<typeof symbolChecks>[0];
  const found = await diagnose([
    mobileChecks(db, { redis, stream: 'jobs', group }),
    callbackChecks(db, { redis, stream: 'inputs', group }),
    subscriptionChecks(db),
    symbolChecks(resources),
  ]);
  return Object.fromEntries(found.map(({ name, status, detail }) => [name, `${status}: ${detail}`]));
}

test('kinds-M1 kinds-V2 kinds-V8 doctor says what stays behind, and nothing where all is well', async () => {
  const quiet = await findings();
  expect(Object.values(quiet).filter((text) => !text.startsWith('ok'))).toEqual([]);

  await slot.db.query(`
    INSERT INTO notification.callback_trackings VALUES
      ('a', 1, '1-0', NULL, true, '2026-01-01', '2026-01-01', '2026-01-02'),
      ('b', 1, '1-0', NULL, true, '2026-01-01', '2026-01-01', now()),
      ('c', 2, '1-0', 0, false, '2026-01-01', '2026-01-01', '2026-01-02')`);
  await slot.db.query(`
    INSERT INTO notification.callback_snapshots
      (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms, closing_value,
       created_at)
    VALUES ('hourly', 'a', 3600000, 1, '1-0', '1', 3600000, '1', 3600000, '1', now() - interval '1 hour')`);
  await slot.db.query(`INSERT INTO notification.symbol_snapshots VALUES (3, '[{"symbol": "BTC"}]', now())`);
  await slot.db.query(
    `INSERT INTO notification.symbol_targets (target, kind, geo, url, acknowledged_version, consecutive_failures, failing_since)
     VALUES ('fine', 'price_alert', 'eu', 'http://a', 3, 0, NULL),
            ('late', 'price_alert', 'eu', 'http://c', 2, 9, now() - interval '3 hours')`,
  );
  for (const stream of ['jobs', 'inputs']) {
    await slot.redis.xgroup('CREATE', stream, 'readers', '$', 'MKSTREAM');
    for (let n = 0; n < 2; n += 1) await slot.redis.xadd(stream, '*', 'n', String(n));
    await slot.redis.xreadgroup('GROUP', 'readers', 'dead', 'COUNT', 1, 'STREAMS', stream, '>');
    const [[id]] = (await slot.redis.xpending(stream, 'readers', '-', '+', 1)) as [[string]];
    await slot.redis.xclaim(stream, 'readers', 'dead', 0, id, 'IDLE', HOUR, 'JUSTID');
  }

  const found = await findings();
  expect(found['callbacks: shards']).toMatch(/^warn: 1 of 4 shards behind, 1: /);
  expect(found['callbacks: trackings']).toBe('warn: not caught up in time: a (2026-01-01)');
  expect(found['symbol targets: lists']).toMatch(/^warn: 1 of 2 targets behind: late for /);
  for (const name of ['mobile: consumer group', 'callbacks: consumer group']) {
    expect(found[name]).toMatch(/^warn: 1 unread, 1 not acknowledged, the oldest taken .* ago; 1 consumer, /);
  }
  expect(found['subscriptions: given up']).toBe('ok: none');
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
