/**
 * The clock of a run: with `TEST_CLOCK=23:58` its servers, its tests and the programs that tests start run at this time
 * of day in UTC. Node loads this file first in every process that has `clockOfRun()` in its environment.
 */
import { spawnSync } from 'node:child_process';
import { isMainThread } from 'node:worker_threads';
import { moveClock } from './moved-clock.ts';

const DAY_S = 86_400;

// As a program, this file sets the clock of the process that started it: no process can set its own.
if (process.argv[1] === import.meta.filename) await moveClock(process.ppid, 0);
else if (process.env['TEST_CLOCK_SHIFT'] !== undefined && isMainThread) setClockOfThisProcess();

/** What a program needs in its environment to have the clock of the run. */
export function clockOfRun(): Record<string, string> {
  const { TEST_CLOCK_SHIFT, NODE_OPTIONS = '' } = process.env;
  return TEST_CLOCK_SHIFT === undefined ? {} : { TEST_CLOCK_SHIFT, NODE_OPTIONS };
}

/**
 * Sets the clocks of this process and of the servers that it has started. Workers of Jest inherit its environment.
 *
 * @throws Error when TEST_CLOCK is not a time, or the system does not allow it.
 */
export function setClockOfRun(): void {
  const time = process.env['TEST_CLOCK'];
  if (!time) return;
  process.env['TEST_CLOCK_SHIFT'] = String(secondsUntil(time, Math.floor(Date.now() / 1_000)));
  process.env['NODE_OPTIONS'] = `${process.env['NODE_OPTIONS'] ?? ''} --import ${import.meta.url}`;
  setClockOfThisProcess();
}

/**
 * Never less than 0, because timers of a server wait until a clock that is put back reaches them again.
 *
 * @param time in UTC, such as `23:58`. @param nowS epoch seconds.
 */
function secondsUntil(time: string, nowS: number): number {
  const [, hours, minutes] = /^([01]\d|2[0-3]):([0-5]\d)$/.exec(time) ?? [];
  if (hours === undefined) throw new Error(`TEST_CLOCK must be a time such as 23:58, not ${time}`);
  return (DAY_S + (Number(hours) * 60 + Number(minutes)) * 60 - (nowS % DAY_S)) % DAY_S;
}

function setClockOfThisProcess(): void {
  const { NODE_OPTIONS: _loadsThisFile, ...env } = process.env;
  const { status, stderr } = spawnSync(process.execPath, [import.meta.filename], { env, encoding: 'utf8' });
  if (status !== 0) throw new Error(`the clock of the run cannot be set:\n${stderr}`);
}
