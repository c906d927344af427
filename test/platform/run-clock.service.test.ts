/** Tests, servers and programs have one clock, with `TEST_CLOCK` as without. */
import { execFileSync } from 'node:child_process';
import { slotOfTests } from '../harness.ts';
import { PROGRAM_ENV } from '../program-env.ts';
import { secondsUntil } from '../run-clock.ts';

/** Much less than most shifts, and more than a slow machine needs for a call. */
const NEAR_MS = 60_000;

const slot = slotOfTests();

async function timeOfTemporal(): Promise<number> {
  const workflow = await slot.client.workflow.start('none', { workflowId: 'clock', taskQueue: 'none' });
  const { startTime } = await workflow.describe();
  await workflow.terminate();
  return startTime.getTime();
}

async function timeOfProgram(): Promise<number> {
  return Number(execFileSync(process.execPath, ['-p', 'Date.now()'], { env: PROGRAM_ENV }));
}

const CLOCKS: [string, () => Promise<number>][] = [
  ['PostgreSQL', async () => (await slot.db.query<{ at: Date }>('SELECT now() AS at')).rows[0]!.at.getTime()],
  ['Redis', async () => Number((await slot.redis.time())[0]) * 1_000],
  ['Temporal', timeOfTemporal],
  ['a program', timeOfProgram],
];

test.each(CLOCKS)('the clock of %s is that of the tests', async (_, read) => {
  expect(Math.abs((await read()) - Date.now())).toBeLessThan(NEAR_MS);
});

test('a clock is moved ahead, to a time of day', () => {
  const nowS = Date.parse('2026-11-22T12:00:07Z') / 1_000;
  expect(secondsUntil('23:58', nowS)).toBe((11 * 60 + 58) * 60 - 7);
  expect(secondsUntil('12:00', nowS)).toBe(86_400 - 7);
  expect(secondsUntil('00:30', nowS)).toBe((12 * 60 + 30) * 60 - 7);
  for (const time of ['24:00', '1:59', '12:60', 'noon', '12:00:00'])
    expect(() => secondsUntil(time, nowS)).toThrow('TEST_CLOCK must be a time such as 23:58');
});
