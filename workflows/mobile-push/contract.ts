/**
 * The contract of the mobile push workflow with the programs that start, signal or find it: task queue, workflow ids,
 * inputs, outcomes. Pure, so that clients and the workflow sandbox can both import it.
 */

import { byWhom } from '../details.ts';
import { userAttributes } from '../search-attributes.ts';

export const MOBILE_TASK_QUEUE = 'mobile-push';

/** Workflow type name as registered with Temporal. */
export const MOBILE_PUSH_WORKFLOW = 'mobilePush';

/** `jobId` is the id of the job's entry in the stream. */
export const mobilePushWorkflowId = (jobId: string): string => `mobile-push/${jobId}`;

/**
 * Signal to a job's workflow, argument `MobileReplayRequest` or none: what failed is sent again with a fresh budget, to
 * the user's devices as they are then; a device that has the push gets none. One that comes while sends are under way
 * takes effect after them. To reach ended jobs, and those that were given up before their workflow was started, send
 * it by signal-with-start with the id reuse policy ALLOW_DUPLICATE_FAILED_ONLY.
 */
export const MOBILE_REPLAY_SIGNAL = 'replay';

export interface MobileReplayRequest {
  /** Who asks, for the log; default `signal`. */
  requestedBy?: string | undefined;
  /** The same order opens a job once, however often it comes: that of an operation. */
  orderId?: string | undefined;
}

/**
 * What `signalWithStart` takes to have a job sent again: a run that is under way hears of it, one that failed is followed by
 * another. One that completed has reached every device that can be reached, and the start is refused.
 *
 * @param userId as `searchableKey` of api/ids.ts gives it.
 */
export const mobileReplay = (jobId: string, userId: string, request: MobileReplayRequest) => ({
  workflowId: mobilePushWorkflowId(jobId),
  taskQueue: MOBILE_TASK_QUEUE,
  args: [{ jobId } satisfies MobilePushInput],
  signal: MOBILE_REPLAY_SIGNAL,
  signalArgs: [request],
  workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY' as const,
  typedSearchAttributes: userAttributes([userId]),
  staticSummary: `mobile push (replay${byWhom(request.requestedBy)})`,
});

/** Input of a job's workflow; what is to be shown stays in PostgreSQL. */
export interface MobilePushInput extends MobileReplayRequest {
  jobId: string;
  /** The run before has opened the job so; this one continues, with a replay that was ordered meanwhile. */
  openedBy?: string;
}

/** Final states of a job. */
export type MobileStatus = 'sent' | 'partial' | 'failed' | 'no_tokens';

/** A job's totals, over all its devices. */
export interface MobilePushResult {
  /** sent: to every device. partial: to some. failed: to none. no_tokens: the user has no device. */
  status: MobileStatus;
  tokens: number;
  sent: number;
  /** Devices whose tokens were stale and are deleted. */
  removed: number;
  /** Devices that a replay may reach. */
  failed: number;
  /** Why the last of those failed. */
  code?: string;
}

/** Which send: one job to one device. */
export interface SendKey {
  jobId: string;
  /** `public.device_token.id`, never the token. */
  deviceTokenId: string;
}

/** The beginning of a run, or of a replay within it. */
export interface OpenOrder {
  jobId: string;
  /** Unique per opening, and the same in each attempt of it; the id of the order, if it has one. */
  openedBy: string;
  /** Set for a replay that an operator asked for. */
  requestedBy?: string | undefined;
}

/** Sends that have not been settled yet. */
export interface OpenSends {
  deviceTokenIds: string[];
  /** There are more, for the next page. */
  hasMore: boolean;
  /** Nothing can be sent. */
  stopCode?: 'user_id_refused';
}

/** How one send ended. */
export type SendResult =
  | { status: 'removed' | 'failed' }
  /** `isRecorded: false`: FCM has it, PostgreSQL does not know yet. */
  | { status: 'sent'; messageId: string; isRecorded: boolean };

/** Details of a send that did not succeed yet, carried by the failure from the activity to the workflow. */
export interface SendFailureDetails {
  /** FCM's, or `braked`. */
  code: string;
  /** Spent since the job was opened. */
  attempts: number;
  maxAttempts: number;
  /** ms until the next one. */
  retryInMs: number;
}

/** The end of the sends. */
export interface Settlement {
  jobId: string;
  /** Why the sends that were not made were not. */
  stopCode?: 'cancelled' | 'user_id_refused';
  /** Sends that this run was given, at least: with fewer PostgreSQL has forgotten some. */
  listed?: number;
}
