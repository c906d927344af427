/**
 * Push events as Gateway reads them from `gateway:client-events`: the
 * FlatBuffers payload, and the stream entry around it. One generic path serves all tables; which table and fields a
 * type has is the catalog's to say, and a name that the generated code does not know fails when this module loads.
 */
import * as flatbuffers from 'flatbuffers';
import type { z } from 'zod';
import { CATALOG, PUSH_NOTIFICATION_TYPES } from './catalog.ts';
import type { PushNotificationType } from './catalog.ts';
import * as generated from './generated/notification_generated.ts';
import { handOffId, tracingFields } from './hand-off.ts';
import type { EntryField, HandOff } from './hand-off.ts';

/** A payload that its table cannot carry. The message names type and field, never the value. */
export class PushPayloadError extends Error {
  override name = 'PushPayloadError';
}

/** How one payload field gets into and out of its table. */
interface FieldCodec {
  name: string;
  kind: 'string' | 'long';
  add: (builder: flatbuffers.Builder, value: flatbuffers.Offset | bigint) => void;
  read: (table: object) => string | bigint | null;
}

interface TableCodec {
  fields: FieldCodec[];
  start: (builder: flatbuffers.Builder) => void;
  end: (builder: flatbuffers.Builder) => flatbuffers.Offset;
  root: (buffer: flatbuffers.ByteBuffer) => object;
}

const TABLE_CODECS = new Map(PUSH_NOTIFICATION_TYPES.map((type) => [type, tableCodec(type)]));

function tableCodec(type: PushNotificationType): TableCodec {
  const { table, fields } = CATALOG[type].push;
  const tableClass = generated[table];
  return {
    fields: fields.map((name) => fieldCodec(type, tableClass, name)),
    start: method(tableClass, `start${table}`),
    end: method(tableClass, `end${table}`),
    root: method(tableClass, `getRootAs${table}`),
  };
}

function fieldCodec(type: PushNotificationType, tableClass: { prototype: object }, name: string): FieldCodec {
  const pascalCase = name.replaceAll(/(?:^|_)(\w)/g, (_, initial: string) => initial.toUpperCase());
  const payload: z.ZodRawShape = CATALOG[type].payload;
  const getter = method(tableClass.prototype, pascalCase.charAt(0).toLowerCase() + pascalCase.slice(1));
  return {
    name,
    kind: payload[name]?._zod.def.type === 'number' ? 'long' : 'string',
    add: method(tableClass, `add${pascalCase}`),
    read: (table) => getter.call(table) as string | bigint | null,
  };
}

// The generated methods are found by name, so their parameters are known only to the interfaces above.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
function method(owner: object, name: string): (...args: any[]) => any {
  const found: unknown = Reflect.get(owner, name);
  if (typeof found !== 'function') throw new TypeError(`catalog and notification.fbs disagree: no ${name}`);
  return found as ReturnType<typeof method>;
}

function codecOf(type: PushNotificationType): TableCodec {
  const codec = TABLE_CODECS.get(type);
  if (codec === undefined) throw new PushPayloadError(`${String(type)} has no push event`);
  return codec;
}

/**
 * The FlatBuffers bytes of a type's push event: the fields of its table and nothing else of the payload.
 *
 * @param payload the normalized intent payload; fields outside the table are ignored
 * @throws PushPayloadError when a field of the table is missing or not of its type
 */
export function encodePushPayload(type: PushNotificationType, payload: Record<string, unknown>): Uint8Array {
  const codec = codecOf(type);
  const builder = new flatbuffers.Builder();
  // A table holds offsets of its strings, and cannot be open while a string is written.
  const values = codec.fields.map((field) => {
    const value = payload[field.name];
    if (field.kind === 'string' && typeof value === 'string') return builder.createString(value);
    if (field.kind === 'long' && Number.isSafeInteger(value)) return BigInt(value as number);
    const expected = field.kind === 'long' ? 'a safe integer' : 'a string';
    throw new PushPayloadError(`${type}: payload field ${field.name} must be ${expected}`);
  });
  codec.start(builder);
  codec.fields.forEach((field, position) => field.add(builder, values[position] ?? 0));
  builder.finish(codec.end(builder));
  return builder.asUint8Array();
}

/**
 * What a push event says, for people to read. Longs come as numbers, or as bigint beyond 2^53 - 1; a string that the
 * event does not carry is null. The bytes are trusted: FlatBuffers for JavaScript has no verifier.
 */
export function decodePushPayload(type: PushNotificationType, bytes: Uint8Array): Record<string, unknown> {
  const codec = codecOf(type);
  const table = codec.root(new flatbuffers.ByteBuffer(bytes));
  return Object.fromEntries(codec.fields.map((field) => [field.name, readable(field.read(table))]));
}

function readable(value: string | bigint | null): string | bigint | number | null {
  return typeof value === 'bigint' && Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

/** A push route that is ready to be handed off. */
export interface PushEvent extends HandOff {
  notificationType: PushNotificationType;
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
