/**
 * A round of a job that has more devices than are steered one by one. The rows say what is due and when; a round keeps
 * no more in memory than it has under way.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import { MOBILE_SEND_BRAKED, MOBILE_SEND_FAILED } from '../../workflows/failures.ts';
import type {
  SendFailureDetails,
  SendKey,
  SendResult,
  SendRound,
} from '../../workflows/mobile-push/contract.ts';
import { query } from '../postgres.ts';
import { CLAIM_SENDS, NEXT_DUE, POSTPONE_SEND } from './rows.ts';

/** Attempts under way concurrently: less than half of the connections to FCM, so that other jobs get theirs. */
const SLOTS = 20;
/** Longer than an attempt can take: the claims of a dead process are due again then, and no process sends them before. */
const CLAIM_MS = 60_000;
/** The code of a send that the brake held up. */
export const BRAKED = 'braked';

interface RoundOptions {
  db: Pool;
  jobId: string;
  send(key: SendKey): Promise<SendResult>;
  /** Of a cancellation, or of a process that stops: what is under way is finished, and nothing more is begun. */
  signal: AbortSignal;
  roundMs: number;
}

/** @throws ApplicationFailure `PostgresUnavailable`, unless FCM took a push that only the result can tell of. */
export async function runRound({ db, jobId, send, signal, roundMs }: RoundOptions): Promise<SendRound> {
  const endsAt = performance.now() + roundMs;
  const round: SendRound = { unrecorded: [] };
  let claimed: string[] = [];
  let claiming: Promise<void> | undefined;
  let failure = undefined as Error | undefined;
  let isOver = false;

  await Promise.all(Array.from({ length: SLOTS }, work));
  if (failure !== undefined && round.unrecorded.length === 0) throw failure;
  // What was not found out is looked for by the next round.
  const dueInMs = failure === undefined ? await nextDueInMs() : 0;
  return dueInMs === undefined ? round : { ...round, dueInMs };

  /** One slot. */
  async function work(): Promise<void> {
    try {
      for (let id = await takeClaimed(); id !== undefined; id = await takeClaimed()) await attemptSend(id);
    } catch (error) {
      failure ??= error as Error;
      isOver = true;
    }
  }

  async function takeClaimed(): Promise<string | undefined> {
    while (claimed.length === 0 && !isOver && !signal.aborted) {
      claiming ??= claimDue().finally(() => (claiming = undefined));
      await claiming;
    }
    return isOver || signal.aborted ? undefined : claimed.shift();
  }

  /** Claims what is due, or waits until something is. */
  async function claimDue(): Promise<void> {
    if (performance.now() < endsAt) {
      const rows = await query<{ device_token_id: string }>(db, CLAIM_SENDS, [jobId, CLAIM_MS, SLOTS]);
      claimed = rows.map((row) => row.device_token_id);
      if (claimed.length > 0) return;
      const dueInMs = await nextDueInMs();
      if (dueInMs !== undefined && performance.now() + dueInMs < endsAt) {
        await sleep(Math.max(1, dueInMs), undefined, { signal }).catch(() => undefined);
        return;
      }
    }
    isOver = true;
  }

  async function attemptSend(deviceTokenId: string): Promise<void> {
    const key = { jobId, deviceTokenId };
    try {
      const result = await send(key);
      if (result.status === 'sent' && !result.isRecorded) {
        round.unrecorded.push({ deviceTokenId, messageId: result.messageId });
      }
    } catch (error) {
      const later = laterOf(error);
      if (later === undefined) throw error;
      round.code = later.code;
      // A brake holds all sends up: to claim more would only postpone each of them.
      if (later.code === BRAKED) isOver = true;
      await query(db, POSTPONE_SEND, [jobId, deviceTokenId, later.retryInMs]);
    }
  }

  async function nextDueInMs(): Promise<number | undefined> {
    const [row] = await query<{ due_in_ms: number | null }>(db, NEXT_DUE, [jobId]);
    return row!.due_in_ms === null ? undefined : Math.max(0, row!.due_in_ms);
  }
}

/** When a send that did not succeed is to be tried again; undefined for any other error. */
function laterOf(error: unknown): SendFailureDetails | undefined {
  if (!(error instanceof ApplicationFailure)) return undefined;
  const isSend = error.type === MOBILE_SEND_FAILED || error.type === MOBILE_SEND_BRAKED;
  return isSend ? (error.details?.[0] as SendFailureDetails) : undefined;
}
