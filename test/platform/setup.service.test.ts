/** `galaxy-notify setup` on a real server, and what `doctor` says before and after. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import type { Client } from '@temporalio/client';
import { temporalNeeds } from '../../cli/setup.ts';
import { listen } from '../../dev/servers/ports.ts';
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
