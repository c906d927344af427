/** `galaxy-notify setup` on a real server, and what `doctor` says before and after: of servers, and of rows and streams. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import { DEFAULT_INPUT_STREAM } from '../../api/account-callback/input.ts';
import { DEFAULT_MOBILE_STREAM } from '../../api/mobile-push/job.ts';
import { CONSUMER_GROUP } from '../../api/stream-ids.ts';
import { consumerGroup } from '../../cli/checks.ts';
import { temporalNeeds } from '../../cli/setup.ts';
import { listen } from '../../dev/servers/ports.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { ensureSearchAttributes } from '../../migrations/namespace.ts';
import { cliOfTests } from '../command-line.ts';
import { slotOfTests } from '../harness.ts';
import { SEARCH_ATTRIBUTES } from '../../workflows/search-attributes.ts';

const slot = slotOfTests({ isEmpty: true });
const bench = cliOfTests(slot);
const ROLES = 'intent,mobile-push,subscription';
const namespace = () => `setup-${slot.slot}`;
const variables = () => ({ TEMPORAL_NAMESPACE: namespace(), NOTIFICATION_ROLES: ROLES });
const setUp = (args: string[] = [], changes: Record<string, string> = {}) =>
  bench.setUp(args, { ...variables(), ...changes });
const findings = (changes: Record<string, string> = {}) => bench.findings({ ...variables(), ...changes });

const idsOf = (task: string) => ROLES.split(',').map((role) => `${role}-${task}`);
const RETENTIONS = idsOf('retention');
const SCHEDULES = [...idsOf('reconciliation'), ...RETENTIONS];

test('I40 setup makes what is missing, changes what was asked for, and leaves the rest', async () => {
  const ofNamespace = `namespace ${namespace()}`;
  const everything = [
    ...[ofNamespace, 'search attributes', 'database schema'],
    ...SCHEDULES.map((id) => `schedule ${id}`),
  ];
  const all = (status: string) => Object.fromEntries(everything.map((name) => [name, status]));

  const absent = {
    status: 'error',
    detail: `there is no ${ofNamespace}`,
    hint: expect.stringContaining('galaxy-notify setup') as string,
  };
  expect((await findings())['Temporal']).toEqual(absent);

  const dry = await setUp(['--dry-run']);
  expect([dry.code, dry.steps]).toEqual([1, all('missing')]);
  expect(dry.stderr).toContain('without --dry-run');
  expect((await findings())['Temporal']).toEqual(absent);

  const made = await setUp(['--retention', '7d']);
  expect([made.stderr, made.code, made.steps]).toEqual(['', 0, all('created')]);
  const { connection } = slot.client;
  const { config } = await connection.workflowService.describeNamespace({ namespace: namespace() });
  expect(Number(config?.workflowExecutionRetentionTtl?.seconds)).toBe(7 * 86_400);
  const { customAttributes } = await connection.operatorService.listSearchAttributes({
    namespace: namespace(),
  });
  expect(Object.keys(customAttributes)).toEqual(expect.arrayContaining(Object.keys(SEARCH_ATTRIBUTES)));

  const again = await setUp();
  expect([again.code, again.steps]).toEqual([0, all('ok')]);
  expect(again.stdout).toContain('7 d');

  const changed = await setUp(['--retention', '3d'], { NOTIFICATION_CLEANUP_INTERVAL: '2h' });
  expect(changed.steps).toEqual({
    ...all('ok'),
    [ofNamespace]: 'changed',
    ...Object.fromEntries(RETENTIONS.map((id) => [`schedule ${id}`, 'changed'])),
  });
});

test('I40 doctor looks for the schedules of the configured roles and their intervals', async () => {
  const configured = await findings({ NOTIFICATION_CLEANUP_INTERVAL: '2h' });
  for (const id of SCHEDULES) expect(configured[`schedule ${id}`]).toMatchObject({ status: 'ok' });
  expect((await findings())['schedule intent-retention']).toMatchObject({
    status: 'warn',
    detail: expect.stringContaining('every 60 min, found: 2 h'),
  });
  const names = Object.keys(await findings({ NOTIFICATION_ROLES: 'symbol-config' }));
  expect(names.filter((name) => name.startsWith('schedule'))).toEqual(['schedule symbol-config-retention']);
});

test('I40 doctor looks whether what the roles reach for can be reached, and sends nothing', async () => {
  let bytes = 0;
  const listener = createServer((socket) => socket.on('data', (chunk) => (bytes += chunk.length)));
  const port = await listen(listener);
  const targets = path.join(bench.dataDir, 'targets.json');
  const target = { kind: 'price_alert', geo: 'eu' };
  writeFileSync(
    targets,
    JSON.stringify([
      { ...target, name: 'here', url: `http://127.0.0.1:${port}/symbols` },
      { ...target, name: 'away', url: 'http://127.0.0.1:1/symbols' },
    ]),
  );
  const found = await findings({
    NOTIFICATION_ROLES: 'account-callback,symbol-config,subscription',
    NOTIFICATION_PORTFOLIO_BASE_URL: `http://127.0.0.1:${port}`,
    NOTIFICATION_SYMBOL_TARGETS_FILE: targets,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: `ntf://${'A'.repeat(43)}@127.0.0.1:1`,
  });
  listener.close();
  expect(found).toMatchObject({
    'portfolio service': { status: 'ok' },
    'symbol targets': { status: 'warn', detail: expect.stringContaining('1 of 2 failed: away') as string },
    'notification routers': { status: 'error' },
  });
  expect(bytes).toBe(0);
});

test('I32 setup says in one line each which server is away', async () => {
  const away = await setUp([], {
    TEMPORAL_ADDRESS: '127.0.0.1:1',
    NOTIFICATION_POSTGRES_PRIMARY_DSN: 'postgres://u:secret@127.0.0.1:1/db',
  });
  expect(away).toMatchObject({ code: 1, stdout: '' });
  expect(away.stderr).toContain('cannot reach Temporal (TEMPORAL_ADDRESS)');
  expect(away.stderr).toContain('cannot reach PostgreSQL at 127.0.0.1:1');
  expect(away.stderr).not.toContain('secret');
  expect(away.stderr.trim().split('\n')).toHaveLength(2);
});

const HOUR = 3_600_000;

/** What `doctor` finds in rows and streams: consumer groups, overdue trackings, and work that is late. */
async function checks(): Promise<Record<string, string>> {
  const found = Object.entries(
    await findings({ NOTIFICATION_ROLES: `${ROLES},symbol-config,account-callback` }),
  ).filter(([name]) => /^(work|mobile|callbacks):/.test(name));
  return Object.fromEntries(found.map(([name, { status, detail }]) => [name, `${status}: ${detail}`]));
}

test('kinds-M1 kinds-V2 kinds-V8 doctor says what stays behind, and nothing where all is well', async () => {
  await setUp();
  await createDeviceTokens(slot.ownerDsn, { samples: false });
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
  const quiet = Object.values(await checks());
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

  const found = await checks();
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

describe('a server that does not let us, as Temporal Cloud', () => {
  /** Errors as the gRPC library makes them. */
  const refusal = (code: number, details: string) => () =>
    Promise.reject(Object.assign(new Error(details), { code, details, metadata: {} }));
  const cloud = (workflowService: object, operatorService: object = {}) =>
    ({
      withDeadline: (_: number, call: () => Promise<unknown>) => call(),
      connection: { workflowService, operatorService },
    }) as unknown as Client;
  const withoutAttributes = {
    listSearchAttributes: async () => ({ customAttributes: {} }),
    addSearchAttributes: refusal(12, 'not implemented'),
  };
  const namespace = 'prod.acme';
  const needsOf = (temporal: Client) => temporalNeeds({ temporal, namespace, schedules: [] });

  test('I40 setup says what to do instead', async () => {
    const temporal = cloud({
      describeNamespace: refusal(5, 'not found'),
      registerNamespace: refusal(7, 'Request unauthorized.'),
    });
    const [absent] = needsOf(temporal);
    expect(await absent!.look()).toMatchObject({ lack: 'created' });
    await expect(absent!.make('created')).rejects.toThrow(
      /prod\.acme cannot be created .*Request unauthorized\..*tcld: docs\/deploy\/temporal-cloud\.md/,
    );
    const [, attributes] = needsOf(cloud({}, withoutAttributes));
    expect(await attributes!.look()).toMatchObject({
      lack: 'created',
      detail: expect.stringContaining('NotificationId=Keyword'),
    });
    await expect(attributes!.make('created')).rejects.toThrow(/NotificationId=Keyword.*temporal-cloud\.md/);
  });

  test('I32 the service says at its start which search attributes are missing, and what to do', async () => {
    const { connection } = cloud({}, withoutAttributes);
    await expect(ensureSearchAttributes(connection, namespace, SEARCH_ATTRIBUTES)).rejects.toMatchObject({
      name: 'SelfExplanatoryError',
      message: expect.stringMatching(/prod\.acme lacks .*NotificationId.*temporal-cloud\.md/) as string,
    });
  });
});
