/** Stream entries for the tests of the inbound contract: a valid one of any type, changed in one place. */
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { EntryFields, Intent, MalformedIntent } from '../../api/intent/entry.ts';
import type { StreamAppender } from '../../client/notificationintent.ts';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { audiencesOf, parseIntent, specOf, samplePayload } from './galaxy.ts';

export type Changes = Record<string, string | Buffer | undefined>;

/** A valid entry of a type, with fields replaced, added or (undefined) left out. */
export function entryOf(
  type: NotificationType,
  changes: Changes = {},
  audience = audiencesOf(type)[0]!,
): EntryFields {
  const fields: Changes = {
    notification_type: type,
    producer: specOf(type).producer,
    audience_kind: audience,
    ...(audience === 'user' ? { recipient_user_ids_json: '["user-1","user-2"]' } : {}),
    idempotency_key: 'key-1',
    occurred_at_ms: '1775121700000',
    payload_json: JSON.stringify(samplePayload(type)),
    ...changes,
  };
  return Object.entries(fields).flatMap(([name, value]) =>
    value === undefined ? [] : [[Buffer.from(name), Buffer.from(value as string)] as const],
  );
}

export const TURN = 'game.turn.ready';
export const turn = (changes: Changes = {}): EntryFields => entryOf(TURN, changes);
export const turnPayload = (extra: string): string =>
  `{"game_id":"g","game_name":"n","turn_number":1${extra}}`;

export function accepted(fields: EntryFields): Intent {
  const parsed = parseIntent('1775121700000-0', fields);
  if (!parsed.ok)
    throw new Error(`refused: ${parsed.malformed.failureCode} ${parsed.malformed.failureMessage}`);
  return parsed.intent;
}

export function refused(fields: EntryFields): MalformedIntent {
  const parsed = parseIntent('1775121700000-0', fields);
  if (parsed.ok) throw new Error(`accepted: ${JSON.stringify(parsed.intent).slice(0, 500)}`);
  return parsed.malformed;
}

/** PostgreSQL's text and jsonb take neither NUL nor lone surrogates. */
export function expectStorable(malformed: MalformedIntent): void {
  const texts = [
    malformed.streamEntryId,
    malformed.failureMessage,
    malformed.notificationType ?? '',
    malformed.producer ?? '',
    malformed.idempotencyKey ?? '',
    ...Object.entries(malformed.rawFields).flat(),
  ];
  expect(texts.filter((text) => text.includes('\0') || !text.isWellFormed())).toEqual([]);
  const columns = [malformed.notificationType, malformed.producer, malformed.idempotencyKey];
  expect(columns.filter((column = '') => column.length > 256)).toEqual([]);
  expect(malformed.failureMessage.length).toBeLessThan(1_024);
  // 16 KiB, and names and notes of up to 64 fields that come after those are used up.
  expect(Buffer.byteLength(Object.entries(malformed.rawFields).flat().join(''))).toBeLessThan(32 * 1024);
  expect(JSON.parse(JSON.stringify(malformed.rawFields))).toEqual(malformed.rawFields);
}

/** An intent of `game.turn.ready`, the same each time, to `user-1` unless told otherwise. */
export const turnIntent = (
  idempotencyKey: string,
  recipientUserIds: string[] = ['user-1'],
  payload: { game_name?: string; turn_number?: number } = {},
) =>
  newGameTurnReady({
    idempotencyKey,
    occurredAt: 1_790_000_000_000,
    recipientUserIds,
    payload: { game_id: 'g', game_name: 'G', turn_number: 1, ...payload },
  });

/** Publishes `game.turn.ready`, to `user-1` unless told otherwise. @returns the notification id. */
export const publishTurn = (
  redis: StreamAppender,
  idempotencyKey: string,
  recipientUserIds?: string[],
): Promise<string> =>
  publishIntent(redis, { ...turnIntent(idempotencyKey, recipientUserIds), occurredAtMs: Date.now() });
