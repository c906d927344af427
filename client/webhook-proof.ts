/** What receivers share: who may call, and how they answer. */
import type { ZodError } from 'zod';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';
import { isWebhookSecret } from '../api/webhooks.ts';

/** Who may call. */
export type CallerProof =
  /**
   * Who signs with one of these secrets, `whsec_…`; a function is asked for each call. Two of them while the secret
   * changes: the receivers know the new one first, then the service signs with both, then with the new one alone.
   */
  | { secrets: readonly string[] | (() => readonly string[]); acceptsUnsigned?: never }
  /** Everybody: something else in front of the receiver proves who calls. */
  | { acceptsUnsigned: true; secrets?: never };

/** A call to a receiver's program, as its HTTP server has it. */
export interface SignedCall {
  /** As Node has them, names in lower case. */
  headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** As it came: not parsed and written again. */
  body: string;
}

/**
 * @returns checks a call, and says what is wrong with it: undefined when it is authentic.
 * @throws Error for an invalid secret, or without secrets.
 */
export function createProofCheck(
  proof: CallerProof,
): (call: SignedCall, isExpectedId: (id: string) => boolean) => string | undefined {
  const { secrets, acceptsUnsigned } = proof;
  if (acceptsUnsigned) return () => undefined;
  const read = typeof secrets === 'function' ? secrets : () => secrets;
  const current = (): readonly string[] => {
    const all = read();
    if (all.length === 0) throw new Error('a receiver needs a secret, or acceptsUnsigned');
    if (!all.every(isWebhookSecret)) throw new Error('a secret must be whsec_ and base64 of 24 to 64 bytes');
    return all;
  };
  current();
  return ({ headers, body }, isExpectedId) => {
    // Several values of one header are ambiguous, and count as none.
    const named = (name: string) => (typeof headers[name] === 'string' ? headers[name] : '');
    const id = named('webhook-id');
    const proof = {
      ...{ 'webhook-id': id, 'webhook-timestamp': named('webhook-timestamp') },
      'webhook-signature': named('webhook-signature'),
    };
    const refusals = current().map((secret) => refusalOf(secret, proof, body));
    if (!refusals.includes(undefined)) return `the call is not authentic: ${refusals.at(-1)}`;
    // Signed by the service, and for something else: path and query are not under the signature.
    return isExpectedId(id)
      ? undefined
      : 'the call is not authentic: its webhook-id is that of another delivery';
  };
}

/** @returns why it is not signed with this secret, less than 5 minutes from now, which is the tolerance of the standard. */
function refusalOf(secret: string, proof: Record<string, string>, body: string): string | undefined {
  try {
    new Webhook(secret).verify(body, proof, { jsonParse: false });
    return undefined;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return error.message;
    throw error;
  }
}

/** As pino has them. */
export interface ReceiverLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** For an HTTP server. */
export interface Answer {
  status: number;
  /** As JSON. */
  answer: object;
}

/**
 * Makes an answer of what became of a call: a refusal has a message, everything else is answered as it is.
 *
 * @param what cannot be kept when `receive` throws.
 */
export async function answerTo<Receipt extends { outcome: string; message?: string }>(
  receive: () => Promise<Receipt>,
  statuses: Record<Receipt['outcome'], number>,
  what: string,
  logError: (reason: string) => void,
): Promise<Answer> {
  try {
    const { outcome, ...said } = await receive();
    const status = statuses[outcome as Receipt['outcome']];
    return 'message' in said
      ? { status, answer: { error: { code: outcome, ...said } } }
      : { status, answer: { outcome, ...said } };
  } catch (error) {
    logError(error instanceof Error ? error.message : String(error));
    return { status: 500, answer: { error: { code: 'not_kept', message: `the ${what} could not be kept` } } };
  }
}

/** The first thing that is wrong with a body. */
export const problemIn = ({ issues: [issue] }: ZodError): string =>
  `${issue?.path.join('.') || 'body'}: ${issue?.message}`;
