/** The rules of pushes, without a workflow: what a change, an alarm and the outcome of a round lead to. */
import fc from 'fast-check';
import type { PushResult, PushScope, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import {
  afterCrawlerSet,
  afterRound,
  duePush,
  hasChanges,
  initialState,
  versionFloorOf,
  withoutAlarm,
} from '../../workflows/symbol-config/rules.ts';

const SECOND = 1_000;
const RETRY_MS = 5 * SECOND;
const RECONCILIATION_MS = 300 * SECOND;

const outcome = (failedTargets: string[] = []): PushResult => ({
  pushed: 3,
  failedTargets,
  ...(failedTargets.length > 0 ? { retryMs: RETRY_MS } : {}),
  reconciliationMs: RECONCILIATION_MS,
});

/** The state after a first round to all, begun and ended at `nowMs`. */
const afterFirstRound = (failedTargets: string[], nowMs = 0): SymbolConfigState =>
  afterRound(
    { ...initialState('main'), version: 1, takenChanges: 1 },
    { scope: 'all', isLook: true, startedMs: nowMs, changes: 1 },
    outcome(failedTargets),
    nowMs,
  );

/** One round as the workflow makes it: taken when due, over `tookMs` later. */
function push(state: SymbolConfigState, scope: PushScope, nowMs: number, tookMs: number, failed: string[]) {
  const taken = scope === 'all' ? { ...state, takenChanges: state.toldChanges } : state;
  const round = { scope, isLook: scope === 'all', startedMs: nowMs, changes: taken.takenChanges };
  return afterRound(taken, round, outcome(failed), nowMs + tookMs);
}

test('S1 S5 at first, and after every change, a push to all is due without an alarm', () => {
  const first = initialState('main');
  expect(hasChanges(first)).toBe(true);
  expect(duePush(first, 0)).toEqual({ scope: 'all', cause: 'change', isLook: true });
  const settled = afterFirstRound([]);
  expect(duePush(settled, 0)).toBeUndefined();
  const changed = { ...settled, toldChanges: settled.toldChanges + 3 };
  expect(duePush(changed, 0)).toEqual({ scope: 'all', cause: 'change', isLook: true });
  expect(hasChanges({ ...changed, takenChanges: changed.toldChanges })).toBe(false);
});

test('S4 the crawler takes the place of reconciliation, and never puts off what comes sooner', () => {
  const settled = afterFirstRound([]);
  const crawled = afterCrawlerSet(
    settled,
    { enabled: true, intervalMs: 20 * SECOND },
    SECOND,
    RECONCILIATION_MS,
  );
  expect(crawled).toMatchObject({
    fullPushDueMs: 21 * SECOND,
    alarm: { atMs: 21 * SECOND, purpose: 'crawler' },
  });
  expect(duePush(crawled, 21 * SECOND)).toEqual({ scope: 'all', cause: 'alarm', isLook: true });
  const rare = afterCrawlerSet(
    settled,
    { enabled: true, intervalMs: 3_600 * SECOND },
    SECOND,
    RECONCILIATION_MS,
  );
  expect(rare.alarm).toEqual(settled.alarm);
  const stopped = afterCrawlerSet(
    crawled,
    { enabled: false, intervalMs: 20 * SECOND },
    2 * SECOND,
    RECONCILIATION_MS,
  );
  expect(stopped.alarm).toEqual(crawled.alarm);
  expect(push(withoutAlarm(stopped), 'all', 21 * SECOND, 0, []).alarm).toEqual({
    atMs: 21 * SECOND + RECONCILIATION_MS,
    purpose: 'reconciliation',
  });
});

test('kinds-V7 when the crawler stops, reconciliation is due at its own interval, also while a round is under way', () => {
  const crawled = afterCrawlerSet(
    {
      ...afterFirstRound([]),
      fullPushDueMs: 7_000 * SECOND,
      lookDueMs: 7_000 * SECOND,
      alarm: { atMs: 7_000 * SECOND, purpose: 'crawler' },
    },
    { enabled: true, intervalMs: 7_000 * SECOND },
    SECOND,
    RECONCILIATION_MS,
  );
  const off = { enabled: false, intervalMs: 7_000 * SECOND };
  const due = { atMs: SECOND + RECONCILIATION_MS, purpose: 'reconciliation' };
  expect(afterCrawlerSet(crawled, off, SECOND, RECONCILIATION_MS)).toMatchObject({
    alarm: due,
    fullPushDueMs: due.atMs,
  });
  const underWay = afterCrawlerSet(withoutAlarm(crawled), off, SECOND, RECONCILIATION_MS);
  expect(underWay).toMatchObject({ fullPushDueMs: due.atMs });
  expect(push(underWay, 'behind', SECOND, 0, []).alarm).toEqual(due);
});

test('kinds-V8 a version that is held elsewhere is numbered on from with the next alarm, not in a hurry', () => {
  const held = afterRound(
    { ...initialState('main'), version: 4, takenChanges: 1 },
    { scope: 'all', isLook: true, startedMs: 0, changes: 1 },
    { ...outcome(['newer']), numberOnFrom: 9 },
    0,
  );
  expect(versionFloorOf(held)).toBe(9);
  expect(duePush(held, 0)).toBeUndefined();
  expect(duePush(held, RETRY_MS)).toEqual({ scope: 'all', cause: 'alarm', isLook: true });
  // The very version that the database has lost.
  expect(duePush({ ...held, version: 9 }, RETRY_MS)).toMatchObject({ scope: 'all' });
  expect(duePush({ ...held, version: 10 }, RETRY_MS)).toMatchObject({ scope: 'behind' });
});

const failures = fc.array(
  fc.record({
    failed: fc.subarray(['one', 'two', 'three']),
    tookMs: fc.integer({ min: 0, max: 30 * SECOND }),
    isChanged: fc.boolean(),
  }),
  { minLength: 1, maxLength: 60 },
);

test('S3 S4 whatever fails: there is always an alarm, it is never put off, and no target is forgotten over others', () => {
  fc.assert(
    fc.property(failures, (rounds) => {
      let state = initialState('main');
      let nowMs = 0;
      let lastFullPushMs = 0;
      for (const { failed, tookMs, isChanged } of rounds) {
        if (isChanged) state = { ...state, toldChanges: state.toldChanges + 1 };
        else if (!hasChanges(state)) nowMs = Math.max(nowMs, state.alarm!.atMs);
        const due = duePush(state, nowMs);
        expect(due).toBeDefined();
        const { scope, cause } = due!;
        const alarm = cause === 'alarm' ? undefined : state.alarm;
        state = push(cause === 'alarm' ? withoutAlarm(state) : state, scope, nowMs, tookMs, failed);
        if (scope === 'all') lastFullPushMs = nowMs;
        nowMs += tookMs;

        expect(state.alarm).toBeDefined();
        if (alarm) expect(state.alarm!.atMs).toBeLessThanOrEqual(alarm.atMs);
        // Everybody is pushed to this often, however long some of them fail.
        expect(state.fullPushDueMs).toBe(lastFullPushMs + RECONCILIATION_MS);
        expect(state.alarm!.atMs).toBeLessThanOrEqual(Math.max(state.fullPushDueMs, nowMs));
        if (failed.length > 0) expect(state.alarm!.atMs).toBeLessThanOrEqual(nowMs + RETRY_MS);
      }
    }),
  );
});
