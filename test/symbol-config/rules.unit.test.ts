/** The rules of pushes, without a workflow: what a change, an alarm and the outcome of a round lead to. */
import fc from 'fast-check';
import type { PushResult, PushScope, SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import {
  INITIAL_STATE,
  afterRound,
  duePush,
  hasChanges,
  versionFloorOf,
  withoutDueAlarm,
} from '../../workflows/symbol-config/rules.ts';

const SECOND = 1_000;
const RETRY_MS = 5 * SECOND;
const RECONCILIATION_MS = 300 * SECOND;

const outcome = (failedTargets: string[] = [], crawlMs?: number): PushResult => ({
  pushed: 3,
  failedTargets,
  ...(failedTargets.length > 0 ? { retryMs: RETRY_MS } : {}),
  reconciliationMs: RECONCILIATION_MS,
  ...(crawlMs === undefined ? {} : { crawlMs }),
});

/** One round as the workflow makes it: taken when due, over `tookMs` later. */
function push(state: SymbolConfigState, scope: PushScope, nowMs: number, tookMs: number, result: PushResult) {
  const round = { scope, startedMs: nowMs, changes: state.toldChanges };
  return afterRound(withoutDueAlarm(state, nowMs), round, result, nowMs + tookMs);
}

/** The state after a first round to all, begun and ended at 0. */
const afterFirstRound = (result = outcome()): SymbolConfigState =>
  push({ ...INITIAL_STATE, version: 1 }, 'all', 0, 0, result);

test('S1 S5 at first, and after every change, a push to all is due without an alarm', () => {
  expect(hasChanges(INITIAL_STATE)).toBe(true);
  expect(duePush(INITIAL_STATE, 0)).toBe('all');
  const settled = afterFirstRound();
  expect(duePush(settled, 0)).toBeUndefined();
  const changed = { ...settled, toldChanges: settled.toldChanges + 1 };
  expect(duePush(changed, 0)).toBe('all');
  expect(hasChanges(push(changed, 'all', 0, 0, outcome()))).toBe(false);
});

test('S4 the crawler takes the place of reconciliation, and a look comes no later than before', () => {
  const often = afterFirstRound(outcome([], 20 * SECOND));
  expect(often.alarm).toEqual({ atMs: 20 * SECOND, purpose: 'crawler' });
  expect(duePush(often, 20 * SECOND)).toBe('all');
  const rare = afterFirstRound(outcome([], 3_600 * SECOND));
  expect(rare).toMatchObject({
    fullPushDueMs: 3_600 * SECOND,
    alarm: { atMs: RECONCILIATION_MS, purpose: 'look' },
  });
  expect(duePush(rare, RECONCILIATION_MS)).toBe('behind');
  expect(afterFirstRound().alarm).toEqual({ atMs: RECONCILIATION_MS, purpose: 'reconciliation' });
});

test('kinds-V7 without its crawler, reconciliation goes on at its own interval', () => {
  const crawled = afterFirstRound(outcome([], 7_000 * SECOND));
  const without = push(crawled, 'behind', RECONCILIATION_MS, 0, outcome());
  const dueMs = 2 * RECONCILIATION_MS;
  expect(without).toMatchObject({
    fullPushDueMs: dueMs,
    alarm: { atMs: dueMs, purpose: 'reconciliation' },
  });
});

test('kinds-V8 a version that is held elsewhere is numbered on from with the next alarm, not in a hurry', () => {
  const held = afterFirstRound({ ...outcome(['newer']), numberOnFrom: 9 });
  expect(versionFloorOf(held)).toBe(9);
  expect(duePush(held, 0)).toBeUndefined();
  expect(held.alarm).toEqual({ atMs: RETRY_MS, purpose: 'retry' });
  expect(versionFloorOf({ ...held, version: 10 })).toBe(10);
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
      let state = INITIAL_STATE;
      let nowMs = 0;
      let lastFullPushMs = 0;
      for (const { failed, tookMs, isChanged } of rounds) {
        if (isChanged) state = { ...state, toldChanges: state.toldChanges + 1 };
        else if (!hasChanges(state)) nowMs = Math.max(nowMs, state.alarm!.atMs);
        const scope = duePush(state, nowMs);
        expect(scope).toBeDefined();
        const { alarm } = withoutDueAlarm(state, nowMs);
        state = push(state, scope!, nowMs, tookMs, outcome(failed));
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
