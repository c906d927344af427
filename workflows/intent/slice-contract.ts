/**
 * A slice: many intents that were read together, in one workflow. What producers, operators and activities agree on about
 * it. Pure.
 */
import type { NotificationInput } from './contract.ts';

export const SLICE_WORKFLOW = 'notificationSlice';

/** Visibility query. */
export const RUNNING_SLICES = `WorkflowType = '${SLICE_WORKFLOW}' AND ExecutionStatus = 'Running'`;

const ID_PREFIX = 'notification-slice/';

/** @param slice the id of its first entry. */
export const sliceWorkflowId = (slice: string): string => `${ID_PREFIX}${slice}`;

/** @returns the id of the first entry of a slice. */
export const sliceOfWorkflowId = (workflowId: string): string => workflowId.slice(ID_PREFIX.length);

/** Signal to a slice, argument the notification id: what is not published of this intent is not to be. */
export const CANCEL_INTENT_SIGNAL = 'cancelIntent';

export interface SliceInput {
  /** The id of the first entry. */
  slice: string;
  /** In the order of the stream. */
  intents: NotificationInput[];
}

/** What came of the first, common try: how many intents were decided how. */
export interface SliceDelivery {
  accepted: number;
  duplicates: number;
  rejected: number;
  /** Those that are not decided, and those that are accepted and have a route that is neither published nor skipped. */
  open: string[];
}

export interface SliceOutcome extends Omit<SliceDelivery, 'open'> {
  /** Those that have a workflow of their own now. */
  handedOn: string[];
  cancelled: string[];
}
