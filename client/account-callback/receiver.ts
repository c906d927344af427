/**
 * For the portfolio service that gets callbacks about account values (api/account-callback/callback-openapi.yaml): takes
 * requests, checks who sent them and what they say, and upserts their values, so that a callback which comes again is
 * harmless.
 *
 * ```ts
 * const receiver = createCallbackReceiver({ store, log, secrets: [process.env.SIGNING_SECRET] });
 * // on POST, with any HTTP server, the body read up to MAX_CALLBACK_BYTES and as it came:
 * const { status, answer } = await receiver.answer({ path, headers: request.headers, body });
 * ```
 */
import type { CallbackBody, CallbackKey } from '../../api/account-callback/callback.ts';
import {
  callbackIdempotencyKey,
  callbackSchema,
  callbackWebhookId,
  contradictionIn,
  parseCallbackPath,
} from '../../api/account-callback/callback.ts';
import { jsonIn } from '../../api/text.ts';
import type { Answer, CallerProof, ReceiverLog, SignedCall } from '../webhook-proof.ts';
import { answerTo, createProofCheck, problemIn } from '../webhook-proof.ts';

/** No callback is longer; who sends more need not be read to the end. */
export const MAX_CALLBACK_BYTES = 4_096;

/** Where a receiver keeps what it was told. */
export interface CallbackStore {
  /**
   * Inserts the callback, or replaces what is there of the same user, kind and period, in one step.
   *
   * @returns what was there before; undefined when nothing was.
   */
  upsert(key: CallbackKey, callback: CallbackBody): Promise<CallbackBody | undefined>;
}

export interface CallbackRequest extends SignedCall {
  /** Of the request, without query. */
  path: string;
}

interface Refusal {
  outcome: 'unknown_path' | 'invalid_callback' | 'not_authentic';
  message: string;
}
type Receipt = { outcome: 'stored' | 'unchanged' | 'replaced' } | Refusal;

export interface CallbackReceiver {
  /** Checks a request, keeps what it tells, and says what to answer with: a status and JSON. Never rejects. */
  answer(request: CallbackRequest): Promise<Answer>;
}

/** @throws Error for an invalid secret, or without secrets. */
export function createCallbackReceiver({
  store,
  log,
  ...proof
}: {
  store: CallbackStore;
  log: ReceiverLog;
} & CallerProof): CallbackReceiver {
  const whatIsWrongWith = createProofCheck(proof);

  async function apply(request: CallbackRequest): Promise<Receipt> {
    const { path, headers, body } = request;
    const named = parseCallbackPath(path);
    if (!named) return refuse('unknown_path', 'the path names no callback of a user');
    if (Buffer.byteLength(body) > MAX_CALLBACK_BYTES) {
      return refuse('invalid_callback', `the body has more than ${MAX_CALLBACK_BYTES} bytes`);
    }
    const parsed = callbackSchema.safeParse(jsonIn(body));
    const doubt = whatIsWrongWith(request, (id) => {
      const periodStartMs = parsed.data?.period_start_ms;
      return periodStartMs === undefined || id === callbackWebhookId({ ...named, periodStartMs });
    });
    if (doubt !== undefined) return refuse('not_authentic', doubt);
    if (!parsed.success) return refuse('invalid_callback', problemIn(parsed.error));
    const callback = parsed.data;
    const contradiction = contradictionIn(named.kind, callback);
    if (contradiction !== undefined) return refuse('invalid_callback', contradiction);
    const key = { ...named, periodStartMs: callback.period_start_ms };
    const idempotencyKey = headers['idempotency-key'];
    if (idempotencyKey !== undefined && idempotencyKey !== callbackIdempotencyKey(key)) {
      return refuse('invalid_callback', 'Idempotency-Key is that of another callback');
    }
    const before = await store.upsert(key, callback);
    if (before === undefined) return { outcome: 'stored' };
    return { outcome: isSame(before, callback) ? 'unchanged' : 'replaced' };
  }

  function refuse(outcome: Refusal['outcome'], message: string): Refusal {
    log.error({ outcome, reason: message }, 'account callback refused');
    return { outcome, message };
  }

  return {
    answer: (request) =>
      answerTo(
        () => apply(request),
        STATUSES,
        'callback',
        (reason) => log.error({ reason }, 'account callback could not be kept'),
      ),
  };
}

const STATUSES: Record<Receipt['outcome'], number> = {
  stored: 200,
  unchanged: 200,
  replaced: 200,
  not_authentic: 401,
  unknown_path: 404,
  invalid_callback: 422,
};

/** Both have passed the schema: the same fields in the same order. */
const isSame = (one: CallbackBody, other: CallbackBody): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

/** Keeps callbacks in memory, for tests and stand-ins. */
export function memoryCallbackStore(): CallbackStore & {
  get(key: CallbackKey): CallbackBody | undefined;
} {
  const held = new Map<string, CallbackBody>();
  return {
    get: (key) => held.get(callbackIdempotencyKey(key)),
    async upsert(key, callback) {
      const id = callbackIdempotencyKey(key);
      const before = held.get(id);
      held.set(id, callback);
      return before;
    },
  };
}
