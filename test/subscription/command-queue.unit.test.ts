/** The commands of a supervisor that wait, as tables. */
import { afterFlush, enqueue, isFull } from '../../workflows/subscription/requests.ts';
import type { Command } from '../../workflows/subscription/contract.ts';
import { MAX_CONNECTIONS, MAX_WAITING_COMMANDS } from '../../workflows/subscription/contract.ts';

const create = (...connIds: string[]): Command => ({ kind: 'create', connIds });
const end = (...connIds: string[]): Command => ({ kind: 'smp-delete', connIds });
const remove = (...connIds: string[]): Command => ({ kind: 'reconcile', connIds });
const CREATE_ALL: Command = { kind: 'create' };
const END_ALL: Command = { kind: 'smp-delete' };
const RETRY_ALL: Command = { kind: 'reconcile' };
const ids = (count: number, from = 0) => Array.from({ length: count }, (_, index) => `c${from + index}`);

function queued(...commands: Command[]): Command[] {
  const queue: Command[] = [];
  for (const command of commands) enqueue(queue, command);
  return queue;
}

describe('subscription-B7a commands that wait already are not queued again', () => {
  test.each<[string, Command[], Command[]]>([
    ['the same one', [create('a'), create('a')], [create('a')]],
    ['part of the same one', [create('a', 'b'), create('b', 'c')], [create('a', 'b', 'c')]],
    ['an id twice', [create('a', 'a')], [create('a')]],
    [
      'in turn for different connections',
      [create('a'), end('b'), create('a'), end('b')],
      [create('a'), end('b')],
    ],
    ['for all', [CREATE_ALL, CREATE_ALL], [CREATE_ALL]],
    ['for all, with single ones between', [CREATE_ALL, create('a'), CREATE_ALL], [CREATE_ALL, create('a')]],
    ['for all, with a deletion between', [CREATE_ALL, remove('a'), CREATE_ALL], [CREATE_ALL, remove('a')]],
    [
      'for all that was given up',
      [RETRY_ALL, CREATE_ALL, remove('a'), RETRY_ALL],
      [RETRY_ALL, CREATE_ALL, remove('a')],
    ],
    ['an end behind a Create for all', [end('a'), CREATE_ALL, end('a')], [end('a'), CREATE_ALL]],
  ])('%s', (_, commands, expected) => expect(queued(...commands)).toEqual(expected));

  test.each<[string, Command[]]>([
    ['another kind for the same connection', [create('a'), end('a'), create('a')]],
    ['a Create behind a deletion', [create('a'), remove('a'), create('a')]],
    ['a Create behind the end of all', [create('a'), END_ALL, create('a')]],
    ['a Create for all behind the end of all', [CREATE_ALL, END_ALL, CREATE_ALL]],
    ['a Create for all behind an end by name', [CREATE_ALL, end('a'), CREATE_ALL]],
    ['the end of all behind a Create', [END_ALL, create('a'), END_ALL]],
  ])('but %s is', (_, commands) => expect(queued(...commands)).toEqual(commands));

  test('what joins a command that waits leaves none with too many connections', () => {
    const queue = queued(create(...ids(MAX_CONNECTIONS - 1)), create('x', 'y'), create('z'));
    expect(queue.map(({ connIds }) => connIds!.length)).toEqual([MAX_CONNECTIONS - 1, 3]);
  });

  test('sweeps that say the same again and again, of however many connections, do not fill the queue', () => {
    const queue: Command[] = [];
    for (let sweep = 0; sweep < 100; sweep += 1) {
      for (const command of [create(...ids(500)), end(...ids(300, 500)), CREATE_ALL, remove('gone')]) {
        enqueue(queue, command);
      }
    }
    expect(queue.length).toBeLessThanOrEqual(5);
    expect(isFull(queue)).toBe(false);
  });
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
