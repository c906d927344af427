/**
 * The reconciler of a process. Each interval it starts what runs for good and does not run, and triggers the
 * reconciliation schedules of its roles when rows have lost their worker. The schedule alone would do as well; each of its
 * runs is half a dozen Actions that Temporal Cloud bills, nearly all of them for nothing, while a look costs a statement.
 */
import type { Client } from '@temporalio/client';
import { ScheduleOverlapPolicy } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Logger } from 'pino';
import type { Reconciled } from '../activities/reconciliation.ts';
import { listed, reconcile } from '../activities/reconciliation.ts';
import { reasonOf } from '../activities/reason.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { keepRunning, stateOf } from '../activities/workflows.ts';
import { watchEvery } from '../api/watch.ts';
import type { ScheduledRun } from '../migrations/namespace.ts';
import { describeSchedule, ensureSchedule } from '../migrations/namespace.ts';
import { reconciliationScheduleId } from '../workflows/recovery-contract.ts';
import { RENEW_SIGNAL, longLivedRunsBefore } from '../workflows/renewal-contract.ts';

const DAY_MS = 86_400_000;
/** Workflows and schedules that are looked at concurrently. */
const PARALLEL = 8;

export interface ReconcilerOptions {
  client: Client;
  log: Logger;
  everyMs: number;
  workflows: readonly LongLivedWorkflow[];
  schedules: readonly ScheduledRun[];
  /** What rows say is under way. One that an operator terminated stays so. */
  underWay: () => Promise<readonly LongLivedWorkflow[]>;
  /** What runs of a schedule take up, by task queue. */
  scheduled?: readonly { taskQueue: string; kinds: readonly Reconciled[] }[];
  /** After which a run of a long-lived workflow is continued by a new one; a day. */
  longestRunMs?: number;
}

/** Looks every `everyMs`. What fails does not stop what comes after it. */
export function startReconciler(options: ReconcilerOptions): { stop(): Promise<void> } {
  const { client, log, everyMs, scheduled = [] } = options;
  const descriptors = descriptorsOf(options);
  return watchEvery(everyMs, startLost, (error) =>
    log.warn({ reason: reasonOf(error) }, 'lost work not looked for'),
  );

  async function startLost(): Promise<void> {
    const failures: unknown[] = [];
    const orNext = (work: Promise<unknown>) => work.catch((error: unknown) => void failures.push(error));
    for (const kind of descriptors) await orNext(reconcile(kind, {}, { log }));
    for (const { taskQueue, kinds } of scheduled) await orNext(triggerIfLost(taskQueue, kinds));
    if (failures.length > 0) throw failures[0];
  }

  /** Triggers no more often than each interval, however many processes look. A schedule that an operator has paused stays so. */
  async function triggerIfLost(taskQueue: string, kinds: readonly Reconciled[]): Promise<void> {
    const found = await Promise.all(
      kinds.filter(({ isLoss }) => isLoss).map(async (kind) => (await kind.page(undefined, 1)).length > 0),
    );
    if (!found.includes(true)) return;
    const handle = client.schedule.getHandle(reconciliationScheduleId(taskQueue));
    const { state, info } = await handle.describe();
    const lastMs = info.recentActions.at(-1)?.takenAt.getTime() ?? 0;
    // Half: what another process has triggered is as old as its look was before this one.
    if (state.paused || Date.now() - lastMs < everyMs / 2) return;
    await handle.trigger(ScheduleOverlapPolicy.SKIP);
  }
}

function descriptorsOf({ client, log, workflows, schedules, underWay, ...options }: ReconcilerOptions) {
  const { longestRunMs = DAY_MS } = options;
  /** Runs that were asked to be continued: once is enough. */
  let renewed = new Set<string>();

  const toStart = (
    what: string,
    list: () => Promise<readonly LongLivedWorkflow[]>,
    isLost: (state: string | undefined) => boolean,
  ) =>
    listed<LongLivedWorkflow>({
      ...{ what, count: 'started' },
      list: async () => lacking(await list(), async (workflow) => isLost(await stateNow(workflow))),
      idOf: ({ workflowId }) => workflowId,
      async start(workflow) {
        const state = await stateNow(workflow);
        await keepRunning(client.workflow, workflow, state === 'STUCK');
        log.warn({ workflow_id: workflow.workflowId, state }, `${what} did not run and is started`);
        return 1;
      },
    });
  const stateNow = ({ workflowId, isNeverIdle }: LongLivedWorkflow) =>
    stateOf(client.workflow, workflowId, isNeverIdle);
  const longLived = toStart(
    'long-lived workflow',
    async () => workflows,
    // One that completed has done so by itself, such as a shard that is not needed any more, and stays so.
    (state) => state !== 'RUNNING' && state !== 'COMPLETED',
  );
  const forgotten = toStart('workflow under way', underWay, (state) => state === undefined);
  const missing = listed<ScheduledRun>({
    ...{ what: 'schedule', count: 'created' },
    list: () => lacking(schedules, async ({ id }) => (await describeSchedule(client, id)) === undefined),
    idOf: ({ id }) => id,
    async start(schedule) {
      await ensureSchedule(client, schedule);
      log.warn({ schedule_id: schedule.id }, 'schedule was missing and is created');
      return 1;
    },
  });
  const old = listed<{ workflowId: string; runId: string }>({
    ...{ what: 'old run', count: 'renewed' },
    async list() {
      const query = longLivedRunsBefore(new Date(Date.now() - longestRunMs));
      const runs: { workflowId: string; runId: string }[] = [];
      for await (const run of client.workflow.list({ query })) runs.push(run);
      const asked = renewed;
      // Those that are gone need not be remembered.
      renewed = new Set(runs.map(({ runId }) => runId).filter((runId) => asked.has(runId)));
      return runs.filter(({ runId }) => !asked.has(runId));
    },
    idOf: ({ runId }) => runId,
    async start({ workflowId, runId }) {
      await client.workflow.getHandle(workflowId, runId).signal(RENEW_SIGNAL);
      renewed.add(runId);
      return 1;
    },
  });
  return [longLived, forgotten, missing, old] as Reconciled[];
}

/** @returns the items of which `isLacking` says so. */
async function lacking<Item>(
  items: readonly Item[],
  isLacking: (item: Item) => Promise<boolean>,
): Promise<Item[]> {
  const found = await pLimit(PARALLEL).map(items, isLacking);
  return items.filter((_, index) => found[index]);
}
