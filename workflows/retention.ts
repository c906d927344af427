/** Retention, started by the schedule of each kind of work every NOTIFICATION_CLEANUP_INTERVAL. */
import { continueAsNew, proxyActivities } from '@temporalio/workflow';
import type { RetentionActivities } from '../activities/retention.ts';
import { UPKEEP } from './policies.ts';
import type { DeletedRows } from './retention-contract.ts';

const { deleteExpired } = proxyActivities<RetentionActivities>(UPKEEP);

/** Goes on until no old row is left: one activity a run, so that no backlog makes its history long. */
export async function retention(): Promise<DeletedRows> {
  const { deleted, isUnfinished } = await deleteExpired();
  if (isUnfinished) await continueAsNew<typeof retention>();
  return deleted;
}
