/**
 * How calls to others prove that they come from this service, and are what it sent: the headers of Standard Webhooks.
 *
 * A signature covers id, time and body. The id names the delivery: repeats of one delivery have the same id, whatever
 * time they are sent at, so that a receiver can tell a repeat from something new.
 */
import { createHash } from 'node:crypto';
import { Webhook } from 'standardwebhooks';

/** Of the key in a secret, as the standard has it. */
const FEWEST_KEY_BYTES = 24;
const MOST_KEY_BYTES = 64;

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
