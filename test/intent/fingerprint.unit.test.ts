/** What makes two intents the same intent. Which changes of an entry make a difference, the vectors say (vectors.unit). */
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

const parsed = parseIntent(
  '1-0',
  Object.entries(ENVELOPE).map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
) as { intent: Intent };

describe('fingerprint', () => {
  test('I8 it is the SHA-256 of the canonical content, in a form that stored fingerprints rely on', () => {
    const content =
      '{"audience_kind":"user","idempotency_key":"key-1","notification_type":"game.turn.ready",' +
      '"occurred_at_ms":1775121700000,' +
      '"payload":"{\\"game_id\\":\\"g\\",\\"game_name\\":\\"n\\",\\"turn_number\\":54}",' +
      '"producer":"game_master","recipient_user_ids":["user-1","user-2","user-3"]}';

    expect(fingerprintOf(parsed.intent)).toBe(createHash('sha256').update(content).digest('hex'));
  });

  test('I8 the type alone and the audience alone make a difference', () => {
    const { intent } = parsed;
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
