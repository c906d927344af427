/**
 * The steps of a mobile push job. Owns the SQL of a job's life, of its
 * sends, and of the other service's device tokens.
 *
 * A send is load, lease, ask FCM, write down; a crash may come between any two of them. What FCM has taken is written down
 * in the row and in Redis at the same time, and in the result; what one of them has is never sent again. Where an answer was
 * lost the device gets the push again, with the same push id, by which it can tell.
 */
import { randomUUID } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { MOBILE_SEND_BRAKED, MOBILE_SEND_DEFERRED, MOBILE_SEND_FAILED } from '../../workflows/failures.ts';
import type {
  MobilePushResult,
  OpenOrder,
  OpenSends,
  SendFailureDetails,
  SendKey,
  SendResult,
  Settlement,
} from '../../workflows/mobile-push/contract.ts';
import type { FcmSender } from './fcm.ts';
import type { FcmFailure } from './fcm-result.ts';
import type { MobilePushMetrics } from './metrics.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';
import { mobileMessage } from '../../api/mobile-push/message.ts';
import type { ListedRow, OpenedRow, PendingSend, SendRow, SettledRow } from './rows.ts';
import {
  COUNT_FAILURE,
  DELETE_TOKEN,
  EXPIRED,
  END_SEND,
  FIND_TOKEN,
  LIST_SENDS,
  LOAD_SEND,
  MARK_SENT,
  OPEN_JOB,
  SETTLE_JOB,
} from './rows.ts';
import { isPostgresAway, isPostgresRefusal, query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';

/** Sends of a job that are under way concurrently. Few users have more than a handful of devices. */
const SENDS_PER_PAGE = 100;
/** Rows of one statement, however many devices a user has. */
const BATCH_SIZE = 1_000;
/** The code of a send that the brake held up. */
const BRAKED = 'braked';

export interface MobilePushResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: MobilePushMetrics;
  fcm: Pick<FcmSender, 'send'>;
  mobile: {
    /** Attempts of one send in total. */
    sendAttempts: number;
    /** Between two attempts when FCM does not say when, ms. */
    attemptIntervalMs: number;
  };
}

export type MobilePushActivities = ReturnType<typeof createMobilePushActivities>;

export function createMobilePushActivities(resources: MobilePushResources) {
  const { db, log, metrics, fcm, mobile: settings } = resources;
  const memory = createSendMemory(resources);

  return {
    /**
     * Begins a run, or its next page: lists what is to be sent. Each order gives what failed before a fresh budget, once.
     *
     * @throws ApplicationFailure `MobileJobNotFound`, not retried; of PostgreSQL.
     */
    async openJob({ jobId, openedBy, requestedBy }: OpenOrder): Promise<OpenSends> {
      let job: OpenedRow | undefined;
      do [job] = await query<OpenedRow>(db, OPEN_JOB, [jobId, openedBy, BATCH_SIZE]);
      while (job?.afresh === BATCH_SIZE);
      if (!job) {
        throw ApplicationFailure.nonRetryable(`there is no mobile job ${jobId}`, 'MobileJobNotFound');
      }
      if (requestedBy !== undefined) {
        log.info({ job_id: jobId, requested_by: requestedBy }, 'mobile job is replayed');
      }
      // Nothing is left to show, so nothing is left to do.
      if (!job.has_content) return { deviceTokenIds: [], hasMore: false };
      try {
        const values = [jobId, job.user_id, BATCH_SIZE, SENDS_PER_PAGE + 1];
        const [listed] = await query<ListedRow>(db, LIST_SENDS, values);
        const { devices, pending } = listed!;
        return {
          deviceTokenIds: pending.slice(0, SENDS_PER_PAGE),
          hasMore: pending.length > SENDS_PER_PAGE || devices === BATCH_SIZE,
        };
      } catch (error) {
        if (!isPostgresRefusal(error)) throw error;
        log.error(
          { job_id: jobId, reason: error.message },
          'the table of device tokens takes no such user id',
        );
        return { deviceTokenIds: [], hasMore: false, stopCode: 'user_id_refused' };
      }
    },

    /**
     * Makes one attempt to send a job to one device; none when the send has ended before.
     *
     * @throws ApplicationFailure `MobileSendFailed` or `MobileSendBraked` with `SendFailureDetails` while the send has
     * budget left; `MobileSendDeferred` while Redis does not answer or another attempt is at it; of PostgreSQL; none of these
     * after FCM took the push.
     */
    sendToDevice,

    /** Writes down a success that could not be written down when it came. @throws ApplicationFailure of PostgreSQL. */
    recordSent: markSent,

    /**
     * Gives a job its final status by what its sends say. Sends that were not made count as failed.
     *
     * @throws ApplicationFailure `MobileJobForgotten`, not retried, when rows of the job are gone: PostgreSQL was put back.
     * Its row is pending then, or missing, and reconciliation takes it up. Of PostgreSQL.
     */
    async settleJob({ jobId, stopCode, listed = 0 }: Settlement): Promise<MobilePushResult> {
      const values = [jobId, stopCode ?? null, BATCH_SIZE, listed];
      let settled: SettledRow | undefined;
      do [settled] = await query<SettledRow>(db, SETTLE_JOB, values);
      while (settled?.not_made === BATCH_SIZE);
      if (!settled) {
        throw ApplicationFailure.nonRetryable(
          `PostgreSQL has forgotten mobile job ${jobId} or some of its sends; it is taken up again`,
          'MobileJobForgotten',
        );
      }
      const { code, not_made: _, ...totals } = settled;
      const outcome: MobilePushResult = { ...totals, ...(code === null ? {} : { code }) };
      metrics.mobileJob({ status: outcome.status });
      log.info({ job_id: jobId, ...outcome }, 'mobile job settled');
      return outcome;
    },
  };

  async function sendToDevice(key: SendKey): Promise<SendResult> {
    const send = await loadSend(key);
    if (send.status === 'sent') return { status: 'sent', messageId: send.messageId, isRecorded: true };
    if (send.status !== 'pending') return { status: send.status };
    const claim = await claimOf(send);
    if ('messageId' in claim) {
      const { messageId } = claim;
      await markSent(key, messageId);
      metrics.mobileSend({ result: 'remembered', code: 'none' });
      log.info({ ...logFields(send), push_id: send.pushId }, 'FCM has this push already');
      return { status: 'sent', messageId, isRecorded: true };
    }
    if ('leasedForMs' in claim) throw deferred('another attempt is at it', claim.leasedForMs);
    try {
      return await sendLeased(send, claim.lease);
    } finally {
      claim.lease.release();
    }
  }

  async function sendLeased(send: SendRow, lease: SendLease): Promise<SendResult> {
    // Of the types that these columns have, like the statement that has listed it.
    const [device] = await query<{ token: string }>(db, FIND_TOKEN, [send.deviceTokenId, send.userId]);
    // Its owner has deleted it, or given it to another user.
    if (!device) return endSend(send, 'removed', 'token_gone');
    const { expiresAtMs = Infinity } = send.content;
    // One clock may be wrong, and a late push is better than a lost one: both must say that it is too late.
    const now = Math.min(Date.now(), send.nowMs);
    if (now >= expiresAtMs) return endSend(send, 'failed', EXPIRED, 'the push has expired');
    const message = mobileMessage(send.content, send.pushId, now);
    // Checked at intake already; a release may have come between that is stricter.
    if ('problem' in message) return endSend(send, 'failed', 'invalid_message', message.problem);
    if (lease.isLate()) throw deferred('this process did not get to it in time');
    return askFcm(send, message.message, device.token);
  }

  async function loadSend({ jobId, deviceTokenId }: SendKey): Promise<SendRow> {
    const [send] = await query<SendRow>(db, LOAD_SEND, [jobId, deviceTokenId]);
    if (send) return send;
    throw ApplicationFailure.nonRetryable(
      `mobile job ${jobId} has no send to device ${deviceTokenId}`,
      'MobileSendNotFound',
    );
  }

  /** A process that cannot know whether FCM has a push already does not send it. */
  async function claimOf({ pushId }: PendingSend): Promise<Claim> {
    try {
      return await memory.claim(pushId);
    } catch (error) {
      throw deferred(`Redis does not say whether FCM has this push: ${reasonOf(error)}`);
    }
  }

  function deferred(reason: string, retryInMs?: number): ApplicationFailure {
    return ApplicationFailure.create({
      type: MOBILE_SEND_DEFERRED,
      message: `nothing was sent or spent: ${reason}`,
      ...(retryInMs === undefined ? {} : { nextRetryDelay: retryInMs }),
    });
  }

  async function askFcm(send: PendingSend, message: MobileMessage, token: string): Promise<SendResult> {
    const answer = await fcm.send(message, token);
    switch (answer.outcome) {
      case 'sent':
        return recordTaken(send, answer.messageId);
      case 'braked':
        metrics.mobileSend({ result: 'braked', code: 'braked' });
        throw notYet(MOBILE_SEND_BRAKED, send, BRAKED, answer.retryInMs);
      case 'remove':
        return removeToken(send, answer, token);
      case 'refused':
        return endSend(send, 'failed', answer.code, answer.reason);
      case 'fatal':
      case 'retry':
        return scheduleRetry(send, answer);
    }
  }

  /** From here on nothing may make the attempt look failed: it would be repeated. */
  async function recordTaken(send: PendingSend, messageId: string): Promise<SendResult> {
    metrics.mobileSend({ result: 'sent', code: 'none' });
    log.debug({ ...logFields(send), message_id: messageId, push_id: send.pushId }, 'mobile push sent');
    memory.remember(send.pushId, messageId);
    try {
      await markSent(send, messageId);
    } catch (error) {
      if (!isPostgresAway(error) && !isPostgresRefusal(error)) throw error;
      return { status: 'sent', messageId, isRecorded: false };
    }
    return { status: 'sent', messageId, isRecorded: true };
  }

  async function markSent({ jobId, deviceTokenId }: SendKey, messageId: string): Promise<void> {
    const [marked] = await query<{ pushId: string }>(db, MARK_SENT, [jobId, deviceTokenId, messageId]);
    if (marked) memory.recorded(marked.pushId);
  }

  /** Deletes the token, unless the device has registered another one since it was read. */
  async function removeToken(
    send: PendingSend,
    { code, reason }: FcmFailure,
    token: string,
  ): Promise<SendResult> {
    const [row] = await query<{ is_changed: boolean }>(db, DELETE_TOKEN, [send.deviceTokenId, token]);
    if (row?.is_changed) {
      return scheduleRetry(send, {
        outcome: 'retry',
        code,
        reason: `${reason}; the device has another token by now`,
      });
    }
    return endSend(send, 'removed', code, reason);
  }

  /** FCM may ask for a later attempt, not for a sooner one. */
  async function scheduleRetry(
    send: PendingSend,
    { outcome, code, reason, retryAfterMs = 0 }: FcmFailure,
  ): Promise<SendResult> {
    const attempts = send.attempts + 1;
    const { sendAttempts: maxAttempts, attemptIntervalMs } = settings;
    const fields = { ...logFields(send), code, reason, attempts };
    if (outcome === 'fatal') {
      log.error(
        { event: 'notifications.fcm_fatal', ...fields },
        'FCM or APNs refuses our credential; unless that passes, an operator must renew it and replay the job',
      );
    }
    if (attempts >= maxAttempts) {
      log.error(
        { event: 'notifications.max_retries', ...fields },
        'mobile push given up for this device; the job can be replayed',
      );
      metrics.mobileMaxRetries({ what: 'send' });
      return endSend(send, 'failed', code, reason);
    }
    const retryInMs = Math.max(attemptIntervalMs, retryAfterMs);
    await query(db, COUNT_FAILURE, [send.jobId, send.deviceTokenId, code, retryInMs]);
    metrics.mobileSend({ result: 'retry', code });
    log.warn(
      { ...fields, max_attempts: maxAttempts, retry_in_ms: retryInMs },
      'mobile push not taken, retry scheduled',
    );
    throw notYet(MOBILE_SEND_FAILED, { ...send, attempts }, code, retryInMs);
  }

  function notYet(type: string, { attempts }: PendingSend, code: string, retryInMs: number) {
    const { sendAttempts: maxAttempts } = settings;
    const details: SendFailureDetails = { code, attempts, maxAttempts, retryInMs };
    return ApplicationFailure.create({
      type,
      message: `${attempts} of ${maxAttempts} attempts spent: ${code}`,
      details: [details],
      // Temporal takes 0 as not given.
      nextRetryDelay: Math.max(1, retryInMs),
    });
  }

  async function endSend(
    send: SendKey,
    status: 'removed' | 'failed',
    code: string,
    reason?: string,
  ): Promise<{ status: 'removed' | 'failed' }> {
    await query(db, END_SEND, [send.jobId, send.deviceTokenId, status, code]);
    metrics.mobileSend({ result: status, code });
    const fields = { ...logFields(send), code, ...(reason === undefined ? {} : { reason }) };
    if (status === 'removed') log.info(fields, 'stale device token is gone');
    else log.warn(fields, 'mobile push failed');
    return { status };
  }
}

/** Ids only. */
const logFields = ({ jobId, deviceTokenId }: SendKey) => ({ job_id: jobId, device_token_id: deviceTokenId });

// --- Memory in Redis ----------------------------------------------------------------------------------------------------
//
// What FCM has taken, and which pushes are on their way to it. The row of a send says the first too, and so does Temporal
// once the activity has ended; while PostgreSQL is away, a process that dies takes away what neither of them has
// heard. So it is written down here as soon as FCM has answered, and looked for before FCM is asked. An entry is a push id
// and FCM's name of the message.
//
// The process that asks FCM holds the push's lease. Temporal gives an attempt to another process when the first has been
// silent for some seconds, which a process does that gets no CPU: it may have asked FCM all the same.

/**
 * Until the row says so, PostgreSQL may be away for any time; what a process leaves behind that dies right after the row
 * was written goes in the end. And afterwards, for a PostgreSQL that is put back to a moment ago.
 */
const UNRECORDED_MS = 366 * 24 * 3_600_000;
const RECORDED_MS = 600_000;

/** Lease of a push. If its process dies, the push waits this long. */
const LEASE_MS = 20_000;
/** A process that has not asked FCM by then gives up: FCM's answer, which takes up to 10 s, might come after the lease. */
const LATE_AFTER_MS = 5_000;

const keyOf = (pushId: string): string => `notification:mobile_sends:${pushId}`;
const leaseOf = (pushId: string): string => `${keyOf(pushId)}:lease`;

/** KEYS: memory, lease. ARGV: token, lease ms. Returns what FCM named the push, or how long another holds its lease, ms. */
const CLAIM = `
  local taken = redis.call('GET', KEYS[1])
  if taken then return {taken, 0} end
  if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return {'', 0} end
  return {'', math.max(1, redis.call('PTTL', KEYS[2]))}`;

/** KEYS: lease. ARGV: token. */
const RELEASE = `if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end`;

interface SendLease {
  /** Whether it is too late to ask FCM. */
  isLate(): boolean;
  /** Gives the push back, without waiting for Redis: an unreleased lease expires by itself. */
  release(): void;
}

/** What an attempt finds: FCM has the push, another attempt is at it, or it has the push for itself. */
type Claim = { messageId: string } | { leasedForMs: number } | { lease: SendLease };

function createSendMemory({ redis, log }: { redis: Redis; log: Logger }) {
  return {
    /** @throws the Redis client's error when Redis did not answer. */
    async claim(pushId: string): Promise<Claim> {
      const token = randomUUID();
      const begunAt = performance.now();
      const [key, lease] = [keyOf(pushId), leaseOf(pushId)];
      const claimed = await redis.eval(CLAIM, 2, key, lease, token, LEASE_MS);
      const [messageId, leasedForMs] = claimed as [string, number];
      if (messageId !== '') return { messageId };
      // Never longer than our leases last, even if the key holds another expiry.
      if (leasedForMs > 0) return { leasedForMs: Math.min(LEASE_MS, leasedForMs) };
      return {
        lease: {
          isLate: () => performance.now() - begunAt > LATE_AFTER_MS,
          release: () => void redis.eval(RELEASE, 1, lease, token).catch(noteFailure),
        },
      };
    },

    /** Writes down that FCM has taken a push. The caller does not wait: the row is written at the same time, and is enough. */
    remember(pushId: string, messageId: string): void {
      redis.set(keyOf(pushId), messageId, 'PX', UNRECORDED_MS).catch(noteFailure);
    },

    /** The row says it now. */
    recorded(pushId: string): void {
      redis.pexpire(keyOf(pushId), RECORDED_MS).catch(noteFailure);
    },
  };

  function noteFailure(error: unknown): void {
    log.debug({ reason: reasonOf(error) }, 'Redis did not write down what FCM has taken');
  }
}
