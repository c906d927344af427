/** When who is pushed to: the ladder, reconciliation, the crawler, and bursts of changes. */
import { WorkflowUpdateFailedError } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Service } from '../../workers/service.ts';
import type { CrawlerRequest, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { CONFIGURE_CRAWLER_UPDATE } from '../../workflows/symbol-config/contract.ts';
import { eventually } from '../harness.ts';
import type { SymbolRegistry } from './registry.ts';
import { namesIn, takeSymbolRegistry } from './registry.ts';

const HOUR = 3_600_000;

let registry: SymbolRegistry;
let service: Service | undefined;
beforeAll(async () => {
  registry = await takeSymbolRegistry();
});
afterAll(() => registry.release());
afterEach(() => registry.targets.heal());

/** A service with these settings and a workflow without a past. */
async function begin(env: Record<string, string>): Promise<SymbolConfigState> {
  if (service) {
    await service.stop();
    await registry.handle.terminate('next test');
  }
  service = await registry.startService(env);
  return registry.settled();
}

const configureCrawler = (request: CrawlerRequest) =>
  registry.handle.executeUpdate<SymbolConfigState, [CrawlerRequest]>(CONFIGURE_CRAWLER_UPDATE, {
    args: [request],
  });

const failRounds = (count: number) =>
  eventually(`${count} failed rounds`, async () => {
    const state = await registry.status();
    return state.consecutiveFailures >= count && state;
  });

test('S1 S3 ten targets that are down for three rounds are pushed to on the ladder, and nobody else is', async () => {
  // Long enough to be looked at after the third round, and before the fourth.
  await begin({ NOTIFICATION_SYMBOL_RETRY_LADDER: '400ms,800ms,8s,1h' });
  const { targets } = registry;
  const down = Array.from({ length: 10 }, (_, index) => `us-west-alert-${index + 1}`);
  for (const target of down) targets.fail({ target, failure: { kind: 'status', status: 500 }, times: 3 });

  const before = await registry.status();
  await registry.write(['LINK']);
  await registry.tell();
  const failing = await failRounds(3);
  expect([...failing.failedTargets].sort()).toEqual([...down].sort());
  expect(failing.alarm).toMatchObject({ purpose: 'retry' });
  const behind = (await registry.rows()).filter(({ consecutive_failures }) => consecutive_failures > 0);
  expect(behind.map(({ target }) => target).sort()).toEqual([...down].sort());
  expect(behind.map((row) => row.consecutive_failures)).toEqual(down.map(() => 3));

  const { version } = await registry.settled();
  expect(version).toBe(before.version + 1);
  for (const { name } of targets.targets) {
    const times = targets.pushes
      .filter((push) => push.target === name && push.version === version)
      .map(({ at }) => at);
    expect([name, times.length]).toEqual([name, down.includes(name) ? 4 : 1]);
    const gaps = times.slice(1).map((at, index) => at - times[index]!);
    for (const [index, gap] of gaps.entries()) expect(gap).toBeGreaterThanOrEqual([400, 800, 8_000][index]!);
  }
  expect(await registry.status()).toMatchObject({ consecutiveFailures: 0, failedTargets: [] });
  expect((await registry.rows()).every((row) => row.consecutive_failures === 0)).toBe(true);
});

test('S3 S4 an alarm that is sooner is kept, and reconciliation is not scheduled while one is set', async () => {
  const steady = await begin({
    NOTIFICATION_SYMBOL_RETRY_LADDER: '1h,2h',
    NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '24h',
  });
  expect(steady.alarm).toEqual({ atMs: steady.fullPushDueMs, purpose: 'reconciliation' });

  registry.targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 } });
  await registry.tell();
  const first = await failRounds(1);
  expect(first.alarm!.purpose).toBe('retry');
  expect(first.alarm!.atMs).toBeLessThan(steady.alarm!.atMs - 20 * HOUR);

  await registry.tell();
  expect((await failRounds(2)).alarm).toEqual(first.alarm);
  expect((await configureCrawler({ enabled: true, intervalMs: 48 * HOUR })).alarm).toEqual(first.alarm);
  await configureCrawler({ enabled: false, intervalMs: HOUR });

  registry.targets.heal();
  await registry.tell();
  const recovered = await registry.settled();
  expect(recovered.consecutiveFailures).toBe(0);
  expect(recovered.alarm).toEqual(first.alarm);
});

test('S4 reconciliation alone heals a receiver that lost its state', async () => {
  const { toldChanges } = await begin({ NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '500ms' });
  const { targets } = registry;
  await targets.loseState('ap-south-collector');
  const pushedBefore = targets.pushes.length;
  await eventually(
    'the lost list to be back',
    async () => targets.held('ap-south-collector').source === 'push',
  );
  const state = await registry.settled();
  expect(state.toldChanges).toBe(toldChanges);
  await eventually('a push to all', async () => {
    const since = new Set(targets.pushes.slice(pushedBefore).map(({ target }) => target));
    return since.size === 77;
  });
});

test('S4 those that acknowledge are reconciled, also while others never do', async () => {
  await begin({
    NOTIFICATION_SYMBOL_RETRY_LADDER: '200ms,400ms,1h',
    NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '2s',
  });
  const { targets } = registry;
  targets.fail({ target: 'us-east-alert-1', failure: { kind: 'status', status: 500 } });
  await registry.tell();
  await failRounds(3);
  await targets.loseState('us-east-alert-2');
  await eventually('the lost list to be back', async () => targets.held('us-east-alert-2').source === 'push');
});

test('S4 with the crawler on, reconciliation goes with its alarm, and the setting outlives its workflow', async () => {
  const settings = { NOTIFICATION_SYMBOL_RECONCILIATION_INTERVAL: '24h' };
  await begin(settings);
  expect((await registry.status()).crawler).toEqual({ enabled: false, intervalMs: HOUR });
  const { targets } = registry;
  const on = await configureCrawler({ enabled: true, intervalMs: 1_000 });
  expect(on).toMatchObject({ crawler: { enabled: true, intervalMs: 1_000 }, alarm: { purpose: 'crawler' } });
  for (const round of [1, 2]) {
    await targets.loseState('us-east-alert-3');
    await eventually(`crawl ${round}`, async () => targets.held('us-east-alert-3').source === 'push');
  }

  await begin(settings);
  expect((await registry.status()).crawler).toEqual({ enabled: true, intervalMs: 1_000 });
  await configureCrawler({ enabled: false });
  // The crawler's last alarm goes off as it was set; the one after it is reconciliation's own.
  const after = await eventually('the reconciliation alarm', async () => {
    const state = await registry.status();
    return state.alarm?.purpose === 'reconciliation' && state;
  });
  expect(after.alarm!.atMs - Date.now()).toBeGreaterThan(23 * HOUR);
});

test('S4 a crawler that makes no sense is refused', async () => {
  await begin({});
  for (const request of [
    {},
    { enabled: 'yes' },
    { enabled: true, intervalMs: 10 },
    { enabled: true, intervalMs: 1e12 },
  ]) {
    const refusal = await configureCrawler(request as CrawlerRequest).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(WorkflowUpdateFailedError);
  }
});

test('S5 1,000 changes in a burst end in one consistent state and a small history', async () => {
  const before = await begin({});
  const { runId: firstRun } = await registry.handle.describe();
  const { targets } = registry;
  const names = Array.from({ length: 1_000 }, (_, index) => `BURST-${index}`);
  // As many updates as Temporal lets be under way together.
  const atMost = pLimit(10);
  await Promise.all(
    names.map((name) =>
      atMost(async () => {
        await registry.write([name]);
        await registry.tell();
      }),
    ),
  );
  const state = await registry.settled();

  const enabled = namesIn(targets.held('us-east-collector').symbols);
  expect(enabled).toEqual(expect.arrayContaining(names));
  for (const { name } of targets.targets) expect(namesIn(targets.held(name).symbols)).toEqual(enabled);
  expect(state.toldChanges).toBeGreaterThanOrEqual(before.toldChanges + 1_000);
  expect(state.version - before.version).toBeLessThan(200);
  const { historyLength, runId } = await registry.handle.describe();
  expect(historyLength).toBeLessThan(1_500);
  expect(runId).not.toBe(firstRun);
  console.info(
    `1,000 changes: ${state.version - before.version} versions, ${targets.pushes.filter(({ version }) => version > before.version).length} pushes, history of ${historyLength} events`,
  );
});
