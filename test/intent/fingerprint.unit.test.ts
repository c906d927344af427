/** What makes two intents the same intent. */
import { createHash } from 'node:crypto';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { parseIntent } from './galaxy.ts';

const ENVELOPE = {
  notification_type: 'game.turn.ready',
  producer: 'game_master',
  audience_kind: 'user',
  recipient_user_ids_json: '["user-1","user-2","user-3"]',
  idempotency_key: 'key-1',
  occurred_at_ms: '1775121700000',
  payload_json: '{"game_id":"g","game_name":"n","turn_number":54}',
};

function intentOf(changes: Record<string, string> = {}, entryId = '1-0'): Intent {
  const fields = Object.entries({ ...ENVELOPE, ...changes });
  const parsed = parseIntent(
    entryId,
    fields.map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
  );
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  return parsed.intent;
}

const fingerprint = (changes: Record<string, string> = {}, entryId?: string): string =>
  fingerprintOf(intentOf(changes, entryId));

describe('fingerprint', () => {
  test('I8 it is the SHA-256 of the canonical content, in a form that stored fingerprints rely on', () => {
    const content =
      '{"audience_kind":"user","idempotency_key":"key-1","notification_type":"game.turn.ready",' +
      '"occurred_at_ms":1775121700000,' +
      '"payload":"{\\"game_id\\":\\"g\\",\\"game_name\\":\\"n\\",\\"turn_number\\":54}",' +
      '"producer":"game_master","recipient_user_ids":["user-1","user-2","user-3"]}';

    expect(fingerprint()).toBe(createHash('sha256').update(content).digest('hex'));
  });

  test.each<[string, Record<string, string>]>([
    ['white space', { payload_json: ' {"game_id" :\t"g",\n"game_name":"n", "turn_number":54}' }],
    ['the order of keys', { payload_json: '{"turn_number":54,"game_name":"n","game_id":"g"}' }],
    ...['54.0', '54e0', '5.4E+1', '540e-1'].map((number): [string, Record<string, string>] => [
      `the notation ${number}`,
      { payload_json: `{"game_id":"g","game_name":"n","turn_number":${number}}` },
    ]),
    ['an escape', { payload_json: '{"\\u0067ame_id":"\\u0067","game_name":"n","turn_number":54}' }],
    ['the order of recipients', { recipient_user_ids_json: '["user-3","user-1","user-2"]' }],
    ['request_id and trace_id', { request_id: 'request-1', trace_id: 'trace-1' }],
    ['when it is to be delivered', { deliver_at_ms: '1775121700001' }],
    ['until when it is worth sending', { expires_at_ms: '1775121700001' }],
  ])('I8 I78 %s makes no difference', (_what, changes) => {
    expect(fingerprint(changes, '7-7')).toBe(fingerprint());
  });

  test.each([
    ['occurred_at_ms', { occurred_at_ms: '1775121700001' }],
    ['idempotency_key', { idempotency_key: 'key-2' }],
    ['a recipient more', { recipient_user_ids_json: '["user-1","user-2","user-3","user-4"]' }],
    ['a recipient less', { recipient_user_ids_json: '["user-1","user-2"]' }],
    ['another recipient', { recipient_user_ids_json: '["user-1","user-2","user-03"]' }],
    ['recipients joined', { recipient_user_ids_json: '["user-1,user-2","user-3"]' }],
    [
      'the type',
      {
        notification_type: 'game.finished',
        payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"final_turn_number":1}',
      },
    ],
    ['a payload field more', { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"x":null}' }],
    [
      'a payload field named __proto__',
      { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"__proto__":1}' },
    ],
    ['the case of a key', { payload_json: '{"game_id":"g","game_name":"n","turn_number":54,"Game_id":"g"}' }],
    ['the form of a character', { payload_json: '{"game_id":"g","game_name":"n\\u0301","turn_number":54}' }],
  ])('I8 %s makes a difference', (_what, changes) => {
    expect(fingerprint(changes)).not.toBe(fingerprint());
  });

  test('I8 the type alone and the audience alone make a difference', () => {
    const intent = intentOf();
    const application = {
      ...intent,
      notificationType: 'lobby.application.submitted',
      producer: 'game_lobby',
    } as const;

    const fingerprints = [
      intent,
      { ...intent, notificationType: 'game.finished' } as const,
      application,
      { ...application, audienceKind: 'admin_email' } as const,
      { ...application, recipientUserIds: [] },
      { ...application, producer: 'geoprofile' } as const,
    ].map(fingerprintOf);
    expect(new Set(fingerprints).size).toBe(6);
  });
});
