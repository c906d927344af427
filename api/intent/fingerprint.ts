/** The identity of an intent's content, for telling a duplicate from a conflict. */
import { createHash } from 'node:crypto';
import { canonicalJson } from '../canonical-json.ts';
import type { Intent } from './entry.ts';

/**
 * SHA-256 (hex) over the normalized content. Recipients count as a set and the payload in canonical form, so the order
 * of recipients and keys, white space and the notation of numbers make no difference; the order of arrays does.
 *
 * `request_id`, `trace_id` and `traceparent` only observe and are left out, as is the entry id. So is `expires_at_ms`: it
 * says nothing about the event, a repeat may count it from its own time, and processes of the release before do not know it.
 * `occurred_at_ms` is in: the same event did not happen at two times.
 */
export function fingerprintOf(
  intent: Omit<Intent, 'notificationId' | 'expiresAtMs' | 'requestId' | 'traceId' | 'traceparent'>,
): string {
  const content = canonicalJson({
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    recipient_user_ids: [...new Set(intent.recipientUserIds)].sort(),
    idempotency_key: intent.idempotencyKey,
    occurred_at_ms: intent.occurredAtMs,
    // A string inside: canonical already.
    payload: intent.payloadJson,
  });
  return createHash('sha256').update(content).digest('hex');
}
