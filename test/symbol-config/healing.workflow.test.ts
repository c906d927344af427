/** What the workflow heals by itself: changes without a notice, lost versions, targets that hang. */
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { SYMBOLS_CHANGED_SIGNAL, SYMBOLS_CHANGED_UPDATE } from '../../workflows/symbol-config/contract.ts';
import type { SymbolConfigRun } from './fake-registry.ts';
import { FakeRegistry, beginSymbolConfig, statusOf } from './fake-registry.ts';

const SECOND = 1_000;

const settled = (run: SymbolConfigRun) =>
  run.until('every target to acknowledge', async () => {
    const state = await statusOf(run);
    return state.pushedChanges === state.toldChanges && state.failedTargets.length === 0 && state;
  });

/** Adds a symbol, and tells the workflow. */
async function change(
  run: SymbolConfigRun,
  registry: FakeRegistry,
  symbol: string,
): Promise<SymbolConfigState> {
  registry.symbols.add(symbol);
  await run.update(SYMBOLS_CHANGED_UPDATE);
  await run.advance();
  return statusOf(run);
}

/** Puts the database back to the time of a version. Targets keep what they have. */
function restore(registry: FakeRegistry, version: number, disabled: string): void {
  registry.symbols.delete(disabled);
  for (const lost of registry.snapshots.keys()) if (lost > version) registry.snapshots.delete(lost);
}

test('kinds-S3 a change without a signal goes out before the next crawl', async () => {
  const registry = new FakeRegistry({ reconciliationMs: 2 * SECOND, crawlMs: 3_600 * SECOND });
  const run = await beginSymbolConfig(registry);
  await change(run, registry, 'AVAX');
  const before = registry.pushes.length;
  registry.symbols.add('ARB');
  const sinceMs = run.nowMs;
  await run.until('the change at the targets', () => registry.symbolsAt('one').includes('ARB'));
  expect(run.nowMs - sinceMs).toBe(2 * SECOND);
  expect(run.calls('pushSymbols').at(-1)!.args).toEqual([registry.newestVersion, 'all']);
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
  const registry = new FakeRegistry({ retryLadderMs: [200] });
  const before = await beginSymbolConfig(registry);
  const { version } = await statusOf(before);
  for (const symbol of ['ONE', 'TWO', 'THREE']) await change(before, registry, symbol);
  restore(registry, version, 'THREE');

  const after = await beginSymbolConfig(registry);
  const sinceMs = after.nowMs;
  const healed = await settled(after);
  expect(healed.version).toBeGreaterThan(version + 3);
  expect(after.nowMs - sinceMs).toBe(200);
  for (const target of registry.targets) {
    expect(registry.held.get(target)).toBe(healed.version);
    expect(registry.symbolsAt(target)).not.toContain('THREE');
    expect(registry.symbolsAt(target)).toContain('TWO');
  }
});

test('kinds-V8 a workflow that is older than the restored database goes on, also while its ladder is open', async () => {
  const registry = new FakeRegistry({ retryLadderMs: [500] });
  const run = await beginSymbolConfig(registry);
  const { version } = await statusOf(run);
  registry.failing.add('one');
  const failed = await change(run, registry, 'FOUR');
  expect(failed).toMatchObject({ version: version + 1, failedTargets: ['one'] });
  restore(registry, version, 'FOUR');
  await run.until('a push of what the database has', () => !registry.symbolsAt('two').includes('FOUR'));
  registry.failing.clear();
  const healed = await settled(run);
  expect(healed.version).toBeGreaterThan(version + 1);
});

test('S5 I52 a version that the rows have forgotten does not come again with another list', async () => {
  const registry = new FakeRegistry();
  const run = await beginSymbolConfig(registry);
  const { version: kept } = await change(run, registry, 'KEPT');
  const { version: lost } = await change(run, registry, 'UNDONE');
  restore(registry, kept, 'UNDONE');
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
  const registry = new FakeRegistry();
  const run = await beginSymbolConfig(registry);
  registry.hanging.add('two');
  await change(run, registry, 'LINK');
  expect(registry.symbolsAt('one')).toContain('LINK');
  await change(run, registry, 'ARB');
  registry.hanging.clear();
  registry.hangingRounds[0]!.release({
    pushed: 3,
    failedTargets: ['two'],
    retryMs: 1,
    reconciliationMs: SECOND,
  });
  const { version } = await settled(run);
  for (const target of registry.targets) expect(registry.held.get(target)).toBe(version);
  expect(registry.symbolsAt('two')).toContain('ARB');
});
