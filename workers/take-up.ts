/**
 * Has work taken up that nobody does. A schedule would do that alone, and each of its runs is half a dozen Actions that
 * Temporal Cloud bills, nearly all of them for nothing. So processes look, which costs a statement, and call a run of the
 * schedule when there is something to do; by itself it runs rarely.
 */
import type { Client } from '@temporalio/client';
import { ScheduleOverlapPolicy } from '@temporalio/client';
import type { Logger } from 'pino';
import { watchEvery } from '../activities/watch.ts';
import type { Overdue, Running } from './role.ts';

/**
 * Looks every `everyMs`, and calls runs no more often than that, however many processes look. A schedule that an operator
 * has paused stays so.
 */
export function startTakeUp(
  { schedule }: Client,
  log: Logger,
  everyMs: number,
  overdue: readonly Overdue[],
): Running {
  return watchEvery(everyMs, look, (reason) => log.warn({ reason }, 'overdue work not looked for'));

  async function look(): Promise<void> {
    for (const { scheduleId, isThere } of overdue) if (await isThere()) await run(scheduleId);
  }

  async function run(scheduleId: string): Promise<void> {
    const handle = schedule.getHandle(scheduleId);
    const { state, info } = await handle.describe();
    const lastMs = info.recentActions.at(-1)?.takenAt.getTime() ?? 0;
    // Half: what another process has called is as old as its look was before this one.
    if (state.paused || Date.now() - lastMs < everyMs / 2) return;
    await handle.trigger(ScheduleOverlapPolicy.SKIP);
  }
}
