/** What goes in: intents as producers mean them, and as entries of the stream. */
import type { Audience } from './notification-types.ts';
import { TYPES } from './notification-types.ts';

export interface SentIntent {
  /** Found in every payload, on each channel. */
  mark: string;
  type: string;
  audience: Audience;
  recipients: readonly string[];
  /** Of equal keys of one producer only one intent becomes a notification. */
  key: string;
  payload: Record<string, unknown>;
  occurredAtMs: number;
  deliverAtMs?: number;
  requestId?: string;
  traceId?: string;
  /**
   * The expected result: it, or an intent with its key, is delivered; a field of the envelope is missing, or bytes are no
   * text; one of its recipients does not exist.
   */
  fate: 'delivered' | 'malformed' | 'recipient_not_found';
  /** Left out of the entry. */
  missing?: string;
}

export type EntryFields = [name: string, value: string | Buffer][];

/** Code under which a malformed entry of this suite must be recorded: the envelope is what is wrong with each. */
export const MALFORMED_CODE = 'invalid_envelope';

export function entryOf(sent: SentIntent): EntryFields {
  const fields: EntryFields = [
    ['notification_type', sent.type],
    ['producer', TYPES[sent.type]!.producer],
    ['audience_kind', sent.audience],
    ['idempotency_key', sent.key],
    ['occurred_at_ms', String(sent.occurredAtMs)],
    ['payload_json', JSON.stringify(sent.payload)],
  ];
  if (sent.audience === 'user') fields.push(['recipient_user_ids_json', JSON.stringify(sent.recipients)]);
  if (sent.deliverAtMs !== undefined) fields.push(['deliver_at_ms', String(sent.deliverAtMs)]);
  if (sent.requestId !== undefined) fields.push(['request_id', sent.requestId]);
  if (sent.traceId !== undefined) fields.push(['trace_id', sent.traceId]);
  if (sent.fate === 'malformed' && sent.missing === undefined)
    return [['payload_json', Buffer.from([0x7b, 0xff, 0x00])]];
  return fields.filter(([name]) => name !== sent.missing);
}

export const groupOf = (sent: SentIntent): string => `${TYPES[sent.type]!.producer} ${sent.key}`;
