/**
 * Upkeep: retention and reconciliation, which a schedule runs for each kind of work, the repair of an outbound stream, and recovery
 * of what a restored store has forgotten, as far back as an operator says. A recovery reads entries again, hands off again what
 * outbound streams have lost, and reconciles all kinds; each part also runs by itself after a loss that is noticed.
 */
import {
  continueAsNew,
  defineQuery,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { RecoveryActivities } from '../activities/intent/reconciliation.ts';
import type { RepairActivities } from '../activities/intent/repair.ts';
import type { ReconciliationActivities } from '../activities/reconciliation.ts';
import type { RetentionActivities } from '../activities/retention.ts';
import { byWhom } from './details.ts';
import { INTENT_TASK_QUEUE } from './intent/contract.ts';
import { STEERING, UPKEEP } from './policies.ts';
import type {
  Counts,
  DeletedRows,
  RecoveryInput,
  RecoveryProgress,
  RepairProgress,
} from './recovery-contract.ts';
import { RECOVERY_PROGRESS_QUERY } from './recovery-contract.ts';

const { repairStream } = proxyActivities<RepairActivities>(STEERING);
const { deleteExpired } = proxyActivities<RetentionActivities>(UPKEEP);
const { readAgainSince, awaitReadAgain, restoreOutbound } = proxyActivities<RecoveryActivities>(STEERING);

/** @param taskQueue of a kind of work; that of the workflow when it is not given. */
const reconcile = (taskQueue?: string): Promise<Counts> =>
  proxyActivities<ReconciliationActivities>({ ...UPKEEP, ...(taskQueue ? { taskQueue } : {}) }).reconcile();

const rewind = (taskQueue: string, sinceMs: number): Promise<string | undefined> =>
  proxyActivities<ReconciliationActivities>({ ...STEERING, taskQueue }).rewind(sinceMs);

/** One run of the schedule of a kind of work. */
export function reconciliation(): Promise<Counts> {
  setCurrentDetails('Takes up work of this kind that has no workflow.');
  return reconcile();
}

/** @returns what was done. Every part may be done twice, and beside what goes on. */
export async function recovery(input: RecoveryInput): Promise<RecoveryProgress> {
  const { stream, outbound, sinceMs, also, requestedBy } = input;
  const progress: RecoveryProgress = {
    step: 'reading again',
    restored: [],
    takenUp: { overdue: 0, published: 0, restarted: 0, intents: 0, ended: 0, failed: 0 },
    also: {},
  };
  setHandler(defineQuery<RecoveryProgress>(RECOVERY_PROGRESS_QUERY), () => progress, {
    description: 'How far the recovery is.',
  });
  const begin = (step: RecoveryProgress['step'], details: string) => {
    progress.step = step;
    setCurrentDetails(`Asked for${byWhom(requestedBy)}: ${details}`);
  };

  begin('reading again', `entries of \`${stream}\` are read again; while intake is paused, this waits`);
  const readAgain = await readAgainSince(stream, sinceMs);
  if (readAgain) {
    progress.readAgain = readAgain;
    await awaitReadAgain(stream, readAgain);
  }

  begin('looking for entries', 'published routes are looked for in the outbound streams');
  for (const name of outbound) progress.restored.push(await restoreOutbound(name, sinceMs, requestedBy));

  begin('taking work up', 'work of all kinds that has no workflow is taken up');
  for (let isDone = false; !isDone;) {
    const found = await reconcile(INTENT_TASK_QUEUE);
    for (const [name, count] of Object.entries(found))
      progress.takenUp[name] = (progress.takenUp[name] ?? 0) + count;
    const { published = 0, restarted = 0, intents = 0 } = found;
    isDone = published + restarted + intents === 0;
  }
  for (const kind of also) {
    const againFrom = await rewind(kind, sinceMs);
    const takenUp = await reconcile(kind);
    progress.also[kind] = { takenUp, ...(againFrom === undefined ? {} : { againFrom }) };
  }
  begin('done', 'done');
  return progress;
}

/**
 * Puts back entries that were handed off, and that a restarted or switched Redis does not have any more.
 *
 * @param stream name of the outbound Redis Stream, e.g. `gateway:client-events`.
 * @param settlingMs until every hand-off from before has its row written, ms.
 */
export async function outboundRepair(
  stream: string,
  settlingMs: number,
): Promise<Omit<RepairProgress, 'before'>> {
  setCurrentDetails(`Looking in \`${stream}\` for the entries of published routes, from the newest on.`);
  const { checked, repaired } = await repairStream(stream, settlingMs);
  setCurrentDetails(`Looked for ${checked} entries in \`${stream}\` and handed ${repaired} off again.`);
  return { checked, repaired };
}

/** One run of the schedule of a kind of work. Goes on until no old row is left: one activity a run, so that no backlog makes its history long. */
export async function retention(): Promise<DeletedRows> {
  setCurrentDetails('Deletes rows that are older than their retention.');
  const { deleted, isUnfinished } = await deleteExpired();
  if (isUnfinished) await continueAsNew<typeof retention>();
  return deleted;
}
