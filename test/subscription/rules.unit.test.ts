/** The rules of subscriptions that are arithmetic, as tables. */
import type { Deaths, RecordAction } from '../../workflows/subscription/rules.ts';
import {
  countDeath,
  freshRetry,
  listsOf,
  nextRetry,
  stepAfterCheck,
} from '../../workflows/subscription/rules.ts';

const ACTIONS: RecordAction[] = [
  'smp-key',
  'smp-delete',
  'ntf-create',
  'ntf-check',
  'ntf-delete',
  'ntf-rotate',
];

describe('the lists of a round', () => {
  test('N2 are worked off in one order: keys, deletes; creates, checks, deletes, rotates', () => {
    const items = [...ACTIONS].reverse().map((kind, index) => ({ id: String(index), kind }));
    const two = [...items, { id: 'last', kind: 'ntf-create' as const }];
    expect(listsOf(two)).toEqual([
      { kind: 'smp-key', ids: ['5'] },
      { kind: 'smp-delete', ids: ['4'] },
      { kind: 'ntf-create', ids: ['3', 'last'] },
      { kind: 'ntf-check', ids: ['2'] },
      { kind: 'ntf-delete', ids: ['1'] },
      { kind: 'ntf-rotate', ids: ['0'] },
    ]);
    expect(listsOf([])).toEqual([]);
  });
});

describe('the delays of a retry', () => {
  const delaysOf = (pace: Parameters<typeof freshRetry>[0], count: number): number[] => {
    const delays: number[] = [];
    let retry = freshRetry(pace);
    for (let index = 0; index < count; index += 1) {
      delays.push(retry.delayUs);
      retry = nextRetry(retry, pace);
    }
    return delays;
  };

  test('N2 are 2 s until 10 s were slept, then half as long again each time, in whole microseconds, up to 180 s', () => {
    expect(delaysOf({ firstMs: 2_000, constantForMs: 10_000, maxMs: 180_000 }, 18)).toEqual([
      2_000_000, 2_000_000, 2_000_000, 2_000_000, 2_000_000, 3_000_000, 4_500_000, 6_750_000, 10_125_000,
      15_187_500, 22_781_250, 34_171_875, 51_257_812, 76_886_718, 115_330_077, 172_995_115, 180_000_000,
      180_000_000,
    ]);
  });
});

test('N2 a worker survives four deaths in a clock minute, and not the fifth; the next minute counts from one', () => {
  const MINUTE = 29_000_000 * 60_000;
  const survived: boolean[] = [];
  let deaths: Deaths = { minute: 0, count: 0 };
  const die = (atMs: number) => {
    const death = countDeath(deaths, atMs);
    deaths = death.deaths;
    survived.push(death.hasSurvived);
  };
  for (const atMs of [0, 10_000, 30_000, 59_999, 59_999]) die(MINUTE + atMs);
  expect(survived).toEqual([true, true, true, true, false]);
  die(MINUTE + 60_000);
  expect(survived.at(-1)).toBe(true);
  expect(deaths).toEqual({ minute: 29_000_001, count: 1 });
});

describe('the next step of a subscription', () => {
  const NOW = 1_000_000;
  const DAY = 86_400_000;

  test.each([
    ['NEW', true],
    ['PENDING', true],
    ['ACTIVE', true],
    ['INACTIVE', true],
    ['SERVICE', true],
    ['END', false],
    ['DELETED', false],
    ['AUTH', false],
    ['ERR something else', false],
    ['ERR ACTIVE', false],
    ['', false],
    [undefined, false],
  ])('N4 N17 scenario 30: %s in a check means that the subscription stays: %s', (status, stays) => {
    const kept = { isKept: true, status: `CREATED ${status}`, action: 'ntf-check', actionMs: NOW + 3 * DAY };
    const lost = { isKept: false, status: 'NEW', action: 'smp-key', actionMs: NOW };
    expect(stepAfterCheck(status, NOW, 3 * DAY)).toEqual(stays ? kept : lost);
  });
});
