/** Takes up work that nobody does, each kind by a schedule, which processes call when they see some (workers/take-up.ts). */
import { proxyActivities } from '@temporalio/workflow';
import type { ReconciliationActivities } from '../activities/intent/reconciliation.ts';
import type { MobileReconciliationActivities } from '../activities/mobile-push/reconciliation.ts';
import type { ReconciliationOutcome } from './intent/contract.ts';
import type { MobileReconciliationOutcome } from './mobile-push/contract.ts';
import { RETENTION } from './policies.ts';

const { takeUpWork } = proxyActivities<ReconciliationActivities>(RETENTION);
const { takeUpMobileJobs } = proxyActivities<MobileReconciliationActivities>(RETENTION);

/** Routes that are overdue, and intents that wait. */
export const intentReconciliation = (): Promise<ReconciliationOutcome> => takeUpWork();

/** Push jobs that are not done. */
export const mobileReconciliation = (): Promise<MobileReconciliationOutcome> => takeUpMobileJobs();
