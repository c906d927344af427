/**
 * One mobile push job: list the user's devices, send to each of them, write down how it ended.
 *
 * ```mermaid
 * stateDiagram-v2
 *   [*] --> pending: one send, to one device
 *   pending --> sent: FCM took it
 *   pending --> removed: the token is at fault, and deleted
 *   pending --> pending: again in 30 s or when FCM says, or braked and nothing spent
 *   pending --> failed: 5 attempts spent, or the payload is refused
 *   failed --> pending: replay
 * ```
 *
 * A user with more than a page of devices is served page by page: the next page begins when each send of the page has ended.
 *
 * The rows in PostgreSQL are the truth about a job and its sends: a send that succeeded is never made again, whatever
 * is replayed or reset. Histories hold ids only.
 */
import type { ActivityInterfaceFor } from '@temporalio/workflow';
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  TemporalFailure,
  continueAsNew,
  defineSignal,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { MobilePushActivities } from '../../activities/mobile-push/activities.ts';
import { MOBILE_PUSH_FAILED, MOBILE_SEND_BRAKED, MOBILE_SEND_FAILED } from '../failures.ts';
import type {
  MobilePushInput,
  MobilePushResult,
  MobileReplayRequest,
  MobileStatus,
  OpenOrder,
  SendFailureDetails,
  SendKey,
  SendResult,
  Settlement,
} from './contract.ts';
import { MOBILE_REPLAY_SIGNAL } from './contract.ts';
import { isHistoryLong } from '../long-lived.ts';
import { keyword } from '../search-attributes.ts';
import { DATABASE, FIRST_SEND, FIRST_TRY, REST_OF_BUDGET } from '../policies.ts';

const MAX_REQUESTED_BY = 200;

type Activities = ActivityInterfaceFor<MobilePushActivities>;

const firstTry = proxyLocalActivities<MobilePushActivities>(FIRST_TRY);
const firstSend = proxyLocalActivities<MobilePushActivities>(FIRST_SEND);
const durable = proxyActivities<MobilePushActivities>(DATABASE);
const persistent = proxyActivities<MobilePushActivities>(REST_OF_BUDGET);

/**
 * Sends one job to all devices of its user.
 *
 * @returns how it ended, when no device is left that a replay could reach.
 * @throws ApplicationFailure `MobilePushFailed` when there is one, so that the Failed filter of the Web UI is the list
 * of what can be replayed; CancelledFailure when an operator cancelled it, after what was not sent is written down.
 */
export async function mobilePush(input: MobilePushInput): Promise<MobilePushResult> {
  const { jobId } = input;
  const replays = listenForReplays(input);
  let { openedBy } = input;
  for (let opening = 0; ; opening += 1) {
    const end = await deliverJob(jobId, async (end) => {
      if (openedBy !== undefined) return sendJob({ jobId, openedBy }, replays, end);
      const { requestedBy, orderId = `${workflowInfo().runId}/${opening}` } = replays.next();
      return sendJob({ jobId, openedBy: orderId, requestedBy }, replays, end);
    });
    if (!isReplayable(end) || !replays.isOrdered()) return conclude(end);
    openedBy = undefined;
  }
}

/** What is known about the end of the sends, also when they are cancelled: by themselves, unless `stopCode` says otherwise. */
type SendsEnd = Omit<Settlement, 'jobId'>;
type End = SendsEnd & { outcome: MobilePushResult };

/** Makes the sends that the job still needs, then settles it by what its rows say. */
async function deliverJob(jobId: string, work: (end: SendsEnd) => Promise<void>): Promise<End> {
  const end: SendsEnd = {};
  let cancelled: Error | undefined;
  try {
    await work(end);
  } catch (error) {
    if (!isCancellation(error)) throw error;
    cancelled = error as Error;
    end.stopCode = 'cancelled';
  }
  const outcome = await CancellationScope.nonCancellable(() =>
    surely((activities) => activities.settleJob({ jobId, ...end })),
  );
  if (cancelled === undefined) return { ...end, outcome };
  leaveStatus(outcome);
  throw cancelled;
}

/**
 * Sends a job page by page. What a page has sent is not listed again.
 *
 * @throws ContinueAsNew when the history has become long; the next run goes on with the opening.
 */
async function sendJob(order: OpenOrder, replays: Replays, end: SendsEnd): Promise<void> {
  const { jobId, openedBy } = order;
  let page = await surely((activities) => activities.openJob(order));
  for (;;) {
    const { deviceTokenIds, hasMore, stopCode } = page;
    if (stopCode !== undefined) end.stopCode = stopCode;
    end.listed = Math.max(end.listed ?? 0, deviceTokenIds.length);
    await sendPage(jobId, deviceTokenIds);
    if (!hasMore) return;
    if (isHistoryLong() && !CancellationScope.current().consideredCancelled) {
      await continueAsNew<typeof mobilePush>({ jobId, openedBy, ...replays.next() });
    }
    page = await surely((activities) => activities.openJob({ jobId, openedBy }));
  }
}

/**
 * The sends of a page: all concurrently, each with its own attempts, until all are settled.
 *
 * @throws CancelledFailure when an operator cancelled the job; the sends are over all the same.
 */
async function sendPage(jobId: string, deviceTokenIds: string[]): Promise<void> {
  const made = await Promise.allSettled(
    deviceTokenIds.map((deviceTokenId) => sendTo({ jobId, deviceTokenId })),
  );
  const failure = made.find((send) => send.status === 'rejected');
  if (failure) throw failure.reason;
}

async function sendTo(key: SendKey): Promise<void> {
  const result = await sendUntilSettled(key);
  if (result.status === 'sent' && !result.isRecorded) {
    await CancellationScope.nonCancellable(() => durable.recordSent(key, result.messageId));
  }
}

/** The first attempt as local activity; the rest as a regular one, which shows attempts, last failure and next time. */
async function sendUntilSettled(key: SendKey): Promise<SendResult> {
  try {
    return await firstSend.sendToDevice(key);
  } catch (error) {
    if (isCancellation(error) || !(error instanceof TemporalFailure)) throw error;
    if (error instanceof ApplicationFailure && error.nonRetryable) throw error;
    const failure = sendFailureOf(error);
    markRetrying(failure?.code);
    // Without one it was PostgreSQL, a time-out, a worker that died: nothing was spent.
    if (failure !== undefined) {
      const next = `attempt ${failure.attempts + 1} of ${failure.maxAttempts}`;
      const summary = `before ${next} to device ${key.deviceTokenId}: ${failure.code}`;
      await sleep(Math.max(1, failure.retryInMs), { summary });
    }
    return persistent.sendToDevice(key);
  }
}

function sendFailureOf(error: TemporalFailure): SendFailureDetails | undefined {
  // A local activity fails with the cause itself, a regular one wraps it.
  const cause = error instanceof ActivityFailure ? error.cause : error;
  if (!(cause instanceof ApplicationFailure)) return undefined;
  const isSend = cause.type === MOBILE_SEND_FAILED || cause.type === MOBILE_SEND_BRAKED;
  return isSend ? (cause.details?.[0] as SendFailureDetails) : undefined;
}

/** Short work on the rows: immediately if possible, otherwise once PostgreSQL is back. */
async function surely<T>(work: (activities: Activities) => Promise<T>): Promise<T> {
  try {
    return await work(firstTry);
  } catch (error) {
    if (isCancellation(error)) throw error;
    return work(durable);
  }
}

/** Whether a replay could reach more devices: those that failed, or all of them. */
const isReplayable = ({ outcome, stopCode }: End): boolean => outcome.failed > 0 || stopCode !== undefined;

function conclude(end: End): MobilePushResult {
  const { outcome } = end;
  leaveStatus(outcome);
  if (!isReplayable(end)) return outcome;
  throw ApplicationFailure.nonRetryable(summaryOf(outcome), MOBILE_PUSH_FAILED, outcome);
}

const hasStatus = (): boolean =>
  workflowInfo().typedSearchAttributes.get({ name: 'MobileStatus', type: 'KEYWORD' }) !== undefined;

/** On the happy path no search attribute is changed, which would cost the server a second write. */
function leaveStatus(outcome: MobilePushResult): void {
  setCurrentDetails(summaryOf(outcome));
  if (outcome.status !== 'sent' || hasStatus()) setStatus(outcome.status, outcome.code);
}

function markRetrying(code?: string): void {
  if (!hasStatus()) setStatus('retrying', code);
}

function setStatus(value: MobileStatus | 'retrying', code?: string): void {
  upsertSearchAttributes([
    keyword('MobileStatus', value),
    ...(code === undefined ? [] : [keyword('FailureClassification', code)]),
  ]);
}

function summaryOf({ status, tokens, sent, removed, failed, code }: MobilePushResult): string {
  const why = code === undefined ? '' : `, the last: ${code}`;
  return `${status}: ${sent} of ${tokens} devices reached, ${removed} stale, ${failed} failed${why}`;
}

type Replays = ReturnType<typeof listenForReplays>;

/** @param input with a replay that the run before has left. */
function listenForReplays(input: MobileReplayRequest) {
  let replay: MobileReplayRequest = { requestedBy: input.requestedBy, orderId: input.orderId };
  setHandler(
    defineSignal<[unknown?]>(MOBILE_REPLAY_SIGNAL),
    (argument) => {
      // Signals come from anywhere: what is not as it should be is left out, never an error that would stop the job.
      const { requestedBy, orderId } = (argument ?? {}) as Record<string, unknown>;
      replay = { requestedBy: textOf(requestedBy) ?? 'signal', orderId: textOf(orderId) };
    },
    { description: 'Send again what failed, with a fresh budget. {requestedBy?}' },
  );
  return {
    isOrdered: () => replay.requestedBy !== undefined,
    next: (): MobileReplayRequest => {
      const given = replay;
      replay = {};
      return given;
    },
  };
}

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value.slice(0, MAX_REQUESTED_BY) : undefined;
