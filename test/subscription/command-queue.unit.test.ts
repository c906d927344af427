/** The commands of a supervisor that wait, as tables. */
import { enqueue, isCommand } from '../../workflows/subscription/requests.ts';
import type { Command } from '../../workflows/subscription/contract.ts';
import {
  MAX_CONNECTIONS,
  MAX_WAITING_CONNECTIONS,
  commandsAbout,
} from '../../workflows/subscription/contract.ts';

const create = (...connIds: string[]): Command => ({ kind: 'create', connIds });
const follow = (...connIds: string[]): Command => ({ kind: 'reconcile', connIds });
const CREATE_ALL: Command = { kind: 'create' };
const FOLLOW_ALL: Command = { kind: 'reconcile' };
const ids = (count: number, from = 0) => Array.from({ length: count }, (_, index) => `c${from + index}`);

function queued(...commands: Command[]): Command[] {
  const queue: Command[] = [];
  for (const command of commands) enqueue(queue, command);
  return queue;
}

describe('subscription-B7a what waits already is not queued again', () => {
  test.each<[string, Command[], Command[]]>([
    ['part of the same one', [follow('a', 'b'), follow('b', 'c')], [follow('a', 'b', 'c')]],
    ['for all', [CREATE_ALL, CREATE_ALL], [CREATE_ALL]],
    ['for all, with single ones between', [CREATE_ALL, follow('a'), CREATE_ALL], [follow('a'), CREATE_ALL]],
    ['a Create of all behind a retry', [CREATE_ALL, FOLLOW_ALL, CREATE_ALL], [FOLLOW_ALL, CREATE_ALL]],
    ['a retry of all', [FOLLOW_ALL, follow('a'), FOLLOW_ALL], [follow('a'), FOLLOW_ALL]],
  ])('%s', (_, commands, expected) => expect(queued(...commands)).toEqual(expected));

  test('but a command of another kind is', () => {
    const commands = [create('a'), follow('a'), create('a')];
    expect(queued(...commands)).toEqual(commands);
  });
});

test('subscription-B7a many connections make several commands; what exceeds the room of a run is not queued', () => {
  const pages = commandsAbout('reconcile', ids(MAX_WAITING_CONNECTIONS + 1));
  expect(pages[0]!.connIds).toEqual(ids(MAX_CONNECTIONS));
  const queue: Command[] = [];
  const taken = pages.map((command) => enqueue(queue, command));
  expect(taken.slice(-2)).toEqual([true, false]);
  expect(queue.flatMap(({ connIds }) => connIds)).toHaveLength(MAX_WAITING_CONNECTIONS);
  expect([enqueue(queue, create('more')), enqueue(queue, CREATE_ALL)]).toEqual([false, true]);
});

test.each(['-'.repeat(64), '\u0001'.repeat(64), '\u4e00'.repeat(64)])(
  'subscription-B7a what a run hands to the next one is no longer than Temporal takes, with ids such as %j',
  (id) => {
    const queue: Command[] = [];
    for (let sent = 0; sent <= MAX_WAITING_CONNECTIONS; sent += 1) {
      const command = sent % 2 === 0 ? create(id) : follow(id);
      if (isCommand(command)) enqueue(queue, command);
    }
    expect(Buffer.byteLength(JSON.stringify(queue))).toBeLessThan(2 * 1024 * 1024);
  },
);
