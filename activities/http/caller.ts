/**
 * Calls of this service by HTTP. Who it is to the programs that it calls: a bearer token, a client certificate, signatures; what
 * changes is used from the next call on. And one exchange with a receiver, and what became of it.
 */
import type { AgentOptions, IncomingMessage } from 'node:http';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { createSecureContext } from 'node:tls';
import { given } from '../../api/given.ts';
import { signedHeaders } from '../../api/webhooks.ts';
import { oneLine } from '../reason.ts';

/** An idle connection is closed after this time, ms. */
const IDLE_MS = 4_000;

export interface CallerCredentials {
  /** Sent as `Authorization: Bearer`. */
  token?: string | undefined;
  /** Authorities that the server's certificate is checked against, PEM; without them, those that Node trusts. */
  ca?: string | undefined;
  /** Client certificate and its key, PEM. */
  cert?: string | undefined;
  key?: string | undefined;
  /** Each signs what is sent with a body; none: it is not signed. */
  signingSecrets?: readonly string[] | undefined;
}

export interface HttpCall {
  method: 'GET' | 'POST' | 'PUT';
  headers: Record<string, string>;
  body?: string;
  /** For the whole exchange, reading included. */
  signal: AbortSignal;
}

export type HttpCaller = ReturnType<typeof createHttpCaller>;

/**
 * @param maxSockets connections to one server; further calls wait for one.
 * @throws Error when certificate, key or authority cannot be used.
 */
export function createHttpCaller(first: CallerCredentials = {}, idleMs = IDLE_MS, maxSockets = Infinity) {
  let credentials = first;
  const connections = { keepAlive: true, timeout: idleMs, maxSockets };
  const plain = new HttpAgent(connections);
  let secure = secureAgentFor(first, connections);
  return {
    /**
     * Calls over the connections of now. Redirects are not followed, and interim answers (1xx) passed over.
     *
     * @returns the beginning of the answer; its body must be read.
     * @throws the reason of the signal, or why there is no answer.
     */
    request: (url: string, { body, signal, ...call }: HttpCall): Promise<IncomingMessage> =>
      new Promise((resolve, reject) => {
        const isSecure = url.startsWith('https:');
        const options = { ...call, signal, agent: isSecure ? secure : plain };
        (isSecure ? httpsRequest : httpRequest)(url, options, resolve)
          .on('error', (error) => reject((signal.aborted ? signal.reason : error) as Error))
          .end(body);
      }),

    /** Of a call, or of one attempt of a delivery that is to be signed. */
    headers(delivery?: { id: string; body: string }): Record<string, string> {
      const { token, signingSecrets = [] } = credentials;
      return {
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...(delivery ? signedHeaders(signingSecrets, delivery.id, delivery.body) : {}),
      };
    },

    /** Calls under way end as they began. @throws Error when certificate, key or authority cannot be used. */
    use(next: CallerCredentials): void {
      secure = secureAgentFor(next, connections);
      credentials = next;
    },

    /** Breaks off what is under way. */
    close(): void {
      for (const agent of [plain, secure]) agent.destroy();
    },
  };
}

function secureAgentFor({ ca, cert, key }: CallerCredentials, connections: AgentOptions): HttpsAgent {
  const tls = given({ ca, cert, key });
  createSecureContext(tls);
  return new HttpsAgent({ ...tls, ...connections });
}

/** As much of a refusal as an operator gets to see, bytes; an acknowledgement is not read further either. */
const MAX_REASON_BYTES = 300;
/** A slip in a header must not park a delivery for days. */
const LONGEST_RETRY_AFTER_MS = 60 * 60 * 1_000;

export interface Delivery {
  method: 'POST' | 'PUT';
  url: string;
  headers?: Record<string, string>;
  /** JSON. */
  body: string;
  /** For the whole exchange, connecting and reading included. */
  timeoutMs: number;
  /** Ends the exchange early. */
  stopped: AbortSignal;
  /** Who says it. */
  caller: HttpCaller;
  /** Of the delivery, for its signature: the same for each attempt. */
  id: string;
}

export interface DeliveryFailure {
  /** `refused`: answered with another status than 2xx, redirects included. `failed`: no answer could be had. */
  kind: 'refused' | 'timed_out' | 'failed';
  /** One line, for operators. */
  message: string;
  /** Of a refusal. */
  status?: number;
  /** Of a refusal: the first MAX_REASON_BYTES of what was said besides the status. */
  body?: string;
  /** Of a refusal that says so: when to come back. */
  retryAfterMs?: number;
}

/** The receiver says that the resource is gone for good (RFC 9110, 15.5.11). */
export const isGone = ({ status }: DeliveryFailure): boolean => status === 410;

/**
 * The wait before the next attempt, ms: the step of the ladder, or as long as the receiver asks for, up to the longest
 * step.
 *
 * @param failures in a row, from 1; after the last step it repeats.
 */
export function retryWaitMs(
  { retryAfterMs = 0 }: DeliveryFailure,
  failures: number,
  ladderMs: readonly number[],
): number {
  const stepMs = ladderMs[Math.min(failures, ladderMs.length) - 1]!;
  return Math.max(stepMs, Math.min(retryAfterMs, Math.max(...ladderMs)));
}

/** @returns why it was not acknowledged, or nothing when it was. Never throws. */
export async function deliver(delivery: Delivery): Promise<DeliveryFailure | undefined> {
  const { method, url, body, timeoutMs, stopped, headers, caller, id } = delivery;
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), stopped]);
    const answer = await caller.request(url, {
      ...{ method, body, signal },
      headers: { 'content-type': 'application/json', ...headers, ...caller.headers({ id, body }) },
    });
    // The connection is used again only when its answer is read. The status decides, also when the rest breaks off.
    const { text } = await readText(answer, MAX_REASON_BYTES);
    const status = answer.statusCode!;
    if (status >= 200 && status < 300) return undefined;
    const retryAfterMs = parseRetryAfter(answer.headers['retry-after'], Date.now());
    return {
      kind: 'refused',
      message: `status ${status}${reasonIn(text)}`,
      status,
      body: text,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    };
  } catch (error) {
    if (isTimeout(error)) return { kind: 'timed_out', message: `no answer within ${timeoutMs} ms` };
    return { kind: 'failed', message: networkReasonOf(error) };
  }
}

/**
 * `Retry-After` (RFC 9110, 10.2.3), seconds or an HTTP date, as ms from now: 0 for a date in the past, an hour at
 * most, undefined when it is absent or neither.
 */
export function parseRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  const ms = /^\s*\d+\s*$/.test(value) ? Number(value) * 1_000 : Date.parse(value) - now;
  return Number.isNaN(ms) ? undefined : Math.min(LONGEST_RETRY_AFTER_MS, Math.max(0, ms));
}

/** What became of it without the receiver's own words, which may quote what it was sent: one line for logs. */
export const withoutOwnWords = ({ status, message }: DeliveryFailure): string =>
  status === undefined ? message : `status ${status}`;

/** By name: time-outs of the platform are not instances of this realm's Error everywhere. */
export const isTimeout = (error: unknown): boolean => (error as Error).name === 'TimeoutError';

/** Why there was no answer, in one line. */
export function networkReasonOf(error: unknown): string {
  const { name, message, code } = error as NodeJS.ErrnoException;
  // Assertions of the HTTP client, which some answers fail, have several lines.
  return oneLine(message) || (code ?? name);
}

/** The beginning of a body, and how it ended: whole, cut at `maxBytes`, or broken off by an error. Never throws. */
export async function readText(
  body: AsyncIterable<Buffer>,
  maxBytes: number,
): Promise<{ text: string; isCut: boolean; error?: Error }> {
  const chunks: Buffer[] = [];
  let size = 0;
  const textSoFar = () => Buffer.concat(chunks).subarray(0, maxBytes).toString('utf8');
  try {
    for await (const chunk of body) {
      if (size < maxBytes) chunks.push(chunk);
      size += chunk.length;
      if (size > maxBytes) break;
    }
  } catch (error) {
    return { text: textSoFar(), isCut: false, error: error as Error };
  }
  return { text: textSoFar(), isCut: size > maxBytes };
}

/** What was said besides the status, as far as it could be read: the status is known, and decides. */
function reasonIn(text: string): string {
  const line = oneLine(text);
  return line === '' ? '' : `: ${line}`;
}
