/** The commands of a supervisor that wait, as tables. */
import { areConnectionIds, enqueue } from '../../workflows/subscription/requests.ts';
import type { Command } from '../../workflows/subscription/contract.ts';
import {
  MAX_CONNECTIONS,
  MAX_WAITING_CONNECTIONS,
  signalsAbout,
} from '../../workflows/subscription/contract.ts';

const ids = (count: number) => Array.from({ length: count }, (_, index) => `c${index}`);

function queued(...signals: [string[]?][]): Command[] {
  const queue: Command[] = [];
  for (const [connIds] of signals) enqueue(queue, connIds);
  return queue;
}

test.each<[string, [string[]?][], Command[]]>([
  ['connections join those that wait', [[['a', 'b']], [['b', 'c']]], [{ connIds: ['a', 'b', 'c'] }]],
  ['all take the place of what waits', [[['a']], [], [['b']], []], [{}]],
  ['what comes behind all waits behind them', [[], [['a']], [['a']]], [{}, { connIds: ['a'] }]],
])('subscription-B7a N9 %s', (_, signals, expected) => expect(queued(...signals)).toEqual(expected));

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
    const pages = Array.from({ length: MAX_WAITING_CONNECTIONS / MAX_CONNECTIONS }, (): [string[]] => [page]);
    const queue = queued(...pages.filter(([connIds]) => areConnectionIds(connIds)));
    expect(Buffer.byteLength(JSON.stringify(queue))).toBeLessThan(2 * 1024 * 1024);
  },
);
