/** The identity of an intent's content, for telling a duplicate from a conflict. */
import { createHash } from 'node:crypto';
import { canonicalJson } from '../canonical-json.ts';
import type { Intent } from './entry.ts';

export type IntentContent = Pick<
  Intent,
  | 'notificationType'
  | 'producer'
  | 'audienceKind'
  | 'recipientUserIds'
  | 'idempotencyKey'
  | 'occurredAtMs'
  | 'payloadJson'
>;

/**
 * SHA-256 (hex) over the normalized content. Recipients count as a set and the payload in canonical form, so the order
 * of recipients and keys, white space and the notation of numbers make no difference; the order of arrays does.
 *
 * `request_id`, `trace_id` and `traceparent` only observe and are left out, as is the entry id. So are the times of delivery and
 * of expiry: they say nothing about the event, and a repeat may count them from its own time. `occurred_at_ms` is in: the same
 * event did not happen at two times.
 */
export function fingerprintOf(intent: IntentContent): string {
  return createHash('sha256')
    .update(canonicalJson(normalized(intent)))
    .digest('hex');
}

/** @returns the fields of the envelope in which two intents with one idempotency key differ, names only. */
export function differingFields(one: IntentContent, other: IntentContent): string[] {
  const [left, right] = [normalized(one), normalized(other)];
  const names = [
    'notification_type',
    'audience_kind',
    'recipient_user_ids',
    'occurred_at_ms',
    'payload',
  ] as const;
  return names
    .filter((name) => JSON.stringify(left[name]) !== JSON.stringify(right[name]))
    .map((name) => (name === 'payload' || name === 'recipient_user_ids' ? `${name}_json` : name));
}

function normalized(intent: IntentContent) {
  return {
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    recipient_user_ids: [...new Set(intent.recipientUserIds)].sort(),
    idempotency_key: intent.idempotencyKey,
    occurred_at_ms: intent.occurredAtMs,
    // A string inside: canonical already.
    payload: intent.payloadJson,
  };
}
