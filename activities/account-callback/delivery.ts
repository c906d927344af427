/** Delivery of callbacks to the portfolio service (api/account-callback/callback-openapi.yaml). */
import pLimit from 'p-limit';
import type { CallbackKey, CallbackValues } from '../../api/account-callback/callback.ts';
import {
  callbackBody,
  callbackIdempotencyKey,
  callbackPath,
  callbackWebhookId,
} from '../../api/account-callback/callback.ts';
import type { HttpCaller } from '../http/caller.ts';
import type { DeliveryFailure } from '../http/delivery.ts';
import { deliver } from '../http/delivery.ts';

/** Most exchanges that are under way concurrently: a whole alarm, so that no user waits for another who hangs. */
const MAX_PARALLEL = 500;

export type PortfolioService = ReturnType<typeof createPortfolioService>;

/** @param options.timeoutMs for one exchange, from its first byte: the wait for a turn does not count. */
export function createPortfolioService(options: { baseUrl: string; timeoutMs: number; caller: HttpCaller }) {
  const { timeoutMs, caller } = options;
  const base = options.baseUrl.replace(/\/+$/, '');
  const limit = pLimit(MAX_PARALLEL);

  return {
    /**
     * @param stopped ends the exchange early.
     * @returns why it was not acknowledged, or nothing when it was. Never throws.
     */
    async deliver(
      callback: CallbackKey & CallbackValues,
      stopped: AbortSignal,
    ): Promise<DeliveryFailure | undefined> {
      const path = callbackPath(callback);
      if (path === undefined) return { kind: 'failed', message: 'no path can name this user' };
      return limit(() =>
        deliver({
          method: 'POST',
          url: base + path,
          id: callbackWebhookId(callback),
          headers: { 'idempotency-key': callbackIdempotencyKey(callback) },
          body: callbackBody(callback, callback),
          ...{ timeoutMs, stopped, caller },
        }),
      );
    },
  };
}
