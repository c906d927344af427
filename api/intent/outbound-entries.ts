/**
 * What routes are handed off as: push events, which Gateway reads from `gateway:client-events`, and mail commands, which Mail
 * Service reads from `mail:delivery_commands`. The catalog says which fields of a payload a push event of a type carries; one
 * encoder writes all tables of FlatBuffers.
 */
import * as flatbuffers from 'flatbuffers';
import { z } from 'zod';
import { isJsonObject } from '../text.ts';
import type { Catalog, NotificationType, PushSpec } from './catalog.ts';
import type { Locale } from './user-service.ts';
import { SUPPORTED_LOCALES, emailAddressSchema } from './user-service.ts';

/** A payload that its push event cannot carry. The message names type and field, never the value. */
export class PushPayloadError extends Error {
  override name = 'PushPayloadError';
}

type FieldType = PushSpec['fields'][number]['type'];
type FieldValue = string | number | boolean;

/** What a payload has for a field, and how the schema of FlatBuffers calls it. */
const FIELD_TYPES: Record<FieldType, { fits(value: unknown): boolean; expected: string; kind: string }> = {
  string: { fits: (value) => typeof value === 'string', expected: 'a string', kind: 'string' },
  integer: { fits: Number.isSafeInteger, expected: 'a safe integer', kind: 'long' },
  boolean: { fits: (value) => typeof value === 'boolean', expected: 'true or false', kind: 'bool' },
};

/**
 * The bytes of a type's push event: the fields of its table and nothing else of the payload.
 *
 * @param payload the normalized intent payload; fields outside the table are ignored
 * @throws PushPayloadError when a field of the table is missing or not of its type, or the type has no push event
 */
export function encodePushPayload(
  catalog: Catalog,
  type: NotificationType,
  payload: Record<string, unknown>,
): Uint8Array {
  const push = catalog.types.get(type)?.push;
  if (push === undefined) throw new PushPayloadError(`${type} has no push event`);
  const { encoding, fields } = push;
  for (const { name, type: fieldType } of fields) {
    const { fits, expected } = FIELD_TYPES[fieldType];
    if (!fits(payload[name]))
      throw new PushPayloadError(`${type}: payload field ${name} must be ${expected}`);
  }
  const values = fields.map(({ name }) => payload[name] as FieldValue);
  return encoding === 'json'
    ? Buffer.from(JSON.stringify(Object.fromEntries(fields.map(({ name }, slot) => [name, values[slot]]))))
    : tableOf(values);
}

/** A table whose slots are these values; string, int64 and bool. */
function tableOf(values: readonly FieldValue[]): Uint8Array {
  const builder = new flatbuffers.Builder();
  // A table holds offsets of its strings, and cannot be open while a string is written.
  const offsets = values.map((value) => (typeof value === 'string' ? builder.createString(value) : 0));
  builder.startObject(values.length);
  for (const [slot, value] of values.entries()) {
    if (typeof value === 'string') builder.addFieldOffset(slot, offsets[slot]!, 0);
    else if (typeof value === 'number') builder.addFieldInt64(slot, BigInt(value), 0n);
    else builder.addFieldInt8(slot, Number(value), 0);
  }
  builder.finish(builder.endObject());
  return builder.asUint8Array();
}

/** The schema of FlatBuffers by which consumers read the push events of a catalog. */
export function flatBuffersSchemaOf({ types }: Catalog): string {
  const tables = [...types.values()].flatMap(({ type, summary, push, fields: payload }) => {
    if (push?.encoding !== 'flatbuffers') return [];
    const isTime = (name: string) =>
      payload.some(
        ({ name: other, field }) => other === name && 'format' in field && field.format === 'unix-ms',
      );
    return [
      [
        `/// \`${type}\`: ${summary}`,
        `table ${push.table} {`,
        ...push.fields.flatMap(({ name, type: kind }) => [
          ...(isTime(name) ? ['  /// Milliseconds since the Unix epoch.'] : []),
          `  ${name}: ${FIELD_TYPES[kind].kind};`,
        ]),
        '}',
      ].join('\n'),
    ];
  });
  return `${FLATBUFFERS_HEAD}\n${tables.join('\n\n')}\n`;
}

const FLATBUFFERS_HEAD = `// Payloads of push events. The event_type of an event alone says which table the bytes are: there is no union, no envelope,
// no root_type and no file identifier.
//
// Made from the catalog by galaxy-notify catalog fbs. Fields are appended at the end of a table, never reordered, retyped or
// removed. No field is (required), although the service writes every one: a promise to verifiers could not be withdrawn.

namespace notification;
`;

/** A push route that is ready to be handed off. */
export interface PushEvent extends HandOff {
  notificationType: NotificationType;
  /** `user:<user_id>`: push events go to users only. */
  recipientRef: string;
  /** See `encodePushPayload`. */
  payloadBytes: Uint8Array;
}

/**
 * The entry of `gateway:client-events` for one route. There is no `device_session_id`: without it Gateway sends the
 * event to all active streams of the user.
 *
 * @throws PushPayloadError when the recipient is not a user
 */
export function gatewayEntryFields(event: PushEvent): EntryField[] {
  const [, userId] = /^user:(.+)$/s.exec(event.recipientRef) ?? [];
  if (userId === undefined) throw new PushPayloadError(`${event.notificationType}: recipient is not a user`);
  const { buffer, byteOffset, byteLength } = event.payloadBytes;
  return [
    ['event_type', event.notificationType],
    ['event_id', handOffId(event)],
    ['user_id', userId],
    ['payload_bytes', Buffer.from(buffer, byteOffset, byteLength)],
    ...tracingFields(event),
  ];
}

const none = z.tuple([]);

/** What `payload_json` of a mail command holds. */
export const mailCommandPayloadSchema = z.object({
  to: z.tuple([emailAddressSchema]),
  cc: none,
  bcc: none,
  reply_to: none,
  attachments: none,
  template_id: z.string().min(1),
  locale: z.enum(SUPPORTED_LOCALES),
  // Not z.record, which would drop a key named __proto__: variables are the producer's and pass untouched.
  variables: z.custom<Record<string, unknown>>(isJsonObject, 'must be an object'),
});
export type MailCommandPayload = z.infer<typeof mailCommandPayloadSchema>;

/** An e-mail route that is ready to be handed off. */
export interface MailCommand extends HandOff {
  /** Of the type of the notification. */
  templateId: string;
  /** The one recipient. */
  email: string;
  locale: Locale;
  /** When the intent was accepted: milliseconds since the Unix epoch. */
  acceptedAtMs: number;
  /** Canonical JSON of the intent's payload; becomes the template's variables. */
  payloadJson: string;
}

/**
 * The entry of `mail:delivery_commands` for one route.
 *
 * @throws SyntaxError when `payloadJson` is not JSON
 * @throws z.ZodError when it is not an object, or another part does not make a command
 */
export function mailEntryFields(command: MailCommand): EntryField[] {
  const deliveryId = handOffId(command);
  const payload: MailCommandPayload = mailCommandPayloadSchema.parse({
    to: [command.email],
    cc: [],
    bcc: [],
    reply_to: [],
    attachments: [],
    template_id: command.templateId,
    locale: command.locale,
    variables: JSON.parse(command.payloadJson) as unknown,
  });
  return [
    ['delivery_id', deliveryId],
    ['source', 'notification'],
    ['payload_mode', 'template'],
    ['idempotency_key', `notification:${deliveryId}`],
    ['requested_at_ms', String(command.acceptedAtMs)],
    ['payload_json', JSON.stringify(payload)],
    ...tracingFields(command),
  ];
}

/** One field of a Redis stream entry, in the order it is appended. */
export type EntryField = [name: string, value: string | Buffer];

/** The route being handed off. */
export interface HandOff {
  /** The stream entry id of the intent, the newest of those that it carries. */
  notificationId: string;
  /** `<channel>:<recipient_ref>`. */
  routeId: string;
  requestId?: string | null | undefined;
  traceId?: string | null | undefined;
  traceparent?: string | null | undefined;
}

/** `<notification_id>/<route_id>`: what consumers deduplicate on, as `event_id` and `delivery_id`. */
export function handOffId({ notificationId, routeId }: HandOff): string {
  return `${notificationId}/${routeId}`;
}

/** `request_id`, `trace_id` and `traceparent`, each only when the intent had one. */
export const tracingFields = ({ requestId, traceId, traceparent }: HandOff): EntryField[] =>
  Object.entries({ request_id: requestId, trace_id: traceId, traceparent }).flatMap(
    ([name, value]): EntryField[] => (value ? [[name, value]] : []),
  );
