/**
 * When the workflow pushes to which targets: the ladder, reconciliation, the crawler, bursts of changes, and what it heals by
 * itself: changes without a notice, lost versions, targets that hang.
 */
import type { SymbolConfigActivities } from '../../activities/symbol-config/activities.ts';
import type { PushResult, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import {
  SYMBOLS_CHANGED_SIGNAL,
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_STATUS_QUERY,
} from '../../workflows/symbol-config/contract.ts';
import type { Fakes } from '../workflow-tier.ts';
import { hold, startWorkflow } from '../workflow-tier.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

interface Settings {
  retryLadderMs: readonly number[];
  reconciliationMs: number;
  crawlMs?: number;
}

/**
 * Begins the workflow on a registry in memory: what its activities see of the database and of the targets.
 * activities.service.test.ts shows that the real activities answer in this way.
 */
async function begin(given: Partial<Settings> = {}, targets: readonly string[] = ['one', 'two', 'three']) {
  const registry = {
    settings: { retryLadderMs: [1_000], reconciliationMs: 86_400_000, ...given },
    targets,
    /** Enabled symbols. */
    symbols: new Set(['BTC']),
    /** Lists by version. */
    snapshots: new Map<number, string[]>(),
    /** What each target holds. */
    held: new Map<string, { version: number; symbols: string[] }>(),
    failing: new Set<string>(),
    /** A round to one of these ends only when the test releases it. */
    hanging: new Set<string>(),
    hangingRounds: [] as ReturnType<typeof hold<PushResult>>[],
    pushes: [] as { target: string; version: number; symbols: string[] }[],
    newestVersion: (): number => Math.max(0, ...registry.snapshots.keys()),
    symbolsAt: (target: string): readonly string[] => registry.held.get(target)?.symbols ?? [],
    /** Puts the database back to the time of a version. Targets keep what they have. */
    restore(version: number, disabled: string): void {
      registry.symbols.delete(disabled);
      for (const lost of registry.snapshots.keys()) if (lost > version) registry.snapshots.delete(lost);
    },
  };
  /** Failed pushes in a row. */
  const failures = new Map<string, number>();
  const activities = {
    takeSymbolSnapshot: (floor) => {
      const symbols = [...registry.symbols].sort();
      const latest = registry.newestVersion();
      const isNew = symbols.join() !== registry.snapshots.get(latest)?.join() || floor > latest;
      const version = isNew ? Math.max(latest, floor) + 1 : latest;
      registry.snapshots.set(version, symbols);
      return { version, isListEmpty: false };
    },
    pushSymbols: (version, scope) => {
      const { retryLadderMs, ...intervals } = registry.settings;
      const retryMsOf = (target: string) =>
        retryLadderMs[Math.min(failures.get(target)!, retryLadderMs.length) - 1]!;
      const symbols = registry.snapshots.get(version);
      const heldBy = (target: string) => registry.held.get(target)?.version;
      const pushedTo = targets.filter(
        (target) => scope === 'all' || heldBy(target) !== version || failures.has(target),
      );
      if (!symbols) return { pushed: 0, failedTargets: pushedTo, retryMs: retryLadderMs[0]!, ...intervals };
      const newer = pushedTo.map((target) => heldBy(target) ?? 0).filter((held) => held > version);
      const failedTargets = pushedTo.filter((target) => {
        registry.pushes.push({ target, version, symbols });
        const isFailed = registry.failing.has(target) || (heldBy(target) ?? 0) > version;
        if (isFailed) failures.set(target, (failures.get(target) ?? 0) + 1);
        else failures.delete(target);
        if (!isFailed && !registry.hanging.has(target)) registry.held.set(target, { version, symbols });
        return isFailed;
      });
      const outcome: PushResult = {
        ...{ pushed: pushedTo.length, failedTargets, ...intervals },
        ...(failedTargets.length > 0 ? { retryMs: Math.min(...failedTargets.map(retryMsOf)) } : {}),
        ...(newer.length > 0 ? { numberOnFrom: Math.max(...newer) } : {}),
      };
      if (!pushedTo.some((target) => registry.hanging.has(target))) return outcome;
      const round = hold<PushResult>();
      registry.hangingRounds.push(round);
      return round;
    },
  } satisfies Fakes<SymbolConfigActivities>;
  const start = async () => {
    const run = await startWorkflow('symbolConfig', [], { activities });
    // Its first round.
    await run.advance();
    return run;
  };
  return { registry, run: await start(), start };
}

type Registry = Awaited<ReturnType<typeof begin>>['registry'];
type SymbolConfigRun = Awaited<ReturnType<typeof begin>>['run'];

const statusOf = (run: SymbolConfigRun) => run.query<SymbolConfigState>(SYMBOL_STATUS_QUERY);

/** Tells the workflow of a change, and lets it make its round. */
async function tell(run: SymbolConfigRun): Promise<SymbolConfigState> {
  await run.update<{ change: number }>(SYMBOLS_CHANGED_UPDATE);
  await run.advance();
  return statusOf(run);
}

/** Adds a symbol, and tells the workflow. */
function change(run: SymbolConfigRun, registry: Registry, symbol: string): Promise<SymbolConfigState> {
  registry.symbols.add(symbol);
  return tell(run);
}

/** Rounds since a time, and how long after it they came. */
const roundsSince = (run: SymbolConfigRun, sinceMs: number) =>
  run
    .calls('pushSymbols')
    .filter(({ atMs }) => atMs >= sinceMs)
    .map(({ args: [version, scope], atMs }) => ({ version, scope, afterMs: atMs - sinceMs }));

/** Waits for so many rounds more. */
function rounds(run: SymbolConfigRun, count: number): Promise<SymbolConfigState> {
  const before = run.calls('pushSymbols').length;
  return run.until(`${count} rounds`, async () => {
    const state = await statusOf(run);
    return run.calls('pushSymbols').length >= before + count && state.alarm && state;
  });
}

const settled = (run: SymbolConfigRun) =>
  run.until('every target to acknowledge', async () => {
    const state = await statusOf(run);
    return state.pushedChanges === state.toldChanges && state.failedTargets.length === 0 && state;
  });

test('S1 S3 ten targets that are down for three rounds are pushed to on the ladder, and no other target is', async () => {
  const down = Array.from({ length: 10 }, (_, index) => `down-${index}`);
  const { registry, run } = await begin({ retryLadderMs: [400, 800, 8_000, HOUR] }, [
    ...down,
    'up-1',
    'up-2',
  ]);
  const before = await statusOf(run);
  for (const target of down) registry.failing.add(target);
  await run.advance(5 * SECOND);
  const toldMs = run.nowMs;
  await change(run, registry, 'LINK');
  const failing = await rounds(run, 3 - roundsSince(run, toldMs).length);
  expect(failing.failedTargets).toEqual(down);
  expect(failing.alarm).toEqual({ atMs: toldMs + 9_200, purpose: 'retry' });

  registry.failing.clear();
  const { version } = await settled(run);
  expect(version).toBe(before.version + 1);
  expect(roundsSince(run, toldMs)).toEqual([
    { version, scope: 'all', afterMs: 0 },
    { version, scope: 'behind', afterMs: 400 },
    { version, scope: 'behind', afterMs: 1_200 },
    { version, scope: 'behind', afterMs: 9_200 },
  ]);
  expect(registry.pushes.filter((push) => push.version === version)).toHaveLength(12 + 3 * down.length);
});

test('S3 S4 an alarm that is sooner is kept, and reconciliation is not scheduled while one is set', async () => {
  const { registry, run } = await begin({ retryLadderMs: [HOUR, 2 * HOUR], reconciliationMs: 24 * HOUR });
  const steady = await statusOf(run);
  expect(steady.alarm).toEqual({ atMs: steady.fullPushDueMs, purpose: 'reconciliation' });

  registry.failing.add('one');
  const first = await tell(run);
  expect(first.alarm).toEqual({ atMs: run.nowMs + HOUR, purpose: 'retry' });

  await run.advance(SECOND);
  expect((await tell(run)).alarm).toEqual(first.alarm);

  registry.failing.clear();
  expect(await tell(run)).toMatchObject({ failedTargets: [], alarm: first.alarm });
});

test('kinds-F10 a target that fails once is retried after the first step, however long another one has been dead', async () => {
  const { registry, run } = await begin({ retryLadderMs: [30 * SECOND, MINUTE, HOUR] });
  registry.failing.add('one');
  await tell(run);
  await run.advance(2 * HOUR);
  registry.failing.add('two');
  await change(run, registry, 'LINK');
  registry.failing.delete('two');
  const sinceMs = run.nowMs;
  await run.until('the list at the other', () => registry.symbolsAt('two').includes('LINK'));
  expect(run.nowMs - sinceMs).toBe(30 * SECOND);
});

test('S4 reconciliation alone heals a receiver that lost its state', async () => {
  const { registry, run } = await begin({ reconciliationMs: 15 * MINUTE });
  const { toldChanges, version } = await statusOf(run);
  registry.held.delete('three');
  const beganMs = run.nowMs;
  await run.advance(HOUR);
  expect(registry.held.get('three')?.version).toBe(version);
  expect(roundsSince(run, beganMs).slice(1)).toEqual(
    [15, 30, 45, 60].map((minutes) => ({ version, scope: 'all', afterMs: minutes * MINUTE })),
  );
  expect((await statusOf(run)).toldChanges).toBe(toldChanges);
});

test('S4 those that acknowledge are reconciled, also while others never do', async () => {
  const { registry, run } = await begin({ retryLadderMs: [200, 400, HOUR], reconciliationMs: 2 * SECOND });
  registry.failing.add('one');
  await tell(run);
  await rounds(run, 2);
  registry.held.delete('two');
  const sinceMs = run.nowMs;
  await run.until('the lost list to be back', () => registry.held.has('two'));
  expect(run.nowMs - sinceMs).toBeLessThanOrEqual(2 * SECOND);
  expect((await statusOf(run)).failedTargets).toEqual(['one']);
});

test('S4 with a crawler, reconciliation goes with its alarm; without it, at its own interval', async () => {
  const { registry, run } = await begin({ reconciliationMs: 15 * MINUTE, crawlMs: HOUR });
  const beganMs = run.nowMs;
  await run.advance(2 * HOUR);
  const full = roundsSince(run, beganMs + 1).filter(({ scope }) => scope === 'all');
  expect(full.map(({ afterMs }) => afterMs + 1)).toEqual([HOUR, 2 * HOUR]);
  // The looks between them push to no target.
  expect(registry.pushes).toHaveLength(3 * registry.targets.length);

  registry.settings = { retryLadderMs: [SECOND], reconciliationMs: 15 * MINUTE };
  await run.advance(15 * MINUTE);
  const sinceMs = run.nowMs + 1;
  await run.advance(30 * MINUTE);
  expect(roundsSince(run, sinceMs)).toMatchObject([{ scope: 'all' }, { scope: 'all' }]);
});

test('S5 1,000 changes in a burst end in one consistent state and a small history', async () => {
  const { registry, run } = await begin();
  const before = await statusOf(run);
  const names = Array.from({ length: 1_000 }, (_, index) => `BURST-${index}`);
  const updates = [];
  for (const [index, name] of names.entries()) {
    registry.symbols.add(name);
    updates.push(run.sendUpdate(SYMBOLS_CHANGED_UPDATE));
    // As many updates as Temporal lets be under way together.
    if (index % 10 === 9) await run.advance(20);
    expect(run.historyLength).toBeLessThan(1_500);
  }
  expect(updates.filter(({ outcome }) => !outcome || 'error' in outcome)).toEqual([]);
  const state = await statusOf(run);
  expect(state.toldChanges).toBe(before.toldChanges + 1_000);
  expect(state).toMatchObject({ pushedChanges: state.toldChanges, failedTargets: [] });
  expect(state.version - before.version).toBeLessThan(200);
  expect(run.continuations.length).toBeGreaterThanOrEqual(1);
  for (const target of registry.targets) {
    const symbols = ['BTC', ...names].sort();
    expect(registry.held.get(target)).toEqual({ version: state.version, symbols });
  }
});

test('kinds-S3 a change without a signal goes out before the next crawl', async () => {
  const { registry, run } = await begin({ reconciliationMs: 2 * SECOND, crawlMs: 3_600 * SECOND });
  await change(run, registry, 'AVAX');
  const before = registry.pushes.length;
  registry.symbols.add('ARB');
  const sinceMs = run.nowMs;
  await run.until('the change at the targets', () => registry.symbolsAt('one').includes('ARB'));
  expect(run.nowMs - sinceMs).toBe(2 * SECOND);
  expect(run.calls('pushSymbols').at(-1)!.args).toEqual([registry.newestVersion(), 'all']);
  await run.advance(10 * SECOND);
  expect(registry.pushes).toHaveLength(before + registry.targets.length);

  // Also while the ladder of a target that never acknowledges is open.
  registry.failing.add('three');
  for (const symbol of ['OP', 'NEAR']) {
    registry.symbols.add(symbol);
    await run.advance(2 * SECOND);
    expect(registry.symbolsAt('one')).toContain(symbol);
  }
});

test('kinds-V8 after the restore of an older database all targets get the list again', async () => {
  const { registry, run: before, start } = await begin({ retryLadderMs: [200] });
  const { version } = await statusOf(before);
  for (const symbol of ['ONE', 'TWO', 'THREE']) await change(before, registry, symbol);
  registry.restore(version, 'THREE');

  const after = await start();
  const sinceMs = after.nowMs;
  const healed = await settled(after);
  expect(healed.version).toBeGreaterThan(version + 3);
  expect(after.nowMs - sinceMs).toBe(200);
  for (const target of registry.targets) {
    const symbols = ['BTC', 'ONE', 'TWO'];
    expect(registry.held.get(target)).toEqual({ version: healed.version, symbols });
  }
});

test('kinds-V8 a workflow that is older than the restored database goes on, also while its ladder is open', async () => {
  const { registry, run } = await begin({ retryLadderMs: [500] });
  const { version } = await statusOf(run);
  registry.failing.add('one');
  const failed = await change(run, registry, 'FOUR');
  expect(failed).toMatchObject({ version: version + 1, failedTargets: ['one'] });
  registry.restore(version, 'FOUR');
  await run.until('a push of what the database has', () => !registry.symbolsAt('two').includes('FOUR'));
  registry.failing.clear();
  const healed = await settled(run);
  expect(healed.version).toBeGreaterThan(version + 1);
});

test('S5 I52 a version that the rows have forgotten does not come again with another list', async () => {
  const { registry, run } = await begin();
  const { version: kept } = await change(run, registry, 'KEPT');
  const { version: lost } = await change(run, registry, 'UNDONE');
  registry.restore(kept, 'UNDONE');
  // The next number of the rows is the one that was given out already.
  registry.symbols.add('INSTEAD');
  run.signal(SYMBOLS_CHANGED_SIGNAL);
  await run.advance();
  const { version } = await settled(run);
  expect(version).toBeGreaterThan(lost);
  const lists = Map.groupBy(registry.pushes, (push) => `${push.target} ${push.version}`).values();
  expect(
    [...lists].filter((pushes) => new Set(pushes.map(({ symbols }) => symbols.join())).size > 1),
  ).toEqual([]);
  for (const target of registry.targets) {
    expect(registry.symbolsAt(target)).toEqual(['BTC', 'INSTEAD', 'KEPT']);
  }
});

test('kinds-S1 a change that comes while a target hangs goes out as soon as the round has ended', async () => {
  const { registry, run } = await begin();
  registry.hanging.add('two');
  await change(run, registry, 'LINK');
  expect(registry.symbolsAt('one')).toContain('LINK');
  await change(run, registry, 'ARB');
  registry.hanging.clear();
  const failed = { pushed: 3, failedTargets: ['two'], retryMs: 1, reconciliationMs: SECOND };
  registry.hangingRounds[0]!.release(failed);
  const { version } = await settled(run);
  for (const target of registry.targets) expect(registry.held.get(target)?.version).toBe(version);
  expect(registry.symbolsAt('two')).toContain('ARB');
});
