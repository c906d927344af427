/**
 * Workflows that run for good are continued by new runs at least once a day, and when an operator says so. A run holds
 * what its beginning was sealed with and written by: without new runs no key of NOTIFICATION_PAYLOAD_KEYS and no release
 * could ever go. Pure, so that clients and the workflow sandbox can both import it.
 */
import { ACCOUNT_CALLBACK_WORKFLOW } from './account-callback/contract.ts';
import { BRIDGE_WORKFLOW } from './intent/contract.ts';
import { POOL_WORKER_WORKFLOW, SUPERVISOR_WORKFLOW } from './subscription/contract.ts';
import { SYMBOL_CONFIG_WORKFLOW } from './symbol-config/contract.ts';

/** Signal without argument: go on in a new run as soon as nothing is in the way. Nothing is lost or done twice. */
export const RENEW_SIGNAL = 'renew';

/** Types of the workflows that take it. */
const RENEWED_WORKFLOWS: readonly string[] = [
  BRIDGE_WORKFLOW,
  SYMBOL_CONFIG_WORKFLOW,
  ACCOUNT_CALLBACK_WORKFLOW,
  SUPERVISOR_WORKFLOW,
  POOL_WORKER_WORKFLOW,
];

/** Queries of Temporal's visibility: those that run, and those of them whose run began before a time. */
export const LONG_LIVED_RUNS = `ExecutionStatus = 'Running' AND WorkflowType IN (${RENEWED_WORKFLOWS.map((type) => `'${type}'`).join(', ')})`;
export const longLivedRunsBefore = (time: Date): string =>
  `${LONG_LIVED_RUNS} AND StartTime < '${time.toISOString()}'`;
