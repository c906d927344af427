/** One change on its way to all targets, a PostgreSQL that was put back, and the retention that every role runs. */
import { registerTargets } from '../../activities/symbol-config/activities.ts';
import type { Service } from '../../workers/service.ts';
import { namesIn, registryOfTests } from './registry.ts';
import { eventually } from '../harness.ts';
import { keptByTemporal } from '../kept.ts';
import { collectorOfTests } from '../otlp-collector.ts';
import { anotherLook, keepRows } from '../put-back.ts';

const registry = registryOfTests();
const collector = collectorOfTests();
let service: Service;
beforeAll(async () => {
  service = await registry.startService({
    NOTIFICATION_SHUTDOWN_TIMEOUT: '5s',
    NOTIFICATION_SYMBOL_RETRY_LADDER: '100ms,200ms',
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_METRIC_EXPORT_INTERVAL: '250',
  });
  await registry.settled();
});
afterEach(() => registry.targets.heal());

/** Pushes of a version, in the order in which they came. */
const pushesOf = (version: number) => registry.targets.pushes.filter((push) => push.version === version);

/** Enables a symbol and waits until every target has it. */
async function change(symbol: string) {
  await registry.write([symbol]);
  await registry.tell();
  return registry.settled();
}

test('S1 S2 one change reaches all 77 targets in one round: collectors with full metadata, alerts with the names alone', async () => {
  const { targets } = registry.targets;
  expect(targets.filter(({ kind }) => kind === 'price_collector')).toHaveLength(7);
  expect(targets.filter(({ kind }) => kind === 'price_alert')).toHaveLength(70);
  expect(new Set(targets.map(({ geo }) => geo)).size).toBe(7);

  const before = (await registry.status()).version;
  const { version } = await change('LINK');
  expect(version).toBe(before + 1);
  const pushes = pushesOf(version);
  expect(new Set(pushes.map(({ target }) => target)).size).toBe(77);
  expect(pushes).toHaveLength(77);
  expect(registry.targets.held('us-east-collector')).toEqual({
    source: 'push',
    version,
    symbols: expect.arrayContaining([
      { symbol: 'BTC', ticker: 'BTC-PERP', decimals: 5, priceScale: 10 },
      { symbol: 'LINK', ticker: 'LINK-PERP', decimals: 2, priceScale: 100 },
    ]),
  });
  expect(registry.targets.held('us-east-alert-1')).toEqual({
    source: 'push',
    version,
    symbols: ['BTC', 'DOGE', 'ETH', 'LINK', 'SOL'],
  });
});

test('S6 an empty list is refused before it is pushed, and the last one stays in force', async () => {
  const { version } = await registry.settled();
  const { rows } = await registry.slot.db.query<{ symbol: string }>(
    'SELECT symbol FROM notification.symbols WHERE is_enabled',
  );
  const symbols = rows.map(({ symbol }) => symbol);
  await registry.write(symbols, false);
  await registry.tell();
  await eventually('the refusal', async () => (await registry.status()).isListEmpty);
  expect(await registry.settled()).toMatchObject({ version });
  expect(registry.slot.logs).toContainEqual(
    expect.objectContaining({ level: 'error', msg: 'no symbol is enabled; an empty list is not pushed' }),
  );

  await registry.write(symbols);
  await registry.tell();
  await eventually('the end of it', async () => !(await registry.status()).isListEmpty);
  expect(await registry.settled()).toMatchObject({ version });
});

test('S1 whatever goes wrong at a target is recorded for that target alone; pushes and rounds are counted by kind, geo, scope and result', async () => {
  const { targets } = registry;
  targets.fail({ target: 'eu-west-alert-1', failure: { kind: 'status', status: 503 }, times: 1 });
  targets.fail({ target: 'eu-west-alert-2', failure: { kind: 'reset' }, times: 1 });
  await change('OP');
  const rows = await registry.rows();
  const errorOf = (name: string) => rows.find(({ target }) => target === name)!.last_error;
  expect(errorOf('eu-west-alert-1')).toBe('status 503: scripted failure');
  expect(errorOf('eu-west-alert-2')).toMatch(/ECONNRESET|other side closed/);
  expect(errorOf('eu-west-alert-3')).toBeNull();
  expect(registry.slot.logs).toContainEqual(
    expect.objectContaining({ msg: 'symbol push failed', target: 'eu-west-alert-1', geo: 'eu-west' }),
  );

  const count = (name: string, attributes?: Record<string, string>) =>
    collector.sumOf(`notification.symbols.${name}`, attributes);
  const euAlerts = { kind: 'price_alert', geo: 'eu-west' };
  await eventually('all that was counted to be exported', async () => {
    const refused = count('pushes', { ...euAlerts, result: 'refused' });
    const failed = count('pushes', { ...euAlerts, result: 'failed' });
    const emptyLists = count('empty_lists');
    const incomplete = count('rounds', { scope: 'all', result: 'incomplete' });
    const complete = count('rounds', { scope: 'behind', result: 'complete' });
    return refused === 1 && failed === 1 && emptyLists >= 1 && incomplete >= 1 && complete >= 1;
  });
  expect(count('pushes', { ...euAlerts, result: 'acknowledged' })).toBeGreaterThanOrEqual(10);
});

test('S5 I52 a PostgreSQL that is put back: no target stays on a list that the rows do not know', async () => {
  const { slot, targets } = registry;
  const lookedAgain = () => anotherLook(slot.redis, 'symbol-config', 'symbol-config/main');
  await change('KEPT');
  await lookedAgain();
  const { putBack } = await keepRows(slot.db);
  const { version: lost } = await change('UNDONE');
  await lookedAgain();
  await putBack();

  await eventually('the list of the rows at all targets', async () => {
    const { version } = await registry.settled();
    expect(version).toBeGreaterThan(lost);
    for (const { name } of targets.targets) {
      const names = namesIn(targets.held(name).symbols);
      expect(names).toContain('KEPT');
      expect(names).not.toContain('UNDONE');
    }
    return (await registry.rows()).every((row) => row.acknowledged_version === version);
  });
  expect(slot.logs).toContainEqual(
    expect.objectContaining({
      msg: 'PostgreSQL fell back to an earlier state, its symbols are pushed to all targets',
    }),
  );
});

test('S1 a history holds versions and names of targets, no symbol', async () => {
  const { handle, slot } = registry;
  const { raw } = await handle.describe();
  const firstRun = slot.client.workflow.getHandle(
    handle.workflowId,
    raw.workflowExecutionInfo?.firstRunId ?? undefined,
  );
  const kept = (await Promise.all([firstRun, handle].map(keptByTemporal))).join('\n');
  expect(kept).toContain('eu-west-alert-1');
  expect(kept).not.toContain('LINK');
});

test('S1 a service that stops does not wait for a target that hangs, and counts it against no target', async () => {
  registry.targets.fail({ target: 'us-east-alert-1', failure: { kind: 'hang' } });
  await registry.write(['NEAR']);
  await registry.tell();
  await eventually('the push that hangs', async () => {
    const { version } = await registry.status();
    return pushesOf(version).some(({ target }) => target === 'us-east-alert-1');
  });
  const failuresBefore = (await registry.rows()).filter((row) => row.consecutive_failures > 0);
  await service.stop();
  expect((await registry.rows()).filter((row) => row.consecutive_failures > 0)).toEqual(failuresBefore);
  registry.targets.heal();
});

test('S1 targets that were added or changed, and of which nothing was told yet, are told at the start; others are forgotten', async () => {
  const { db } = registry.slot;
  const [first, second, ...rest] = registry.targets.targets;
  const renamed = { ...first!, name: 'renamed-collector' };
  // As by a process that died before it told them: a target that changes counts as new.
  await registerTargets(db, [renamed, { ...second!, geo: 'elsewhere' }, ...rest]);
  await registerTargets(db, registry.targets.targets);
  await registry.startService();
  await registry.settled();
  await eventually('all to have acknowledged', async () => {
    const rows = await registry.rows();
    return rows.length === 77 && rows.every(({ acknowledged_version: version }) => version !== null);
  });
});

/** Some are too old by an hour, others by an hour not; of an operation there are more items than a batch has. */
const PLANTED = `(VALUES ('old', interval '721 hours', 5500), ('young', interval '719 hours', 1)) AS planted (id, age, items)`;

test('I10 a process of any role deletes old operations, actions and requests to forget, and no young ones', async () => {
  const { db, client } = registry.slot;
  await db.query(`
    INSERT INTO notification.operations (operation_id, kind, filter, total, rate, requested_by, created_at)
    SELECT id, 'replay', '{}', items, 20, 'nina', now() - age FROM ${PLANTED};
    INSERT INTO notification.operation_items (operation_id, position, notification_id)
    SELECT id, n, 'c' || n FROM ${PLANTED}, generate_series(1, items) AS n;
    INSERT INTO notification.operator_actions (action, target, requested_by, acted_at)
    SELECT 'symbols remove', id, 'nina', now() - age FROM ${PLANTED};
    INSERT INTO notification.forgotten_users (user_sha256, requested_by, begun_at)
    SELECT id, 'nina', now() - age FROM ${PLANTED}`);
  await client.schedule.getHandle('symbol-config-retention').trigger();
  await eventually('only what is young to be left', async () => {
    const { rows } = await db.query<{ id: string }>(
      `SELECT operation_id AS id FROM notification.operations UNION ALL SELECT operation_id FROM notification.operation_items
        UNION ALL SELECT target FROM notification.operator_actions UNION ALL SELECT user_sha256 FROM notification.forgotten_users`,
    );
    return rows.map(({ id }) => id).join() === 'young,young,young,young';
  });
});
