/**
 * Keeps what runs for good running. It is started when a process starts; after that, Temporal may be put back to an
 * earlier state, or somebody may terminate it.
 */
import type { Client } from '@temporalio/client';
import { ScheduleNotFoundError } from '@temporalio/client';
import type { Logger } from 'pino';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { watchEvery } from '../activities/watch.ts';
import { keepRunning, stateOf } from '../activities/workflows.ts';
import type { ScheduledRun } from '../migrations/namespace.ts';
import { ensureSchedule } from '../migrations/namespace.ts';
import { RENEW_SIGNAL, longLivedRunsBefore } from '../workflows/renewal-contract.ts';
import type { Running } from './role.ts';

const DAY_MS = 86_400_000;

export interface Guarded {
  workflows: readonly LongLivedWorkflow[];
  schedules: readonly ScheduledRun[];
  /** What rows say is under way. One that somebody terminated stays so. */
  underWay: () => Promise<readonly LongLivedWorkflow[]>;
}

/**
 * Looks every `everyMs` whether all of it is there, and starts what is not, or cannot go on. One that completed has done so by itself,
 * such as a shard that is not needed any more, and stays so. Runs that began long ago are continued by new ones.
 *
 * @param longestRunMs after which a run is continued; a day.
 */
export function startGuard(
  client: Client,
  log: Logger,
  everyMs: number,
  { workflows, schedules, underWay }: Guarded,
  longestRunMs = DAY_MS,
): Running {
  /** Runs that were asked to be continued: once is enough. */
  const renewed = new Set<string>();
  return watchEvery(everyMs, look, (reason) => log.warn({ reason }, 'long-lived workflows not looked at'));

  async function look(): Promise<void> {
    const failures: unknown[] = [];
    // What fails for one ends nothing for the others.
    const orNext = (work: () => Promise<void>) => work().catch((error: unknown) => void failures.push(error));
    for (const workflow of workflows) {
      await orNext(async () => {
        const state = await stateOf(client.workflow, workflow.workflowId);
        if (state === 'RUNNING' || state === 'COMPLETED') return;
        await keepRunning(client.workflow, workflow, state === 'STUCK');
        log.warn(
          { workflow_id: workflow.workflowId, state },
          'long-lived workflow did not run and is started',
        );
      });
    }
    await orNext(async () => {
      for (const workflow of await underWay()) {
        await orNext(async () => {
          if ((await stateOf(client.workflow, workflow.workflowId)) !== undefined) return;
          await keepRunning(client.workflow, workflow);
          log.warn({ workflow_id: workflow.workflowId }, 'workflow was unknown to Temporal and is started');
        });
      }
    });
    for (const schedule of schedules) {
      await orNext(async () => {
        if (await exists(schedule)) return;
        await ensureSchedule(client, schedule);
        log.warn({ schedule_id: schedule.id }, 'schedule was missing and is created');
      });
    }
    await orNext(renewOld);
    if (failures.length > 0) throw failures[0];
  }

  async function renewOld(): Promise<void> {
    const asked = new Set<string>();
    for await (const run of client.workflow.list({
      query: longLivedRunsBefore(new Date(Date.now() - longestRunMs)),
    })) {
      asked.add(run.runId);
      if (renewed.has(run.runId)) continue;
      await client.workflow.getHandle(run.workflowId, run.runId).signal(RENEW_SIGNAL);
    }
    // Those that are gone need not be remembered.
    renewed.clear();
    for (const runId of asked) renewed.add(runId);
  }

  async function exists({ id }: ScheduledRun): Promise<boolean> {
    try {
      await client.schedule.getHandle(id).describe();
      return true;
    } catch (error) {
      if (error instanceof ScheduleNotFoundError) return false;
      throw error;
    }
  }
}
