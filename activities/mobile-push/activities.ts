/**
 * The steps of a mobile push job. Owns the SQL of a job's life, of its
 * sends, and of the other service's device tokens.
 *
 * A send is load, ask FCM, write down; a crash may come between any two of them. What is written down is never sent
 * again. Where an answer was lost the device gets the push again, with the same push id, by which it can tell.
 */
import { createHash } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { MOBILE_SEND_BRAKED, MOBILE_SEND_FAILED } from '../../workflows/failures.ts';
import type {
  MobilePushOutcome,
  OpenOrder,
  OpenSends,
  SendFailureDetails,
  SendKey,
  SendResult,
  Settlement,
} from '../../workflows/mobile-push/contract.ts';
import type { FcmSender } from './fcm.ts';
import type { FcmFailure } from './fcm-outcome.ts';
import type { MobilePushMetrics } from './metrics.ts';
import type { MobileMessage } from './message.ts';
import { mobileMessage } from './message.ts';
import type { OpenedRow, PendingSend, SendRow, SettledRow, SuspectRow } from './rows.ts';
import {
  COUNT_FAILURE,
  DELETE_SUSPECTED_TOKEN,
  DELETE_TOKEN,
  END_SEND,
  LIST_SENDS,
  LIST_SUSPECTS,
  LOAD_SEND,
  MARK_SENT,
  OPEN_JOB,
  SETTLE_JOB,
} from './rows.ts';
import type { Statement } from '../postgres.ts';
import { isPostgresAway, isPostgresRefusal, query } from '../postgres.ts';

/** Of the service's own credential; `third-party-auth-error` is about Apple's, and so about some devices only. */
const CREDENTIAL_REFUSED = 'messaging/authentication-error';

/** Sends of one job that are under way concurrently. Few users have more than a handful of devices. */
const SENDS_PER_PAGE = 100;

export interface MobilePushResources {
  db: Pool;
  log: Logger;
  metrics: MobilePushMetrics;
  fcm: Pick<FcmSender, 'send'>;
  mobile: {
    /** Attempts of one send in total. */
    sendAttempts: number;
    /** Between two attempts when FCM does not say when, ms. */
    sendIntervalMs: number;
  };
}

export type MobilePushActivities = ReturnType<typeof createMobilePushActivities>;

export function createMobilePushActivities(resources: MobilePushResources) {
  const { db, log, metrics, fcm, mobile: settings } = resources;

  return {
    /**
     * Begins a run: lists what it has to send. Each order gives what failed before a fresh budget, once.
     *
     * @throws ApplicationFailure `MobileJobNotFound`, not retried; of PostgreSQL.
     */
    async openJob({ jobId, openedBy, requestedBy }: OpenOrder): Promise<OpenSends> {
      const [job] = await query<OpenedRow>(db, OPEN_JOB, [jobId, openedBy]);
      if (!job) {
        throw ApplicationFailure.nonRetryable(`there is no mobile job ${jobId}`, 'MobileJobNotFound');
      }
      if (requestedBy !== undefined) {
        log.info({ job_id: jobId, requested_by: requestedBy }, 'mobile job is replayed');
      }
      // Nothing is left to show, so nothing is left to do.
      if (!job.has_content) return { deviceTokenIds: [], hasMore: false };
      const sends = await query<{ device_token_id: string }>(db, LIST_SENDS, [
        jobId,
        job.user_id,
        SENDS_PER_PAGE + 1,
      ]);
      return {
        deviceTokenIds: sends.slice(0, SENDS_PER_PAGE).map((send) => send.device_token_id),
        hasMore: sends.length > SENDS_PER_PAGE,
        hasSuspects: job.has_suspects,
      };
    },

    /**
     * Makes one attempt to send a job to one device; none when the send has ended before.
     *
     * @throws ApplicationFailure `MobileSendFailed` or `MobileSendBraked` with `SendFailureDetails` while the send has
     * budget left; of PostgreSQL; none of these after FCM took the push.
     */
    async sendToDevice(key: SendKey): Promise<SendResult> {
      const send = await loadSend(key);
      if (send.status === 'sent') return { status: 'sent', messageId: send.message_id, isRecorded: true };
      if (send.status !== 'pending') return { status: send.status };
      // The owner of the tokens has deleted it, or given it to another user.
      if (send.token === null) return end(send, 'removed', 'token_gone');
      const message = mobileMessage(send.content, send.push_id);
      // Checked at intake already; a release may have come between that is stricter.
      if ('problem' in message) return end(send, 'failed', 'invalid_message', message.problem);
      return attempt(send, message.message, send.token);
    },

    /** Writes down a success that could not be written down when it came. @throws ApplicationFailure of PostgreSQL. */
    recordSent: markSent,

    /**
     * Decides about tokens that FCM refused together with the payload: it was the token if the same payload passed for
     * another device of the job.
     *
     * @throws ApplicationFailure of PostgreSQL.
     */
    async judgeSuspects(jobId: string): Promise<void> {
      const suspects = await query<SuspectRow>(db, LIST_SUSPECTS, [jobId]);
      for (const suspect of suspects) {
        const { device_token_id, token_sha256, passed_elsewhere } = suspect;
        const send = { job_id: jobId, device_token_id };
        // One that is gone may have been deleted by an attempt that did not come to say so; one that has changed since
        // is another token, which a replay may reach.
        const isStale =
          passed_elsewhere && (await deleteToken(DELETE_SUSPECTED_TOKEN, device_token_id, token_sha256));
        await end(send, isStale ? 'removed' : 'failed', suspect.last_code);
      }
    },

    /**
     * Gives a job its final status by what its sends say. Sends that were not made count as failed.
     *
     * @throws ApplicationFailure of PostgreSQL.
     */
    async settleJob({ jobId, stopCode }: Settlement): Promise<MobilePushOutcome> {
      const [settled] = await query<SettledRow>(db, SETTLE_JOB, [jobId, stopCode ?? null]);
      if (!settled) {
        throw ApplicationFailure.nonRetryable(`there is no mobile job ${jobId}`, 'MobileJobNotFound');
      }
      const { code, ...totals } = settled;
      const outcome: MobilePushOutcome = { ...totals, ...(code === null ? {} : { code }) };
      metrics.mobileJob({ status: outcome.status });
      log.info({ job_id: jobId, ...outcome }, 'mobile job settled');
      return outcome;
    },
  };

  async function loadSend({ jobId, deviceTokenId }: SendKey): Promise<SendRow> {
    // Twice: once as text, once of whatever type the other service's ids are.
    const [send] = await query<SendRow>(db, LOAD_SEND, [jobId, deviceTokenId, deviceTokenId]);
    if (send) return send;
    throw ApplicationFailure.nonRetryable(
      `mobile job ${jobId} has no send to device ${deviceTokenId}`,
      'MobileSendNotFound',
    );
  }

  async function attempt(send: PendingSend, message: MobileMessage, token: string): Promise<SendResult> {
    const answer = await fcm.send(message, token);
    switch (answer.outcome) {
      case 'sent':
        return took(send, answer.messageId);
      case 'braked':
        metrics.mobileSend({ result: 'braked', code: 'braked' });
        throw notYet(MOBILE_SEND_BRAKED, send, 'braked', answer.retryInMs);
      case 'remove':
        return remove(send, answer, token);
      case 'payload_suspect':
        await writeDown(send, 'suspect', answer.code, sha256(token));
        log.warn(
          { ...logFields(send), code: answer.code, reason: answer.reason },
          'mobile payload suspected',
        );
        metrics.mobileSend({ result: 'suspect', code: answer.code });
        return { status: 'suspect' };
      case 'fatal':
        return refuse(send, answer);
      case 'retry':
        return retry(send, answer, answer.retryAfterMs);
    }
  }

  /** From here on nothing may make the attempt look failed: it would be repeated. */
  async function took(send: PendingSend, messageId: string): Promise<SendResult> {
    metrics.mobileSend({ result: 'sent', code: 'none' });
    log.debug({ ...logFields(send), message_id: messageId, push_id: send.push_id }, 'mobile push sent');
    try {
      await markSent({ jobId: send.job_id, deviceTokenId: send.device_token_id }, messageId);
    } catch (error) {
      if (!isPostgresAway(error) && !isPostgresRefusal(error)) throw error;
      return { status: 'sent', messageId, isRecorded: false };
    }
    return { status: 'sent', messageId, isRecorded: true };
  }

  async function markSent({ jobId, deviceTokenId }: SendKey, messageId: string): Promise<void> {
    await query(db, MARK_SENT, [jobId, deviceTokenId, messageId]);
  }

  /** Deletes the token, unless the device has registered another one since it was read. */
  async function remove(send: PendingSend, { code, reason }: FcmFailure, token: string): Promise<SendResult> {
    if (!(await deleteToken(DELETE_TOKEN, send.device_token_id, token))) {
      return retry(send, { code, reason: `${reason}; the device has another token by now` });
    }
    return end(send, 'removed', code, reason);
  }

  /** @returns whether it is gone; false when the device has another one by now, which stays. */
  async function deleteToken(deletion: Statement, deviceTokenId: string, token: string): Promise<boolean> {
    const [row] = await query<{ is_changed: boolean }>(db, deletion, [deviceTokenId, token]);
    return !row?.is_changed;
  }

  async function refuse(send: PendingSend, { code, reason }: FcmFailure): Promise<SendResult> {
    log.error(
      { event: 'notifications.fcm_fatal', ...logFields(send), code, reason },
      'FCM or APNs refuses our credential; an operator must mend it, then replay the job',
    );
    const result = await end(send, 'failed', code, reason);
    return code === CREDENTIAL_REFUSED ? { status: 'credential_refused', code } : result;
  }

  async function retry(
    send: PendingSend,
    { code, reason }: Pick<FcmFailure, 'code' | 'reason'>,
    retryAfterMs = settings.sendIntervalMs,
  ): Promise<SendResult> {
    const attempts = send.attempts + 1;
    const { sendAttempts: maxAttempts } = settings;
    if (attempts >= maxAttempts) {
      log.error(
        { event: 'notifications.max_retries', ...logFields(send), code, reason, attempts },
        'mobile push given up for this device; the job can be replayed',
      );
      metrics.mobileMaxRetries({ what: 'send' });
      return end(send, 'failed', code, reason);
    }
    await query(db, COUNT_FAILURE, [send.job_id, send.device_token_id, code]);
    metrics.mobileSend({ result: 'retry', code });
    log.warn(
      { ...logFields(send), code, reason, attempts, max_attempts: maxAttempts, retry_in_ms: retryAfterMs },
      'mobile push not taken, retry scheduled',
    );
    throw notYet(MOBILE_SEND_FAILED, { ...send, attempts }, code, retryAfterMs);
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

  async function end(
    send: Pick<PendingSend, 'job_id' | 'device_token_id'>,
    status: 'removed' | 'failed',
    code: string,
    reason?: string,
  ): Promise<{ status: 'removed' | 'failed' }> {
    await writeDown(send, status, code);
    metrics.mobileSend({ result: status, code });
    const fields = { ...logFields(send), code, ...(reason === undefined ? {} : { reason }) };
    if (status === 'removed') log.info(fields, 'stale device token is gone');
    else log.warn(fields, 'mobile push failed');
    return { status };
  }

  async function writeDown(
    { job_id, device_token_id }: Pick<PendingSend, 'job_id' | 'device_token_id'>,
    status: 'removed' | 'failed' | 'suspect',
    code: string,
    tokenHash: string | null = null,
  ): Promise<void> {
    await query(db, END_SEND, [job_id, device_token_id, status, code, tokenHash]);
  }
}

/** Ids only. */
const logFields = (send: { job_id: string; device_token_id: string }) => ({
  job_id: send.job_id,
  device_token_id: send.device_token_id,
});

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
