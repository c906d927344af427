/** Takes up routes and intents that nobody works on, by a schedule every NOTIFICATION_RECONCILIATION_INTERVAL. */
import { proxyActivities } from '@temporalio/workflow';
import type { ReconciliationActivities } from '../../activities/intent/reconciliation.ts';
import { RETENTION } from '../policies.ts';
import type { ReconciliationOutcome } from './contract.ts';

const { takeUpWork } = proxyActivities<ReconciliationActivities>(RETENTION);

export const intentReconciliation = (): Promise<ReconciliationOutcome> => takeUpWork();
