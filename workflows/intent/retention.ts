/** One retention run, started by the schedule `intent-retention` every NOTIFICATION_CLEANUP_INTERVAL. */
import { proxyActivities } from '@temporalio/workflow';
import type { RetentionActivities } from '../../activities/intent/retention.ts';
import type { RetentionOutcome } from './contract.ts';
import { RETENTION } from '../policies.ts';

const retention = proxyActivities<RetentionActivities>(RETENTION);

export async function intentRetention(): Promise<RetentionOutcome> {
  const records = await retention.deleteExpiredRecords();
  const malformedIntents = await retention.deleteExpiredMalformedIntents();
  return { records, malformedIntents };
}
