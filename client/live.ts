/** What Temporal knows about a workflow right now. */
import type { Client, WorkflowExecutionDescription, WorkflowExecutionStatusName } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import { withoutNulls } from './lists.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';
import { QUERY_LIMIT_MS, bounded, dateOf, failureMessageOf, query } from './temporal.ts';

/** Answered by Temporal's SDK in every workflow, by a worker. */
const METADATA_QUERY = '__temporal_workflow_metadata';

export interface PendingActivity {
  id: string;
  type: string;
  /** 1 for the first. */
  attempt: number;
  isPaused: boolean;
  lastFailure?: string;
  nextAttemptAt?: Date;
}

export interface LiveState {
  workflowId: string;
  runId: string;
  status: WorkflowExecutionStatusName;
  startedAt: Date;
  /** Absent while it runs. */
  closedAt?: Date;
  /** What a running workflow says it waits for; empty when it says nothing. */
  details?: string;
  /** The details could not be asked for, and why. */
  detailsUnavailable?: string;
  pendingActivities: PendingActivity[];
  pendingChildren: number;
  /** What a completed workflow returned. */
  result?: unknown;
  link?: string;
}

/**
 * @returns undefined when Temporal does not know the workflow: it never ran, or it ended longer ago than the
 * namespace's retention.
 * @throws what the Temporal client throws when the server does not answer within 5 s.
 */
export async function liveStateOf(
  resources: Pick<OperatorResources, 'temporal' | 'namespace' | 'uiUrl'>,
  workflowId: string,
): Promise<LiveState | undefined> {
  const { temporal } = resources;
  const described = await describe(temporal, workflowId);
  if (!described) return undefined;

  const { runId, status, startTime: startedAt, closeTime: closedAt, raw } = described;
  const result = () =>
    bounded(temporal, () => temporal.workflow.getHandle(workflowId).result() as Promise<unknown>);
  return {
    ...{ workflowId, runId, status: status.name, startedAt },
    ...withoutNulls({ closedAt }),
    ...(status.name === 'RUNNING' ? await detailsOf(temporal, workflowId) : {}),
    pendingActivities: await Promise.all(
      (raw.pendingActivities ?? []).map(async (activity) =>
        withoutNulls({
          id: activity.activityId ?? '',
          type: activity.activityType?.name ?? '',
          attempt: activity.attempt ?? 1,
          isPaused: activity.paused ?? false,
          lastFailure: (await failureMessageOf(temporal, activity.lastFailure)) || undefined,
          nextAttemptAt: dateOf(activity.nextAttemptScheduleTime),
        }),
      ),
    ),
    pendingChildren: raw.pendingChildren?.length ?? 0,
    ...(status.name === 'COMPLETED' ? { result: await result().catch(() => undefined) } : {}),
    ...linkField(resources, workflowId, runId),
  };
}

/**
 * The status alone, for a look that is repeated.
 *
 * @returns undefined when Temporal does not know the workflow.
 * @throws as `liveStateOf`.
 */
export async function statusOf(
  { temporal }: Pick<OperatorResources, 'temporal'>,
  workflowId: string,
): Promise<WorkflowExecutionStatusName | undefined> {
  return (await describe(temporal, workflowId))?.status.name;
}

/** @returns undefined when Temporal does not know the workflow. @throws as `liveStateOf`. */
export async function describe(
  temporal: Client,
  workflowId: string,
): Promise<WorkflowExecutionDescription | undefined> {
  try {
    return await bounded(temporal, () => temporal.workflow.getHandle(workflowId).describe());
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

async function detailsOf(
  temporal: Client,
  workflowId: string,
): Promise<Pick<LiveState, 'details' | 'detailsUnavailable'>> {
  const metadata = await query<{ currentDetails?: string }>(temporal, workflowId, METADATA_QUERY);
  return metadata
    ? { details: metadata.currentDetails ?? '' }
    : { detailsUnavailable: `no worker answered within ${QUERY_LIMIT_MS / 1_000} s` };
}
