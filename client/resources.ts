/** What operations work with, and links into Temporal's Web UI: to a workflow, and to the lists that operators need. */
import type { Client } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Catalog } from '../api/intent/catalog.ts';
import type { KeyBox } from '../api/key-box.ts';
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

export interface OperatorResources {
  temporal: Client;
  /** Sessions must run in the time zone UTC. */
  db: Pool;
  redis: Redis;
  namespace: string;
  /** Address of the Web UI, e.g. `http://127.0.0.1:8233`; without it there are no links. */
  uiUrl?: string;
  intentsStream: string;
  /** The notification types of the service. */
  catalog: Catalog;
  /** Where streams have other names than usual. */
  streams?: { push?: string; mail?: string };
  /** Whose subscriptions and token; default `default`. */
  agentId?: string;
  /** Seals the requests about tokens with the keys of the service. Called when the first one is made. */
  keyBox?: () => KeyBox;
}

type WebUi = Pick<OperatorResources, 'uiUrl' | 'namespace'>;

/** The link to a workflow as a field of a view, or no field without a configured address of the Web UI. */
export function linkField(
  { uiUrl, namespace }: WebUi,
  workflowId: string,
  runId?: string,
): { link?: string } {
  return uiUrl === undefined ? {} : { link: workflowLink({ uiUrl, namespace }, workflowId, runId) };
}

/** The list of workflows. */
const workflowsPage = ({ uiUrl, namespace }: Required<WebUi>): string =>
  `${uiUrl.replace(/\/+$/, '')}/namespaces/${encodeURIComponent(namespace)}/workflows`;

/**
 * The page of a workflow: of one run when it is given, else of the latest one. The form was tried with UI 2.42.1;
 * slashes in workflow ids must be encoded.
 */
export function workflowLink(
  { uiUrl, namespace }: Required<WebUi>,
  workflowId: string,
  runId?: string,
): string {
  const workflow = `${workflowsPage({ uiUrl, namespace })}/${encodeURIComponent(workflowId)}`;
  return runId === undefined ? workflow : `${workflow}/${encodeURIComponent(runId)}/history`;
}

/** A list in the Web UI. */
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

export function views({ uiUrl, namespace }: WebUi): View[] {
  return QUERIES.map(([name, query]) => {
    if (uiUrl === undefined) return { name, query };
    const link = `${workflowsPage({ uiUrl, namespace })}?query=${encodeURIComponent(query)}`;
    return { name, query, link, saveLink: `${link}&savedQuery=${encodeURIComponent(name)}` };
  });
}
