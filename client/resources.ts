/** What operations work with, and how they say where in Temporal's Web UI a workflow is. */
import type { Client } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Catalog } from '../api/intent/catalog.ts';
import type { KeyBox } from '../api/key-box.ts';

export interface OperatorResources {
  temporal: Client;
  /** Sessions must run in the time zone UTC. */
  db: Pool;
  redis: Redis;
  namespace: string;
  /** Address of the Web UI, e.g. `http://127.0.0.1:8233`; without it there are no links. */
  uiUrl?: string;
  /** Address of the page that docs/operate/runbook.md is; without it nothing links there. */
  runbookUrl?: string;
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
export const workflowsPage = ({ uiUrl, namespace }: Required<WebUi>): string =>
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
