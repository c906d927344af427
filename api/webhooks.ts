/**
 * How calls to others prove that they come from this service, and are what it sent: the headers of Standard Webhooks.
 *
 * A signature covers id, time and body. The id names the delivery: repeats of one delivery have the same id, whatever
 * time they are sent at, so that a receiver can tell a repeat from something new.
 */
import { createHash } from 'node:crypto';
import { Webhook, WebhookVerificationError } from 'standardwebhooks';

/** Of the key in a secret, as the standard has it. */
const FEWEST_KEY_BYTES = 24;
const MOST_KEY_BYTES = 64;

/** The call is not proven to come from who knows a secret. */
export class NotAuthenticError extends Error {
  override name = 'NotAuthenticError';
}

/** Whether it is `whsec_` and the base64 of 24 to 64 bytes. */
export function isWebhookSecret(text: string): boolean {
  const [, encoded] =
    /^whsec_((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$/.exec(text) ?? [];
  const { length } = Buffer.from(encoded ?? '', 'base64');
  return length >= FEWEST_KEY_BYTES && length <= MOST_KEY_BYTES;
}

/**
 * The id of a delivery, which says nothing about whom it is for.
 *
 * @param kind of delivery, lower-case letters.
 * @param key the same for each repeat of the delivery, and for no other one.
 */
export const webhookIdOf = (kind: string, key: string): string =>
  `${kind}_${createHash('sha256').update(key).digest('base64url')}`;

/**
 * Headers for one attempt of a delivery.
 *
 * @param secrets each signs: a receiver that knows one of them is content. With none there are no headers.
 */
export function signedHeaders(
  secrets: readonly string[],
  id: string,
  body: string,
  now = new Date(),
): Record<string, string> {
  if (secrets.length === 0) return {};
  return {
    'webhook-id': id,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1_000)),
    'webhook-signature': secrets.map((secret) => new Webhook(secret).sign(id, now, body)).join(' '),
  };
}

/** As Node has them: names in lower case. */
export type RequestHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * @param body as it came, byte by byte.
 * @returns the id of the delivery.
 * @throws NotAuthenticError when no signature is that of one of the secrets, or the time is more than 5 minutes from now,
 * which is the tolerance of the standard.
 */
export function verifiedWebhookId(secrets: readonly string[], headers: RequestHeaders, body: string): string {
  const given = Object.fromEntries(
    ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => {
      const value = headers[name];
      // Several values of one header are ambiguous and are refused.
      return [name, typeof value === 'string' ? value : ''];
    }),
  );
  let refusal = 'there is no secret to verify it with';
  for (const secret of secrets) {
    try {
      new Webhook(secret).verify(body, given, { jsonParse: false });
      return given['webhook-id']!;
    } catch (error) {
      if (!(error instanceof WebhookVerificationError)) throw error;
      refusal = error.message;
    }
  }
  throw new NotAuthenticError(`the call is not authentic: ${refusal}`);
}
