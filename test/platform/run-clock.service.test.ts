/** Tests, servers and programs have one clock, with `TEST_CLOCK` as without. */
import { execFileSync } from 'node:child_process';
import { slotOfTests } from '../harness.ts';
import { PROGRAM_ENV } from '../program-env.ts';

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
