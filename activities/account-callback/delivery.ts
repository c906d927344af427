/** Delivery of callbacks to the portfolio service (api/account-callback/callback-openapi.yaml). */
import { setTimeout as sleep } from 'node:timers/promises';
import pLimit from 'p-limit';
import { Agent, request } from 'undici';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import { callbackBody, callbackIdempotencyKey, callbackPath } from '../../api/account-callback/callback.ts';

/** As much of a refusal as an operator gets to see, bytes; an acknowledgement is not read further either. */
const MAX_REASON_BYTES = 300;

/**
 * A request that hangs gives its turn to the next one, and goes on beside it: a few targets that hang until their time-out
 * must not keep all the others waiting. It hangs when it takes so many times as long as others do, and at least so long,
 * ms: when everything is slow, going on beside it would only make it slower, until nothing is answered in time.
 */
const SLOWER_THAN_USUAL = 4;
const SHORTEST_TURN_MS = 250;
/** So many of those for each turn that there is. */
const HANGING_PER_TURN = 8;
/** What is usual before there was an answer, ms, and the weight of the latest one in it. */
const USUAL_AT_FIRST_MS = 250;
const LATEST = 0.1;

export interface DeliveryFailure {
  /** `refused`: answered with another status than 2xx, redirects included. `failed`: no answer could be had. */
  kind: 'refused' | 'timed_out' | 'failed';
  /** One line, for operators. */
  message: string;
}

export interface PortfolioService {
  /**
   * @param stopped ends the exchange early.
   * @returns why it was not acknowledged, or nothing when it was. Never throws.
   */
  deliver(callback: CallbackKey & CallbackValues, stopped: AbortSignal): Promise<DeliveryFailure | undefined>;
  close(): Promise<void>;
}

export interface PortfolioServiceOptions {
  baseUrl: string;
  /** For one exchange, connecting and reading included, ms. It begins with the exchange, not with the wait for a turn. */
  timeoutMs: number;
  /** Exchanges at once, but for those that hang. */
  maxParallel: number;
}

export function createPortfolioService(options: PortfolioServiceOptions): PortfolioService {
  const { timeoutMs, maxParallel } = options;
  const base = options.baseUrl.replace(/\/+$/, '');
  const agent = new Agent({ keepAliveTimeout: 10_000 });
  const atMost = pLimit(maxParallel);
  let hanging = 0;
  /** How long an answer takes, ms. */
  let usualMs = USUAL_AT_FIRST_MS;

  return {
    deliver: (callback, stopped) =>
      new Promise((resolve) => {
        void atMost(async () => {
          const turn = new AbortController();
          const startedMs = performance.now();
          const exchange = post(callback, stopped).then((failure) => {
            turn.abort();
            if (failure?.kind !== 'timed_out') usualMs += LATEST * (performance.now() - startedMs - usualMs);
            resolve(failure);
          });
          const turnMs = Math.max(SHORTEST_TURN_MS, SLOWER_THAN_USUAL * usualMs);
          const turnOver = sleep(turnMs, undefined, { signal: turn.signal }).catch(() => undefined);
          await Promise.race([exchange, turnOver]);
          if (turn.signal.aborted) return;
          if (hanging >= HANGING_PER_TURN * maxParallel) return exchange;
          hanging += 1;
          void exchange.finally(() => (hanging -= 1));
        });
      }),
    close: () => agent.destroy(),
  };

  async function post(
    callback: CallbackKey & CallbackValues,
    stopped: AbortSignal,
  ): Promise<DeliveryFailure | undefined> {
    const path = callbackPath(callback);
    if (path === undefined) return { kind: 'failed', message: 'no path can name this user' };
    try {
      const signal = AbortSignal.any([AbortSignal.timeout(timeoutMs), stopped]);
      const { statusCode, body } = await request(base + path, {
        dispatcher: agent,
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'idempotency-key': callbackIdempotencyKey(callback),
        },
        body: callbackBody(callback, callback),
        signal,
      });
      if (statusCode >= 200 && statusCode < 300) {
        // The connection is used again only when its answer is read. What it says is of no interest, also if it breaks.
        await body.dump({ limit: MAX_REASON_BYTES, signal }).catch(() => undefined);
        return undefined;
      }
      return { kind: 'refused', message: `status ${statusCode}${await reasonIn(body)}` };
    } catch (error) {
      const { name, message, code } = error as NodeJS.ErrnoException;
      // By name: time-outs of the platform are not instances of this realm's Error everywhere.
      if (name === 'TimeoutError') return { kind: 'timed_out', message: `no answer within ${timeoutMs} ms` };
      return { kind: 'failed', message: message || (code ?? name) };
    }
  }
}

/** What was said besides the status, as far as it could be read. */
async function reasonIn(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= MAX_REASON_BYTES) break;
    }
  } catch {
    // The status is known, and decides.
  }
  const text = Buffer.concat(chunks).subarray(0, MAX_REASON_BYTES).toString('utf8');
  // PostgreSQL's text takes no NUL, and a log line no other control character.
  const line = text.replaceAll(/\p{Cc}+/gu, ' ').trim();
  return line === '' ? '' : `: ${line}`;
}
