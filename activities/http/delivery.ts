/** One HTTP exchange with a receiver, and what became of it: acknowledged, or a failure that operators can read. */
import { oneLine } from '../reason.ts';
import type { HttpCaller } from './caller.ts';

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
