/** The rules of subscriptions as tables: arithmetic, the commands of a supervisor that wait, and which errors are tried again. */
import type { RouterError } from '../../activities/subscription/router/ports.ts';
import { isRetried, isUnknownToNotificationRouter } from '../../activities/subscription/router/ports.ts';
import type { Command } from '../../workflows/subscription/contract.ts';
import {
  MAX_CONNECTIONS,
  MAX_WAITING_CONNECTIONS,
  signalsAbout,
} from '../../workflows/subscription/contract.ts';
import { areConnectionIds, enqueue } from '../../workflows/subscription/requests.ts';
import type { Deaths, RecordAction } from '../../workflows/subscription/rules.ts';
import {
  countDeath,
  freshRetry,
  listsOf,
  nextRetry,
  stepAfterCheck,
} from '../../workflows/subscription/rules.ts';

test('N2 the lists of a round are worked off in one order: keys, deletes; creates, checks, deletes, rotates', () => {
  const kinds = 'ntf-rotate ntf-delete ntf-check ntf-create smp-delete smp-key ntf-create'.split(' ');
  const items = kinds.map((kind, index) => ({ id: String(index), kind: kind as RecordAction }));
  expect(listsOf(items)).toEqual([
    { kind: 'smp-key', ids: ['5'] },
    { kind: 'smp-delete', ids: ['4'] },
    { kind: 'ntf-create', ids: ['3', '6'] },
    { kind: 'ntf-check', ids: ['2'] },
    { kind: 'ntf-delete', ids: ['1'] },
    { kind: 'ntf-rotate', ids: ['0'] },
  ]);
  expect(listsOf([])).toEqual([]);
});

test('N2 the delays of a retry are 2 s until 10 s were slept, then half as long again each time, in whole microseconds, up to 180 s', () => {
  const pace = { firstMs: 2_000, constantForMs: 10_000, maxMs: 180_000 };
  const delays: number[] = [];
  let retry = freshRetry(pace);
  for (let index = 0; index < 18; index += 1) {
    delays.push(retry.delayUs);
    retry = nextRetry(retry, pace);
  }
  expect(delays).toEqual([
    2_000_000, 2_000_000, 2_000_000, 2_000_000, 2_000_000, 3_000_000, 4_500_000, 6_750_000, 10_125_000,
    15_187_500, 22_781_250, 34_171_875, 51_257_812, 76_886_718, 115_330_077, 172_995_115, 180_000_000,
    180_000_000,
  ]);
});

test('N2 a worker survives four deaths in a clock minute, and not the fifth; the next minute counts from one', () => {
  const MINUTE = 29_000_000 * 60_000;
  let deaths: Deaths = { minute: 0, count: 0 };
  const survives = (atMs: number) => {
    const death = countDeath(deaths, MINUTE + atMs);
    deaths = death.deaths;
    return death.hasSurvived;
  };
  expect([0, 10_000, 30_000, 59_999, 59_999].map(survives)).toEqual([true, true, true, true, false]);
  expect(survives(60_000)).toBe(true);
  expect(deaths).toEqual({ minute: 29_000_001, count: 1 });
});

test.each([
  ...['NEW', 'PENDING', 'ACTIVE', 'INACTIVE', 'SERVICE'].map((status) => [status, true] as const),
  ...['END', 'DELETED', 'AUTH', 'ERR something else', 'ERR ACTIVE', ''].map(
    (status) => [status, false] as const,
  ),
  [undefined, false] as const,
])('N4 N17 scenario 30: %s in a check means that the subscription stays: %s', (status, stays) => {
  const [now, threeDays] = [1_000_000, 3 * 86_400_000];
  const kept = { isKept: true, status: `CREATED ${status}`, action: 'ntf-check', actionMs: now + threeDays };
  const lost = { isKept: false, status: 'NEW', action: 'smp-key', actionMs: now };
  expect(stepAfterCheck(status, now, threeDays)).toEqual(stays ? kept : lost);
});

describe('commands that wait', () => {
  const ids = (count: number) => Array.from({ length: count }, (_, index) => `c${index}`);

  function queued(...signals: [string[]?][]): Command[] {
    const queue: Command[] = [];
    for (const [connIds] of signals) enqueue(queue, connIds);
    return queue;
  }

  test.each<[string, [string[]?][], Command[]]>([
    ['connections join those that wait', [[['a', 'b']], [['b', 'c']]], [{ connIds: ['a', 'b', 'c'] }]],
    ['all take the place of what waits', [[['a']], [], [['b']], []], [{}]],
    [
      'one that is full takes what it has already',
      [[ids(MAX_CONNECTIONS)], [['c0']]],
      [{ connIds: ids(MAX_CONNECTIONS) }],
    ],
    ['what comes behind all waits behind them', [[], [['a']], [['a']]], [{}, { connIds: ['a'] }]],
  ])('subscription-B7a N9 %s', (_, signals, expected) => expect(queued(...signals)).toEqual(expected));

  test('subscription-B7a what is no list of ids, or too long a one, names no connections', () => {
    for (const value of [[17], ['a/b'], [], ids(MAX_CONNECTIONS + 1), 'a'])
      expect(areConnectionIds(value)).toBe(false);
  });

  test('subscription-B7a many connections make several commands; more than a run has room for make one for all', () => {
    const pages = signalsAbout(ids(MAX_WAITING_CONNECTIONS));
    expect(queued(...pages)).toEqual(pages.map(([connIds]) => ({ connIds })));
    expect(pages[0]).toEqual([ids(MAX_CONNECTIONS)]);
    expect(queued(...pages, [['more']])).toEqual([{}]);
  });

  test.each(['-'.repeat(64), '\u0001'.repeat(64), '\u4e00'.repeat(64)])(
    'subscription-B7a what a run hands to the next one is no longer than Temporal takes, with ids such as %j',
    (id) => {
      const page = Array.from({ length: MAX_CONNECTIONS }, () => id);
      const pages = Array.from({ length: MAX_WAITING_CONNECTIONS / MAX_CONNECTIONS }, (): [string[]] => [
        page,
      ]);
      const queue = queued(...pages.filter(([connIds]) => areConnectionIds(connIds)));
      expect(Buffer.byteLength(JSON.stringify(queue))).toBeLessThan(2 * 1024 * 1024);
    },
  );
});

describe('errors of routers (design of the subscription lifecycle, "Error classes")', () => {
  const errorOf = (text: string): RouterError => {
    const [source, code] = text.split(' ') as [RouterError['source'], string];
    // The detail of an error makes no difference.
    return { source, code, detail: 'TIMEOUT' };
  };
  const CODES = ['AUTH', 'QUOTA', 'SESSION', 'BLOCK', 'CMD', 'BLOCKED', 'SERVICE', 'STORE', 'INTERNAL'];

  test.each(['BROKER TIMEOUT', 'BROKER NETWORK', 'BROKER HOST', 'BROKER VERSION', 'AGENT INACTIVE'])(
    'N2 %s is tried again',
    (text) => expect(isRetried(errorOf(text))).toBe(true),
  );

  test.each([
    ...CODES.flatMap((code) => [`NTF ${code}`, `SMP ${code}`]),
    ...['BROKER RESPONSE', 'BROKER UNEXPECTED', 'BROKER NO_SERVICE', 'BROKER TRANSPORT', 'STORE INTERNAL'],
    ...['AGENT INTERNAL', 'AGENT PROHIBITED'],
    // The codes that are tried again, from another side.
    ...['NTF TIMEOUT', 'SMP NETWORK', 'BROKER INACTIVE', 'NTF toString'],
  ])('N2 N6 %s is permanent', (text) => expect(isRetried(errorOf(text))).toBe(false));

  test.each([
    ['NTF AUTH', true],
    ['SMP AUTH', false],
    ['NTF QUOTA', false],
    ['BROKER AUTH', false],
  ])('N4 %s: the notification router does not know it: %s', (text, expected) => {
    expect(isUnknownToNotificationRouter(errorOf(text))).toBe(expected);
  });
});
