/**
 * Sends to Firebase Cloud Messaging (HTTP v1), one request for each message and token, as the service account of
 * firebase-admin. The SDK's own `send()` repeats a request up to four times without a word, and takes no signal: the workflow
 * counts attempts and spaces them.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import type { Credential, ServiceAccount } from 'firebase-admin/app';
import { cert } from 'firebase-admin/app';
import { z } from 'zod';
import { createHttpCaller, readText } from '../http/caller.ts';
import { reasonOf } from '../reason.ts';
import type { FcmAnswer, FcmFailure } from './fcm-result.ts';
import {
  AccessTokenError,
  DEVICE_QUOTA_EXCEEDED,
  MISMATCHED,
  QUOTA_EXCEEDED,
  failureOf,
  failureWithoutAnswer,
} from './fcm-result.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';
import { jsonIn } from '../../api/text.ts';

const FCM_URL = 'https://fcm.googleapis.com';
const DEFAULT_TIMEOUT_MS = 10_000;
const DEFAULT_MAX_SOCKETS = 50;
const DEFAULT_BRAKE_MS = 60_000;
/** Google's front ends drop idle connections after some minutes without a word; ours go first. */
const IDLE_SOCKET_MS = 60_000;

/** FCM's answers have a few KiB. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** Tokens of another project that are deleted for each push that FCM takes: without any the credential was swapped. */
const MOST_MISMATCHES = 10;

interface Sent {
  outcome: 'sent';
  messageId: string;
}

/** What became of a send. */
export type FcmResult =
  | Sent
  /** The project's brake holds: nothing was sent, and no attempt was made. */
  | { outcome: 'braked'; retryInMs: number }
  | (FcmFailure & { outcome: Exclude<FcmFailure['outcome'], 'suspect'> });

export type FcmSender = ReturnType<typeof createFcmSender>;

/** Where to send to, and as whom. */
export type FcmTarget =
  /** Google, as the service account of this JSON file (GOOGLE_APPLICATION_CREDENTIALS), to that account's project. */
  | { credentialsFile: string }
  /** A server that speaks FCM's protocol, such as `dev/stand-ins/mobile-push/fcm.ts`; with an access token that means nothing. */
  | {
      /** `https://host:port`. */
      endpoint: string;
      /** The authority of its certificate; default: those that Node knows. */
      caPem?: string;
      projectId?: string;
    };

export interface FcmSenderOptions {
  target: FcmTarget;
  /** For the whole exchange, ms: access token, waiting for a socket, connecting, answer. Default 10,000. */
  timeoutMs?: number;
  /** Most connections that are open concurrently; further sends wait for one. Default 50. */
  maxSockets?: number;
  /** How long all sends wait at least after a 429, ms. Default 60,000, for which FCM asks. */
  brakeMs?: number;
}

/**
 * Holds all sends up. FCM's quota belongs to the project: a message that is sent after a 429 takes from the others' quota,
 * and lengthens the time until FCM takes any.
 *
 * @param minMs what a hold lasts at least. Its clock is `performance.now()`, which never goes back.
 */
export function createBrake(minMs: number) {
  let until = 0;
  let lengthMs = 0;
  /** How long it still holds, ms; 0 when it does not. */
  const remainingMs = (now = performance.now()): number => Math.max(0, Math.ceil(until - now));
  return {
    remainingMs,

    /**
     * When a send that is held up may come back, ms. Spread over half the length of the hold behind its end, few at first and
     * more later, so that not all come in the same instant and meet the next 429. 0 when nothing is held up.
     */
    comeBackMs(now?: number): number {
      const remaining = remainingMs(now);
      // The square root makes the number that comes back grow evenly over the time.
      return remaining === 0 ? 0 : remaining + Math.ceil((lengthMs / 2) * Math.sqrt(Math.random()));
    },

    /** Holds for `ms` from now, or the least time if that is longer; never shortens an earlier hold. */
    hold(ms: number, now = performance.now()): void {
      const length = Math.max(minMs, ms);
      if (now + length <= until) return;
      until = now + length;
      lengthMs = length;
    },
  };
}

/** @throws Error when the file of the service account, or the authority, cannot be used. */
export function createFcmSender(options: FcmSenderOptions) {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, maxSockets = DEFAULT_MAX_SOCKETS } = options;
  const { brakeMs = DEFAULT_BRAKE_MS } = options;
  const brake = createBrake(brakeMs);
  let target = openTarget(options.target);
  const caller = createHttpCaller(target, IDLE_SOCKET_MS, maxSockets);
  let credential = openCredential(target.account);
  const closing = new AbortController();
  /** How many tokens of another project may still be deleted; none before FCM has taken a push. */
  let deletable = 0;

  return {
    /**
     * One push at most; when FCM does not say whether token or payload is at fault, a check of the token follows it. Never
     * rejects: whatever goes wrong is an outcome.
     */
    async send(message: MobileMessage, token: string): Promise<FcmResult> {
      const retryInMs = brake.comeBackMs();
      if (retryInMs > 0) return { outcome: 'braked', retryInMs };
      // FCM would call it a bad message.
      if (token === '') {
        return {
          outcome: 'remove',
          code: 'messaging/invalid-registration-token',
          reason: 'the token is empty',
        };
      }
      const outcome = await ask(message, token);
      if (outcome.outcome === 'sent') deletable = MOST_MISMATCHES;
      if (outcome.outcome === 'remove' && outcome.code === MISMATCHED) return mismatched(outcome);
      if (outcome.outcome !== 'retry') return outcome;
      const { code, retryAfterMs = 0 } = outcome;
      if (code === DEVICE_QUOTA_EXCEEDED) {
        return { ...outcome, retryAfterMs: Math.max(brakeMs, retryAfterMs) };
      }
      if (code !== QUOTA_EXCEEDED) return outcome;
      brake.hold(retryAfterMs);
      return { ...outcome, retryAfterMs: brake.comeBackMs() };
    },

    /** Sends to another target from now on; sends under way end as they began. @throws Error like `createFcmSender`. */
    use(next: FcmTarget): void {
      const opened = openTarget(next);
      caller.use(opened);
      target = opened;
      credential = openCredential(opened.account);
      deletable = 0;
    },

    /** Closes the connections; sends under way come out as `retry`. */
    close(): void {
      closing.abort(new Error('the sender is closed'));
      caller.close();
    },
  };

  async function ask(message: MobileMessage, token: string): Promise<FcmResult> {
    const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), closing.signal]);
    const answer = await post({ message: { ...message, token } }, token, signal);
    if (answer.outcome !== 'suspect') return answer as FcmResult;
    // FCM checks the token with nothing else that could be at fault, and sends nothing.
    const check = await post({ message: { token }, validate_only: true }, token, signal);
    if (check.outcome === 'sent') return { ...answer, outcome: 'refused' };
    if (check.outcome === 'suspect' || check.outcome === 'remove') return { ...answer, outcome: 'remove' };
    return check as FcmResult;
  }

  async function post(request: object, token: string, signal: AbortSignal): Promise<Sent | FcmFailure> {
    try {
      const answer = await exchange(JSON.stringify(request), signal);
      return messageIn(answer) ?? failureOf(answer, token);
    } catch (error) {
      return failureWithoutAnswer(signal.aborted ? signal.reason : error);
    }
  }

  async function exchange(body: string, signal: AbortSignal): Promise<FcmAnswer> {
    const { url, projectId } = target;
    const accessToken = await Promise.race([fetchAccessToken(credential), rejectAtEnd(signal)]);
    const answer = await caller.request(`${url}/v1/projects/${projectId}/messages:send`, {
      method: 'POST',
      headers: { authorization: `Bearer ${accessToken}`, 'content-type': 'application/json' },
      body,
      signal,
    });
    const { text, isCut, error } = await readText(answer, MAX_ANSWER_BYTES);
    if (error) throw error;
    if (isCut) throw new Error(`the answer is longer than ${MAX_ANSWER_BYTES} bytes`);
    return { status: answer.statusCode!, retryAfter: answer.headers['retry-after'], body: jsonIn(text) };
  }

  /** A few tokens may be of another project. When FCM takes nothing from us, it is the credential that is of another. */
  function mismatched(outcome: FcmResult): FcmResult {
    if (deletable > 0) {
      deletable -= 1;
      return outcome;
    }
    const reason =
      'token and credential are of two projects, and FCM has taken no push since: the token is kept';
    return { outcome: 'fatal', code: MISMATCHED, reason };
  }
}

const takenSchema = z.object({ name: z.string().min(1) });

function messageIn({ status, body }: FcmAnswer): Sent | undefined {
  const { data } = takenSchema.safeParse(body);
  return status === 200 && data ? { outcome: 'sent', messageId: data.name } : undefined;
}

/** @throws AccessTokenError */
async function fetchAccessToken(credential: Credential): Promise<string> {
  try {
    return (await credential.getAccessToken()).access_token;
  } catch (error) {
    throw new AccessTokenError(reasonOf(error));
  }
}

/** firebase-admin takes no signal. */
async function rejectAtEnd(signal: AbortSignal): Promise<never> {
  if (!signal.aborted) await once(signal, 'abort');
  throw signal.reason;
}

interface OpenTarget {
  url: string;
  projectId: string;
  account?: ServiceAccount;
  ca?: string | undefined;
}

function openTarget(target: FcmTarget): OpenTarget {
  if ('endpoint' in target) {
    const { endpoint, caPem, projectId = 'local' } = target;
    return { url: endpoint, projectId, ca: caPem };
  }
  return { url: FCM_URL, ...readServiceAccount(target.credentialsFile) };
}

/**
 * A credential keeps its access token until it is about to expire; the SDK returns the same one for the same account. With an
 * agent of ours the SDK takes no proxy from the environment. Servers other than Google's get a token that means nothing.
 *
 * @throws FirebaseAppError for an account that cannot be used.
 */
function openCredential(account?: ServiceAccount): Credential {
  if (account) return cert(account, new Agent());
  const access_token = `local-${randomUUID()}`;
  return { getAccessToken: async () => ({ access_token, expires_in: 3_600 }) };
}

/** @throws Error that names the file and what is wrong with it, never a value. */
function readServiceAccount(path: string): { projectId: string; account: ServiceAccount } {
  const unusable = (problem: string) => new Error(`service account file ${path} ${problem}`);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw unusable(`cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
  // Not by the SDK, whose message quotes a file that is not JSON, and the file holds a private key.
  const account = (jsonIn(text) ?? {}) as ServiceAccount & { project_id?: string };
  try {
    openCredential(account);
  } catch (error) {
    throw unusable(`cannot be used: ${(error as Error).message}`);
  }
  // The SDK takes `projectId` as well, and Google writes no such file.
  if (!account.project_id) throw unusable('has no project_id');
  return { projectId: account.project_id, account };
}
