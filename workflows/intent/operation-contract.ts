/** What an operator does to many routes or notifications at once, and how it is followed and steered. Pure. */

/** Workflow type name as registered with Temporal. */
export const OPERATION_WORKFLOW = 'operation';

export const operationWorkflowId = (operationId: string): string => `operation/${operationId}`;

/** `replay`: dead-lettered routes get a fresh budget. `cancel`: notifications that are under way are cancelled. */
export const OPERATION_KINDS = ['replay', 'cancel'] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** Query; the answer is an OperationState. */
export const OPERATION_STATE_QUERY = 'state';
/** Updates, argument OperationChange; the answer is the OperationState. */
export const PAUSE_OPERATION_UPDATE = 'pause';
export const RESUME_OPERATION_UPDATE = 'resume';
export const ABORT_OPERATION_UPDATE = 'abort';

export interface OperationChange {
  /** Default `operator`. */
  requestedBy?: string;
}

export interface OperationInput {
  operationId: string;
  kind: OperationKind;
  /** Items a second. */
  rate: number;
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

/** The order by which a route knows that this operation has replayed it already. */
export const orderIdOf = (operationId: string): string => operationWorkflowId(operationId);
