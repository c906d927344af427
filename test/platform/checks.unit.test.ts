/** Checks of `doctor`: each is bounded, and spoils no other. */
import { setTimeout as pause } from 'node:timers/promises';
import { diagnose, ok } from '../../cli/checks.ts';

test('I40 a check has its own time where it needs more than others', async () => {
  const late = () => pause(100, ok('late'));
  const found = await diagnose(
    [
      [
        ['server', () => ok('there')],
        ['usual', late],
        ['patient', late, 10_000],
      ],
    ],
    20,
  );
  expect(found.map(({ name, status, detail }) => [name, status, detail])).toEqual([
    ['server', 'ok', 'there'],
    ['usual', 'error', 'no answer within 0.02 s'],
    ['patient', 'ok', 'late'],
  ]);
});
