/** What receivers ask of a call before they look at what it says. */
import type { RequestHeaders } from '../api/webhooks.ts';
import { NotAuthenticError, isWebhookSecret, verifiedWebhookId } from '../api/webhooks.ts';

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
  headers: RequestHeaders;
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
    try {
      const id = verifiedWebhookId(current(), headers, body);
      // Signed by the service, and for something else: path and query are not under the signature.
      return isExpectedId(id)
        ? undefined
        : 'the call is not authentic: its webhook-id is that of another delivery';
    } catch (error) {
      if (error instanceof NotAuthenticError) return error.message;
      throw error;
    }
  };
}
