/** The vectors that clients in all languages are tested with. */
import { readFileSync } from 'node:fs';
import type { Vectors } from '../../dev/contracts/vectors.ts';
import { entryOfVector } from '../../dev/contracts/vectors.ts';
import { given } from '../../api/given.ts';
import { INTENT_FAILURE_CODES, fieldNamedIn, fingerprintOf } from '../../api/intent/entry.ts';
import { NOTIFICATION_TYPES, PUSH_NOTIFICATION_TYPES, readPushPayload, parseIntent } from './galaxy.ts';

const { entries, push_payloads: pushes } = JSON.parse(
  readFileSync('api/intent/vectors.json', 'utf8'),
) as Vectors;

test('I70 I4 I6 I8 the service decides every vector as the committed file says, with its fingerprint', () => {
  const decided = entries.map((vector) => {
    const parsed = parseIntent('1-0', entryOfVector(vector));
    const about = given({ name: vector.name, fields: vector.fields, further_fields: vector.further_fields });
    if (!parsed.ok) {
      const { failureCode: code, failureMessage } = parsed.malformed;
      return { ...about, refused: { code, names: fieldNamedIn(failureMessage) ?? 'the entry' } };
    }
    const { payloadJson, recipientUserIds, expiresAtMs, traceparent } = parsed.intent;
    const accepted = {
      fingerprint: fingerprintOf(parsed.intent),
      ...{ payload_json: payloadJson, recipient_user_ids: recipientUserIds },
      ...given({ expires_at_ms: expiresAtMs, traceparent }),
    };
    return { ...about, accepted };
  });
  // A long payload or audience is left out of the file, and intents for administrators name no user.
  expect(decided).toMatchObject(entries);
});

test('I70 vectors have every code, every field that can be wrong, and every type with each of its fields', () => {
  const refused = entries.flatMap((entry) => entry.refused ?? []);
  expect([...new Set(refused.map(({ code }) => code))].sort()).toEqual([...INTENT_FAILURE_CODES].sort());
  for (const type of NOTIFICATION_TYPES) {
    const own = entries.filter(({ name }) => name.startsWith(`${type} `));
    expect(own.some(({ accepted }) => accepted)).toBe(true);
    expect(own.some((entry) => entry.refused?.code === 'invalid_payload')).toBe(true);
  }
});

test('I70 I16 there is a push payload for each type that has one, and it says what its fields say', () => {
  expect(pushes.map(({ type }) => type)).toEqual(PUSH_NOTIFICATION_TYPES);
  for (const { type, fields, base64 } of pushes) {
    expect(readPushPayload(type, Buffer.from(base64, 'base64'))).toEqual(fields);
  }
});
