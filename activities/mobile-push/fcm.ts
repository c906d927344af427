/**
 * Sends to Firebase Cloud Messaging with firebase-admin, one request for each message and token. What the SDK would
 * decide behind the workflow's back is taken from it: whether to try again, how long to wait, and how many connections
 * to open.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { createPrivateKey, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Agent } from 'node:https';
import { isIP } from 'node:net';
import { addAbortSignal } from 'node:stream';
import type { AppOptions, Credential } from 'firebase-admin/app';
import { SDK_VERSION, cert, deleteApp, initializeApp } from 'firebase-admin/app';
import type { Messaging } from 'firebase-admin/messaging';
import { getMessaging } from 'firebase-admin/messaging';
import { z } from 'zod';
import type { FcmFailure } from './fcm-result.ts';
import {
  CREDENTIAL_REFUSED,
  DEVICE_QUOTA_EXCEEDED,
  MISMATCHED,
  QUOTA_EXCEEDED,
  failureOf,
} from './fcm-result.ts';
import type { MobileMessage } from '../../api/mobile-push/message.ts';

const DEFAULT_TIMEOUT_MS = 10_000;
const DEFAULT_MAX_SOCKETS = 50;
/** FCM asks for a minute of silence after a 429 that does not say how long. */
const SHORTEST_BRAKE_MS = 60_000;
/** Google's front ends drop idle connections after some minutes without a word; ours go first. */
const IDLE_SOCKET_MS = 60_000;

/** Answers of FCM and of the token server have a few KiB. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** Tokens of another project that are deleted for each push that FCM takes: without any the credential was swapped. */
const MOST_MISMATCHES = 10;
/** A credential that stays refused must not cost an access token for each send. */
const RENEW_EVERY_MS = 60_000;

/** What became of a send. */
export type FcmResult =
  | { outcome: 'sent'; messageId: string }
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
  /**
   * For the whole exchange, ms: access token, waiting for a socket, connecting, answer. Default 10,000; above 15,000
   * the SDK gives up on a silent server before.
   */
  timeoutMs?: number;
  /** Most connections that are open concurrently; further sends wait for one. Default 50. */
  maxSockets?: number;
  /** Default: a separate one, 60 s at least. */
  brake?: Brake;
}

/** The file with the credentials cannot be used. Names the file and the fields, never a value. */
export class FcmCredentialError extends Error {
  override name = 'FcmCredentialError';
}

export type Brake = ReturnType<typeof createBrake>;

/**
 * Holds all sends of this process up. FCM's quota belongs to the project: a message that is sent after a 429 takes
 * from the others' quota, and lengthens the time until FCM takes any.
 *
 * @param options.minMs what a hold lasts at least. Its clock is `performance.now()`, which never goes back.
 * @param options.random from 0 to 1.
 */
export function createBrake({ minMs, random = Math.random }: { minMs: number; random?: () => number }) {
  let until = 0;
  let lengthMs = 0;
  /** How long it still holds, ms; 0 when it does not. */
  const remainingMs = (now = performance.now()): number => Math.max(0, Math.ceil(until - now));
  return {
    minMs,
    remainingMs,

    /**
     * When a send that is held up may come back, ms. Spread over half the length of the hold behind its end, few at first and
     * more later, so that not all come in the same instant and meet the next 429. 0 when nothing is held up.
     */
    comeBackMs(now?: number): number {
      const remaining = remainingMs(now);
      // The square root makes the number that comes back grow evenly over the time.
      return remaining === 0 ? 0 : remaining + Math.ceil((lengthMs / 2) * Math.sqrt(random()));
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

/**
 * @throws FcmCredentialError when the file cannot be used; Error when the endpoint is no https URL, or when
 * firebase-admin or Node are not built as this module expects.
 */
export function createFcmSender(options: FcmSenderOptions) {
  const { target, timeoutMs = DEFAULT_TIMEOUT_MS, maxSockets = DEFAULT_MAX_SOCKETS } = options;
  const { brake = createBrake({ minMs: SHORTEST_BRAKE_MS }) } = options;
  const agent = new Agent({
    keepAlive: true,
    maxSockets,
    timeout: IDLE_SOCKET_MS,
    ...('endpoint' in target ? connectionTo(target.endpoint, target.caPem) : {}),
  });
  boundRequests(agent);
  // Apps are known by name in the whole process, and one process may hold several senders.
  const app = initializeApp({ ...identityOf(target, agent), httpAgent: agent }, `fcm-${randomUUID()}`);
  const messaging = getMessaging(app);
  disableHiddenRetries(messaging);
  const accessTokens = accessTokensOf(app);
  let closed = false;
  /** How many tokens of another project may still be deleted; none before FCM has taken a push. */
  let deletable = 0;
  let renewedAt = Number.NEGATIVE_INFINITY;
  let renewing: Promise<void> | undefined;

  return {
    /**
     * One push at most; when FCM does not say whether token or payload is at fault, a check of the token follows it. Never
     * rejects: whatever goes wrong is an outcome.
     */
    async send(message: MobileMessage, token: string): Promise<FcmResult> {
      const retryInMs = brake.comeBackMs();
      if (retryInMs > 0) return { outcome: 'braked', retryInMs };
      // The SDK would call it a bad message.
      if (token === '') {
        return {
          outcome: 'remove',
          code: 'messaging/invalid-registration-token',
          reason: 'the token is empty',
        };
      }
      const outcome = await withDeadline(timeoutMs, () => ask(message, token)).catch((late: unknown) =>
        withoutSuspicion(failureOf(late, token)),
      );
      if (outcome.outcome === 'sent') deletable = MOST_MISMATCHES;
      if (outcome.outcome === 'remove' && outcome.code === MISMATCHED) return mismatched(outcome);
      if (outcome.outcome !== 'retry') return outcome;
      const { code, retryAfterMs = 0 } = outcome;
      if (code === DEVICE_QUOTA_EXCEEDED) {
        return { ...outcome, retryAfterMs: Math.max(brake.minMs, retryAfterMs) };
      }
      if (code !== QUOTA_EXCEEDED) return outcome;
      brake.hold(retryAfterMs);
      return { ...outcome, retryAfterMs: brake.comeBackMs() };
    },

    /** Closes the connections; sends under way come out as `retry`. */
    async close(): Promise<void> {
      if (closed) return;
      closed = true;
      await deleteApp(app);
      agent.destroy();
    },
  };

  async function ask(message: MobileMessage, token: string): Promise<FcmResult> {
    try {
      const messageId: unknown = await sendMessage({ ...message, token });
      if (typeof messageId === 'string' && messageId !== '') return { outcome: 'sent', messageId };
      throw new Error('FCM answered 200 without the name of a message');
    } catch (error) {
      const failure = failureOf(error, token);
      return failure.outcome === 'suspect' ? judgeToken(failure, token) : withoutSuspicion(failure);
    }
  }

  /** Once more with a fresh access token when FCM refuses the one that is kept: it may have been revoked. */
  async function sendMessage(message: MobileMessage & { token: string }): Promise<unknown> {
    const beganAt = performance.now();
    try {
      return await messaging.send(message);
    } catch (error) {
      if (!isAccessTokenRefused(error, message.token) || !(await renew(beganAt))) throw error;
      return messaging.send(message);
    }
  }

  /** @returns whether there is an access token that was not tried. Rejects as firebase-admin does. */
  async function renew(beganAt: number): Promise<boolean> {
    if (renewedAt > beganAt) return true;
    if (performance.now() - renewedAt < RENEW_EVERY_MS) return false;
    renewing ??= accessTokens.getToken(true).then(() => {
      renewedAt = performance.now();
    });
    await renewing.finally(() => (renewing = undefined));
    return true;
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

  /** Whether a token is at fault when FCM did not say: FCM checks it with nothing else that could be, and sends nothing. */
  async function judgeToken({ code, reason }: FcmFailure, token: string): Promise<FcmResult> {
    try {
      await messaging.send({ token }, true);
      return { outcome: 'refused', code, reason };
    } catch (error) {
      const check = failureOf(error, token);
      if (check.outcome === 'suspect' || check.outcome === 'remove')
        return { outcome: 'remove', code, reason };
      return withoutSuspicion(check);
    }
  }
}

/** What is left once FCM has told what a suspicion is about; what never reached it is no fault of the token. */
const withoutSuspicion = (failure: FcmFailure): FcmResult =>
  failure.outcome === 'suspect' ? { ...failure, outcome: 'refused' } : (failure as FcmResult);

/**
 * Leads every connection of an agent to an endpoint: firebase-admin knows one host only, and an agent's own options
 * come before those of a request. The certificate is checked against the endpoint's name.
 */
function connectionTo(endpoint: string, caPem: string | undefined) {
  const { protocol, hostname, port } = new URL(endpoint);
  if (protocol !== 'https:') throw new Error(`FCM endpoint ${endpoint} is not an https URL`);
  const host = hostname.replace(/^\[|\]$/g, '');
  return {
    host,
    port: Number(port || 443),
    // Without it, the name of the request's host would be asked for; an address is no server name.
    servername: isIP(host) === 0 ? host : '',
    ...(caPem === undefined ? {} : { ca: caPem }),
  };
}

/** Access tokens come over the same connections: otherwise the SDK takes a proxy from the environment for them alone. */
function identityOf(target: FcmTarget, agent: Agent): Pick<AppOptions, 'credential' | 'projectId'> {
  if ('endpoint' in target) return { credential: localCredential(), projectId: target.projectId ?? 'local' };
  const account = readServiceAccount(target.credentialsFile);
  return { credential: cert(account, agent), projectId: account.projectId };
}

/** For endpoints that are not Google's: its token server is never asked. */
function localCredential(): Credential {
  let issued = 0;
  return {
    getAccessToken: async () => ({
      access_token: (issued += 1) === 1 ? 'local' : `local-${issued}`,
      expires_in: 3_600,
    }),
  };
}

const serviceAccountSchema = z.object({
  type: z.literal('service_account'),
  project_id: z.string().min(1),
  client_email: z.string().min(1),
  private_key: z.string().refine(isPrivateKey),
});

function readServiceAccount(path: string) {
  const unusable = (problem: string): FcmCredentialError =>
    new FcmCredentialError(`service account file ${path} ${problem}`);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw unusable(`cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    // Not with the cause: its message quotes the file, which holds a private key.
    throw unusable('is not JSON');
  }
  const parsed = serviceAccountSchema.safeParse(json);
  if (!parsed.success) {
    const fields = parsed.error.issues.map(({ path: [field] }) => String(field ?? 'JSON object'));
    throw unusable(`lacks a usable ${fields.join(', ')}`);
  }
  const { project_id: projectId, client_email: clientEmail, private_key: privateKey } = parsed.data;
  return { projectId, clientEmail, privateKey };
}

function isPrivateKey(pem: string): boolean {
  try {
    return createPrivateKey(pem).type === 'private';
  } catch {
    return false;
  }
}

/**
 * The SDK repeats a request up to 4 times on 503 and on broken connections, within one `send()`: the workflow, which
 * counts attempts and spaces them, would not know. There is no option; the version is pinned because of this line.
 */
function disableHiddenRetries(messaging: Messaging): void {
  const { messagingRequestHandler: handler } = messaging as unknown as {
    messagingRequestHandler?: { httpClient?: { retry?: { maxRetries?: unknown } } };
  };
  const retry = handler?.httpClient?.retry;
  if (typeof retry?.maxRetries !== 'number') {
    throw new Error(
      `firebase-admin ${SDK_VERSION} does not keep its retries where 14.5.1 does; they must be off`,
    );
  }
  retry.maxRetries = 0;
}

interface AccessTokens {
  getToken(forceRefresh: boolean): Promise<unknown>;
}

/** The SDK keeps an access token for up to an hour, and has no public way to get a fresh one for its requests. */
function accessTokensOf(app: unknown): AccessTokens {
  const { INTERNAL: internals } = app as { INTERNAL?: Partial<AccessTokens> };
  if (typeof internals?.getToken !== 'function') {
    throw new Error(`firebase-admin ${SDK_VERSION} does not keep its access tokens where 14.5.1 does`);
  }
  return internals as AccessTokens;
}

const isAccessTokenRefused = (error: unknown, token: string): boolean =>
  failureOf(error, token).code === CREDENTIAL_REFUSED &&
  (error as { httpResponse?: { status?: number } }).httpResponse?.status === 401;

/** The send that a request belongs to: the SDK hands no signal through. */
interface Exchange {
  ended: AbortSignal;
  /** Ends it with an error of firebase-admin's code. */
  end(code: string, reason: string): void;
}
const exchanges = new AsyncLocalStorage<Exchange>();

/**
 * Ends requests with their sends, those that still wait for a socket included: such a one would otherwise be sent when
 * its caller had long given up. Ends a send whose answer is large or compressed: the SDK reads and
 * unpacks all of it. An agent sees every request in `addRequest`, which Node does not document but many agents build on.
 */
function boundRequests(agent: Agent): void {
  const hooked = agent as Agent & { addRequest?: (request: ClientRequest, ...rest: unknown[]) => void };
  const addRequest = hooked.addRequest?.bind(agent);
  if (!addRequest)
    throw new Error(`Node ${process.version} has no Agent.addRequest; sends could not be ended`);
  hooked.addRequest = (request, ...rest) => {
    const exchange = exchanges.getStore();
    if (exchange) {
      addAbortSignal(exchange.ended, request);
      request.setHeader('accept-encoding', 'identity');
      // Before the SDK, which drops the header of what it unpacks.
      request.prependOnceListener('response', (answer) => boundAnswer(answer, exchange));
    }
    addRequest(request, ...rest);
  };
}

function boundAnswer(answer: IncomingMessage, { end }: Exchange): void {
  const { 'content-encoding': encoding = 'identity' } = answer.headers;
  if (encoding !== 'identity') return end('app/network-error', 'the answer is compressed');
  let bytes = 0;
  answer.on('data', ({ length }: Buffer) => {
    bytes += length;
    if (bytes > MAX_ANSWER_BYTES) {
      end('app/network-error', `the answer is longer than ${MAX_ANSWER_BYTES} bytes`);
    }
  });
}

/**
 * The SDK's own 15 s count silence only, and a send whose answer is cut off in the middle never settles there.
 *
 * @throws Error with firebase-admin's code `app/network-timeout` or `app/network-error`, and what the work throws.
 */
async function withDeadline<T>(timeoutMs: number, work: () => Promise<T>): Promise<T> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const ending = new AbortController();
  const end = (code: string, reason: string) => {
    reject(Object.assign(new Error(reason), { code }));
    ending.abort();
  };
  const timer = setTimeout(() => end('app/network-timeout', `no answer within ${timeoutMs} ms`), timeoutMs);
  try {
    return await Promise.race([exchanges.run({ ended: ending.signal, end }, work), ended]);
  } finally {
    clearTimeout(timer);
  }
}
