/** Queries that operators ask Temporal again and again, as links into its Web UI. */
import { ACCOUNT_CALLBACK_WORKFLOW } from '../workflows/account-callback/contract.ts';
import { DEAD_LETTER_WORKFLOW, NOTIFICATION_WORKFLOW } from '../workflows/intent/contract.ts';
import { OPERATION_WORKFLOW } from '../workflows/operation-contract.ts';
import { MOBILE_PUSH_WORKFLOW } from '../workflows/mobile-push/contract.ts';
import {
  POOL_WORKER_WORKFLOW,
  SUPERVISOR_WORKFLOW,
  TOKEN_WORKFLOW,
} from '../workflows/subscription/contract.ts';
import { SYMBOL_CONFIG_WORKFLOW } from '../workflows/symbol-config/contract.ts';
import type { OperatorResources } from './resources.ts';
import { workflowsPage } from './resources.ts';

export interface View {
  name: string;
  /** As Temporal takes it, also for `temporal workflow list --query`. */
  query: string;
  /** Opens it in the Web UI; absent without a configured address. */
  link?: string;
  /** Opens it, and has the browser keep it under its name among the saved views. Opened twice, it is kept twice. */
  saveLink?: string;
}

const running = (...types: string[]): string =>
  `WorkflowType IN (${types.map((type) => `'${type}'`).join(', ')}) AND ExecutionStatus = 'Running'`;

const QUERIES: readonly (readonly [name: string, query: string])[] = [
  ['Dead letters', running(DEAD_LETTER_WORKFLOW)],
  ['Notifications of which routes died', `WorkflowType = '${NOTIFICATION_WORKFLOW}' AND DeadRoutes > 0`],
  ['Routes that are tried again', `RouteStatus = 'failed' AND ExecutionStatus = 'Running'`],
  ['Routes that are held', `RouteStatus = 'paused' AND ExecutionStatus = 'Running'`],
  ['Open operations', running(OPERATION_WORKFLOW)],
  ['Waiting: notifications', running(NOTIFICATION_WORKFLOW)],
  ['Waiting: mobile pushes', running(MOBILE_PUSH_WORKFLOW)],
  ['Waiting: symbols', running(SYMBOL_CONFIG_WORKFLOW)],
  ['Waiting: account callbacks', running(ACCOUNT_CALLBACK_WORKFLOW)],
  ['Waiting: subscriptions', running(SUPERVISOR_WORKFLOW, POOL_WORKER_WORKFLOW, TOKEN_WORKFLOW)],
  ['Mobile pushes that failed', `WorkflowType = '${MOBILE_PUSH_WORKFLOW}' AND ExecutionStatus = 'Failed'`],
  ['Failures of every kind', `ExecutionStatus IN ('Failed', 'TimedOut', 'Terminated')`],
];

export function views({ uiUrl, namespace }: Pick<OperatorResources, 'uiUrl' | 'namespace'>): View[] {
  return QUERIES.map(([name, query]) => {
    if (uiUrl === undefined) return { name, query };
    const link = `${workflowsPage({ uiUrl, namespace })}?query=${encodeURIComponent(query)}`;
    return { name, query, link, saveLink: `${link}&savedQuery=${encodeURIComponent(name)}` };
  });
}
