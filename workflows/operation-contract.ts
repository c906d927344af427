/** Operations on many items, with the messages that follow and steer them. Pure. */
import { byWhom, detailsOf, shortText } from './details.ts';
import { INTENT_TASK_QUEUE } from './intent/contract.ts';
import { MOBILE_TASK_QUEUE } from './mobile-push/contract.ts';
import { BEFORE_A_BACKLOG } from './policies.ts';

/** Workflow type name as registered with Temporal. */
export const OPERATION_WORKFLOW = 'operation';

export const operationWorkflowId = (operationId: string): string => `operation/${operationId}`;

/** Whose processes work each kind off. */
export const OPERATION_TASK_QUEUES = {
  /** Dead-lettered routes get a fresh budget. One that dies again is not replayed twice. */
  replay: INTENT_TASK_QUEUE,
  /**
   * Notifications are cancelled: routes that are not published yet are skipped for good. Those that are not accepted yet never
   * will be; their keys are free. Entries that the reader has not read are left alone.
   */
  cancel: INTENT_TASK_QUEUE,
  /** Refused entries are corrected and appended once. One that the service would refuse again has nothing to do. */
  republish: INTENT_TASK_QUEUE,
  /** Routes that waited for a channel or a producer go on, those that wait longest first. */
  release: INTENT_TASK_QUEUE,
  /** Mobile pushes are sent again, with a fresh budget. A device that has the push gets nothing. */
  resend: MOBILE_TASK_QUEUE,
} as const;
export type OperationKind = keyof typeof OPERATION_TASK_QUEUES;

/** Query; the answer is an OperationState. */
export const OPERATION_STATE_QUERY = 'state';
/** Updates: argument OperationChange; the answer is the OperationState. */
export const PAUSE_UPDATE = 'pause';
export const RESUME_UPDATE = 'resume';
export const ABORT_OPERATION_UPDATE = 'abort';

export interface OperationChange {
  /** Default `operator`. */
  requestedBy?: string;
}

/** What was asked for, as its row keeps it. */
export interface OperationOrder {
  operationId: string;
  kind: OperationKind;
  /** Items a second. */
  rate: number;
  requestedBy: string;
  filter: object;
  reason: string | null | undefined;
}

export interface OperationInput extends Pick<OperationOrder, 'operationId' | 'kind' | 'rate'> {
  /** Of the run before, when this one continues it. */
  carried?: OperationState;
}

/** What its rows say. */
export interface OperationCounts {
  total: number;
  /** Items that were dealt with. */
  done: number;
  /** Of those, the ones where there was something to do. */
  ordered: number;
}

export interface OperationState extends OperationCounts {
  /** `aborting`: what is under way ends, nothing more is begun. */
  status: 'running' | 'paused' | 'aborting' | 'aborted' | 'done';
  /** Who changed it last, and when, epoch ms. */
  changedBy?: string;
  changedAtMs?: number;
}

/** @returns what starts an operation. One that runs already is to stay as it is. */
export const operationStart = ({ operationId, kind, rate, requestedBy, filter, reason }: OperationOrder) => ({
  workflowType: OPERATION_WORKFLOW,
  workflowId: operationWorkflowId(operationId),
  taskQueue: OPERATION_TASK_QUEUES[kind],
  args: [{ operationId, kind, rate } satisfies OperationInput] as [OperationInput],
  staticSummary: `${kind} of many, asked for${byWhom(requestedBy)}`,
  staticDetails: detailsOf(
    reason != null && `Reason: ${shortText(reason)}`,
    `Filter: \`${shortText(JSON.stringify(filter), 200)}\``,
  ),
  ...BEFORE_A_BACKLOG,
});

/** The order by which a route or a job knows that this operation has been there already. */
export const orderIdOf = (operationId: string): string => operationWorkflowId(operationId);
