/** The activities on real tables, with the stand-in targets: which targets a round is for, and what becomes of each push. */
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import { metrics } from '@opentelemetry/api';
import { createHttpCaller } from '../../activities/http/caller.ts';
import {
  createSymbolConfigActivities,
  createSymbolConfigMetrics,
  registerTargets,
} from '../../activities/symbol-config/activities.ts';
import { DEVELOPMENT_SIGNING_SECRET } from '../../config/caller.ts';
import { createLogger } from '../../workers/logger.ts';
import type { PushScope } from '../../workflows/symbol-config/contract.ts';
import { namesIn, registryOfTests } from './registry.ts';

const TARGETS = 77;
const RECONCILIATION_MS = 900_000;
const LADDER_MS = [1_000, 2_000, 60_000];

const caller = createHttpCaller({ signingSecrets: [DEVELOPMENT_SIGNING_SECRET] });

const registry = registryOfTests();
let activities: ReturnType<typeof activitiesWith>;
beforeAll(async () => {
  await registerTargets(registry.slot.db, registry.targets.targets);
  activities = activitiesWith(300_000);
});
afterAll(async () => {
  caller.close();
});
afterEach(() => registry.targets.heal());

function activitiesWith(pushTimeoutMs: number) {
  const made = createSymbolConfigActivities({
    db: registry.slot.db,
    log: createLogger('silent'),
    metrics: createSymbolConfigMetrics(metrics.getMeter('test')),
    caller,
    ...{ pushTimeoutMs, retryLadderMs: LADDER_MS, intervals: { reconciliationMs: RECONCILIATION_MS } },
  });
  const context = { heartbeat: () => undefined, cancellationSignal: new AbortController().signal };
  return {
    ...made,
    pushSymbols: (version: number, scope: PushScope) =>
      asyncLocalStorage.run(context as unknown as Context, () => made.pushSymbols(version, scope)),
  };
}

/** @returns the version of the list that the tables have now. */
async function snapshot(floor = 0): Promise<number> {
  return (await activities.takeSymbolSnapshot(floor)).version;
}

/** Enables a symbol and brings it to every target. @returns its version. */
async function change(symbol: string): Promise<number> {
  await registry.write([symbol]);
  const version = await snapshot();
  expect(await activities.pushSymbols(version, 'all')).toMatchObject({ pushed: TARGETS, failedTargets: [] });
  return version;
}

/** Puts the database back to a backup of the time of a version. Targets keep what they have. */
async function restore(version: number, disabled: string): Promise<void> {
  await registry.write([disabled], false);
  await registry.slot.db.query('DELETE FROM notification.symbol_snapshots WHERE version > $1', [version]);
  await registry.slot.db.query('UPDATE notification.symbol_targets SET acknowledged_version = $1', [version]);
}

/** The next number of the tables is then greater than that of every target. */
async function heal(): Promise<void> {
  registry.targets.heal();
  const newest = Math.max(
    ...registry.targets.targets.map(({ name }) => registry.targets.held(name).version ?? 0),
  );
  await activities.pushSymbols(await snapshot(newest), 'all');
}

const symbolsOf = (target: string) => namesIn(registry.targets.held(target).symbols);
const rowOf = async (name: string) => (await registry.rows()).find(({ target }) => target === name)!;
const pushesOf = (version: number) => registry.targets.pushes.filter((push) => push.version === version);

test('S1 S3 targets that failed are pushed to until they acknowledge, and no other target is', async () => {
  const { targets } = registry;
  const down = Array.from({ length: 10 }, (_, index) => `us-west-alert-${index + 1}`).sort();
  for (const target of down) targets.fail({ target, failure: { kind: 'status', status: 500 }, times: 3 });
  await registry.write(['BTC', 'LINK']);
  const version = await snapshot();
  const first = await activities.pushSymbols(version, 'all');
  expect(first).toMatchObject({ pushed: TARGETS, retryMs: 1_000, reconciliationMs: RECONCILIATION_MS });
  expect([...first.failedTargets].sort()).toEqual(down);
  for (const retryMs of [2_000, 60_000])
    expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 10, retryMs });
  const behind = (await registry.rows()).filter(({ consecutive_failures }) => consecutive_failures === 3);
  expect(behind.map(({ target }) => target).sort()).toEqual(down);

  expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 10, failedTargets: [] });
  const pushes = Map.groupBy(pushesOf(version), ({ target }) => target);
  for (const { name } of targets.targets)
    expect([name, pushes.get(name)!.length]).toEqual([name, down.includes(name) ? 4 : 1]);
  expect((await registry.rows()).every((row) => row.consecutive_failures === 0)).toBe(true);
});

test('kinds-F10 the ladder belongs to the target: the soonest of those that failed is when to push again', async () => {
  const dead = 'us-east-alert-2';
  const version = await change('LADDERS');
  registry.targets.fail({ target: dead, failure: { kind: 'status', status: 500 } });
  for (const retryMs of [1_000, 2_000, 60_000, 60_000])
    expect(await activities.pushSymbols(version, 'all')).toMatchObject({ failedTargets: [dead], retryMs });
  registry.targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 }, times: 1 });
  expect(await activities.pushSymbols(version, 'all')).toMatchObject({ retryMs: 1_000 });
  expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 2, retryMs: 60_000 });
  await heal();
  expect(await activities.pushSymbols(await snapshot(), 'all')).not.toHaveProperty('retryMs');
});

test('bug-P14 a target that answers 410 is pushed to only with all others, and says so', async () => {
  const gone = 'us-east-alert-2';
  const version = await change('LEAVING');
  registry.targets.fail({ target: gone, failure: { kind: 'status', status: 410 } });
  const outcome = await activities.pushSymbols(version, 'all');
  expect(outcome.failedTargets).toEqual([gone]);
  expect(outcome).not.toHaveProperty('retryMs');
  expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 0 });
  expect(await rowOf(gone)).toMatchObject({ is_gone: true, last_error: 'status 410: scripted failure' });

  registry.targets.heal();
  expect(await activities.pushSymbols(version, 'all')).toMatchObject({ failedTargets: [] });
  expect(await rowOf(gone)).toMatchObject({ is_gone: false });
});

test('bug-P14 a target that says when it wants the next push gets it then', async () => {
  const version = await change('LATER');
  const failure = { kind: 'status', status: 429, headers: { 'retry-after': '2' } } as const;
  registry.targets.fail({ target: 'us-east-alert-2', failure, times: 1 });
  expect(await activities.pushSymbols(version, 'all')).toMatchObject({ retryMs: 2_000 });
  await activities.pushSymbols(version, 'all');
});

test('S4 a target that failed in a reconciliation is behind, although it has the version', async () => {
  const version = await change('SECOND');
  registry.targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 }, times: 1 });
  await activities.pushSymbols(version, 'all');
  expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 1, failedTargets: [] });
  expect(await activities.pushSymbols(version, 'behind')).toMatchObject({ pushed: 0 });
});

test('kinds-S3 a list that has changed gets the next version, also when it changed without a notice', async () => {
  const version = await change('AVAX');
  expect(await snapshot()).toBe(version);
  await registry.write(['ARB']);
  expect(await snapshot()).toBe(version + 1);
  expect(await activities.pushSymbols(version + 1, 'all')).toMatchObject({ pushed: TARGETS });
  expect(symbolsOf('us-east-alert-1')).toContain('ARB');

  const { rows } = await registry.slot.db.query('SELECT symbol FROM notification.symbols WHERE is_enabled');
  const enabled = rows.map(({ symbol }: { symbol: string }) => symbol);
  await registry.write(enabled, false);
  expect(await activities.takeSymbolSnapshot(0)).toEqual({ version: version + 1, isListEmpty: true });
  await registry.write(enabled);
});

test('kinds-S3 a push of an older version that is acknowledged late does not hide the newer one', async () => {
  const version = await change('OVERTAKEN');
  const target = 'us-east-alert-1';
  const statement = 'UPDATE notification.symbol_targets SET acknowledged_version = $1 WHERE target = $2';
  await registry.slot.db.query(statement, [version + 1, target]);
  expect(await activities.pushSymbols(version, 'all')).toMatchObject({ failedTargets: [] });
  expect(await rowOf(target)).toMatchObject({ acknowledged_version: version + 1 });
});

test('kinds-F7 a program cannot write what receivers refuse the whole list for', async () => {
  const write = (symbol: string, ticker: string) =>
    registry.slot.db.query(
      `INSERT INTO notification.symbols VALUES ($1, $2, 2, 100, true, now())
       ON CONFLICT (symbol) DO UPDATE SET ticker = excluded.ticker`,
      [symbol, ticker],
    );
  for (const [symbol, ticker] of [
    ['BTC PERP', 'BTC'],
    ['BTC', 'BTC PERP'],
    ['B\u00fcC', 'BTC'],
    ['BTC\n', 'BTC'],
    ['x'.repeat(65), 'BTC'],
    ['', 'BTC'],
  ] as const)
    await expect(write(symbol, ticker)).rejects.toThrow(/symbols_(symbol|ticker)_check/);
  const longest = '!~'.repeat(32);
  await write(longest, longest);
  await registry.slot.db.query('DELETE FROM notification.symbols WHERE symbol = $1', [longest]);
});

test('kinds-V8 after the restore of an older database all targets get the list again', async () => {
  const version = await snapshot();
  for (const symbol of ['ONE', 'TWO', 'THREE']) await change(symbol);
  await restore(version, 'THREE');

  const refused = await activities.pushSymbols(await snapshot(version), 'all');
  expect(refused.failedTargets).toHaveLength(TARGETS);
  expect(refused.numberOnFrom).toBe(version + 3);
  const healed = await snapshot(refused.numberOnFrom);
  expect(healed).toBeGreaterThan(version + 3);
  expect(await activities.pushSymbols(healed, 'all')).toMatchObject({ pushed: TARGETS, failedTargets: [] });
  for (const { name } of registry.targets.targets) expect(symbolsOf(name)).not.toContain('THREE');
  expect(symbolsOf('us-east-collector')).toContain('TWO');
});

test('kinds-V8 a version that the database has lost is numbered on from', async () => {
  const version = await snapshot();
  const lost = await change('FOUR');
  await restore(version, 'FOUR');
  const outcome = await activities.pushSymbols(lost, 'all');
  expect(outcome).toMatchObject({ pushed: 0, retryMs: LADDER_MS[0] });
  expect(outcome.failedTargets).toHaveLength(TARGETS);
  const next = await snapshot(lost);
  expect(next).toBe(lost + 1);
  await activities.pushSymbols(next, 'all');
  expect(symbolsOf('us-west-collector')).not.toContain('FOUR');
});

test('kinds-V10 an answer that does not end acknowledges by its status', async () => {
  const target = 'eu-central-alert-2';
  const version = await change('UNI');
  registry.targets.fail({ target, failure: { kind: 'status', status: 500 }, times: 1 });
  await activities.pushSymbols(version, 'all');
  const { last_error_at } = await rowOf(target);
  expect(last_error_at).not.toBeNull();
  registry.targets.fail({ target, failure: { kind: 'endless_answer' } });
  // The time-out ends the wait for the end of the answer.
  const outcome = await activitiesWith(2_000).pushSymbols(version, 'behind');
  expect(outcome).toMatchObject({ pushed: 1, failedTargets: [] });
  // The row keeps the time of the last error after it is over.
  expect(await rowOf(target)).toMatchObject({
    acknowledged_version: version,
    consecutive_failures: 0,
    last_error_at,
  });
});
