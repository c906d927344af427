/** The commands of a supervisor that wait, as tables. */
import { afterFlush, enqueue, isFull } from '../../workflows/subscription/requests.ts';
import type { Command } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS, MAX_WAITING_COMMANDS } from '../../workflows/subscription/contract.ts';

const create = (...connIds: string[]): Command => ({ kind: 'create', connIds });
const end = (...connIds: string[]): Command => ({ kind: 'smp-delete', connIds });
const remove = (...connIds: string[]): Command => ({ kind: 'reconcile', connIds });
const CREATE_ALL: Command = { kind: 'create' };
const END_ALL: Command = { kind: 'smp-delete' };
const ids = (count: number) => Array.from({ length: count }, (_, index) => `c${index}`);

function queued(...commands: Command[]): Command[] {
  const queue: Command[] = [];
  for (const command of commands) enqueue(queue, command);
  return queue;
}

test.each<[string, Command[], Command[]]>([
  ['the same one', [create('a'), create('a', 'a')], [create('a')]],
  ['part of the same one', [create('a', 'b'), create('b', 'c')], [create('a', 'b', 'c')]],
  ['for all', [CREATE_ALL, CREATE_ALL], [CREATE_ALL]],
])('N1 a command joins the one before it: %s', (_, commands, expected) => {
  expect(queued(...commands)).toEqual(expected);
});

test.each<[string, Command[]]>([
  ['another kind for the same connection', [create('a'), end('a'), create('a')]],
  ['a Create for all behind the end of all', [CREATE_ALL, END_ALL, CREATE_ALL]],
  ['a Create for all behind one by name', [create('a'), CREATE_ALL, create('a')]],
])('N1 commands keep their order: %s', (_, commands) => expect(queued(...commands)).toEqual(commands));

test('N1 what joins a command leaves none with too many connections', () => {
  const queue = queued(create(...ids(MAX_CONNECTIONS - 1)), create('x', 'y'), create('z'));
  expect(queue.map(({ connIds }) => connIds!.length)).toEqual([MAX_CONNECTIONS - 1, 3]);
});

test('subscription-B7a a queue is full by its commands, or by the connections that they name', () => {
  const single = Array.from({ length: MAX_WAITING_COMMANDS }, () => create('a'));
  expect([isFull(single), isFull(single.slice(1))]).toEqual([true, false]);
  const long = Array.from({ length: 32 }, () => create(...ids(MAX_CONNECTIONS)));
  expect([isFull(long), isFull(long.slice(1))]).toEqual([true, false]);
});

test('subscription-B5 a flush forgets Creates and the end of all, and neither deletions nor ends by name', () => {
  expect(afterFlush([create('a'), CREATE_ALL, END_ALL, end('b'), remove('c')])).toEqual([
    end('b'),
    remove('c'),
  ]);
});
