/**
 * A slice: many intents that were read together, in one workflow. What producers, operators and activities agree on about
 * it. Pure.
 */
import type { NotificationInput } from './contract.ts';

export const SLICE_WORKFLOW = 'notificationSlice';

/** What a slice goes on as when its intents wait for the User Service, under the same workflow id: it may take days. */
export const WAITING_SLICE_WORKFLOW = 'notificationSliceWaiting';

/** Visibility query: slices that are being worked off, without those that wait. */
export const RUNNING_SLICES = `WorkflowType = '${SLICE_WORKFLOW}' AND ExecutionStatus = 'Running'`;

/** Visibility query: both. */
export const OPEN_SLICES = `WorkflowType IN ('${SLICE_WORKFLOW}', '${WAITING_SLICE_WORKFLOW}') AND ExecutionStatus = 'Running'`;

const ID_PREFIX = 'notification-slice/';

/** @param slice the id of its first entry. */
export const sliceWorkflowId = (slice: string): string => `${ID_PREFIX}${slice}`;

/** @returns the id of the first entry of a slice. */
export const sliceOfWorkflowId = (workflowId: string): string => workflowId.slice(ID_PREFIX.length);

/** Signal to a slice, argument the notification id: what is not published of this intent is not to be. */
export const CANCEL_INTENT_SIGNAL = 'cancelIntent';

/** Query of a slice: its intents, as they came. */
export const SLICE_INTENTS_QUERY = 'intents';

export interface SliceInput {
  /** The id of the first entry. */
  slice: string;
  /** In the order of the stream. */
  intents: NotificationInput[];
  /** What came of the slice's other intents, when these are what is left of it. */
  before?: SliceOutcome;
}

/** What came of a common try: how many intents were decided how; those that were found cancelled are not counted. */
export interface SliceDelivery {
  accepted: number;
  duplicates: number;
  rejected: number;
  /**
   * Those in trouble of their own: they are not decided, or are accepted and have a route that is neither published nor
   * skipped.
   */
  open: string[];
  /** Those that wait for the User Service, which is away for all. */
  waiting: string[];
}

export interface SliceOutcome extends Omit<SliceDelivery, 'open' | 'waiting'> {
  /** Those that have a workflow of their own now. */
  handedOn: string[];
  cancelled: string[];
}
