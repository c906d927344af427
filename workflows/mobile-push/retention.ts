/** One retention run of mobile push jobs, started by the schedule `mobile-retention`. */
import { proxyActivities } from '@temporalio/workflow';
import type { MobileRetentionActivities } from '../../activities/mobile-push/retention.ts';
import type { MobileRetentionOutcome } from './contract.ts';
import { RETENTION } from '../policies.ts';

const retention = proxyActivities<MobileRetentionActivities>(RETENTION);

export async function mobileRetention(): Promise<MobileRetentionOutcome> {
  const jobs = await retention.deleteExpiredJobs();
  const malformedJobs = await retention.deleteExpiredMalformedJobs();
  return { jobs, malformedJobs };
}
