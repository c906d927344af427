/** Retention runs, started by the schedule of each kind of work every NOTIFICATION_CLEANUP_INTERVAL. */
import { proxyActivities } from '@temporalio/workflow';
import type { IntentRetentionActivities } from '../activities/intent/retention.ts';
import type { MobileRetentionActivities } from '../activities/mobile-push/retention.ts';
import type { RetentionOutcome } from './intent/contract.ts';
import type { MobileRetentionOutcome } from './mobile-push/contract.ts';
import { RETENTION } from './policies.ts';

const intents = proxyActivities<IntentRetentionActivities>(RETENTION);
const mobilePushes = proxyActivities<MobileRetentionActivities>(RETENTION);

export async function intentRetention(): Promise<RetentionOutcome> {
  const records = await intents.deleteExpiredRecords();
  const malformedIntents = await intents.deleteExpiredMalformedIntents();
  return { records, malformedIntents };
}

export async function mobileRetention(): Promise<MobileRetentionOutcome> {
  const jobs = await mobilePushes.deleteExpiredJobs();
  const malformedJobs = await mobilePushes.deleteExpiredMalformedJobs();
  return { jobs, malformedJobs };
}
