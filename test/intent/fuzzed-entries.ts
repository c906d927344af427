/** Malformed entries of the intent stream, as a hostile producer sends them. */
import fc from 'fast-check';
import type { EntryFields } from '../../api/intent/entry.ts';
import { bytes, disturbed, json, text } from '../platform/nasty-inputs.ts';
import { entryOf } from './entries.ts';
import { NOTIFICATION_TYPES, audiencesOf, samplePayload } from './galaxy.ts';

export const goodIntents = NOTIFICATION_TYPES.flatMap((type) =>
  audiencesOf(type).map((audience) => entryOf(type, {}, audience)),
);
/** One of several, each with how often it is chosen. */
const weighted = <T>(...choices: [weight: number, fc.Arbitrary<T>][]) =>
  fc.oneof(...choices.map(([weight, arbitrary]) => ({ weight, arbitrary })));

export const intentEntry = weighted<EntryFields>(
  [6, fc.constantFrom(...goodIntents).chain(disturbed)],
  [1, fc.array(fc.tuple(bytes, bytes), { maxLength: 20 })],
);

/** Text of a JSON object: its members in any order, further ones, and some once more. */
const membersOf = (payload: Record<string, string | number>) => {
  const own = Object.entries(payload).map(
    ([name, value]) => [JSON.stringify(name), JSON.stringify(value)] as const,
  );
  const quoted = text.map((value) => JSON.stringify(value));
  const name = weighted([2, quoted], [1, fc.constantFrom(...own.map(([written]) => written))]);
  const number = fc.oneof(
    fc.double().map(String),
    fc.maxSafeInteger().map(String),
    fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }).map(String),
    fc
      .tuple(fc.integer(), fc.nat(999), fc.integer({ min: -330, max: 20 }))
      .map(([a, b, c]) => `${a}.${b}e${c}`),
  );
  const anyJson = fc.json({ maxDepth: 3, stringUnit: 'binary' });
  const value = weighted([2, json], [3, anyJson], [2, quoted], [3, number]);
  const further = fc.array(fc.tuple(name, value), { maxLength: 3 });
  const space = fc.constantFrom('', '', '', ' ', '\n\t', '\u00a0');
  return fc
    .tuple(further, space, fc.shuffledSubarray(own, { minLength: own.length }), fc.boolean())
    .map(
      ([more, blank, members, isFirst]) =>
        `{${(isFirst ? [...more, ...members] : [...members, ...more]).map(([key, written]) => `${key}${blank}:${blank}${written}`).join()}${blank}}`,
    );
};

const userId = fc.oneof(
  text,
  fc.string({ unit: 'binary', minLength: 1, maxLength: 6 }),
  fc.constantFrom('user-1', 'user-2'),
);
const userIds = fc.array(userId, { maxLength: 5 }).map((ids) => JSON.stringify(ids));

const mostly = (usual: fc.Arbitrary<string>, other: fc.Arbitrary<string>) => weighted([9, usual], [1, other]);
const msBetween = (min: number, max: number) => fc.integer({ min, max }).map(String);

/** Some are of the form. */
const hex = (length: number) => {
  const digits = { unit: fc.constantFrom(...'0123456789abcdef'), minLength: length, maxLength: length };
  return mostly(fc.string(digits), fc.constant('0'.repeat(length)));
};
const version = fc.constantFrom('00', '00', '00', '01', 'ff');
const end = fc.constantFrom('', '', '', '\n', '-');
const traceparents = fc.oneof(
  text,
  fc.tuple(version, hex(32), hex(16), hex(2), end).map((parts) => parts.slice(0, 4).join('-') + parts[4]),
);

/** Well-formed entries of which payload, recipients or key are strange, so that more than the first check decides. */
export const strangeIntent: fc.Arbitrary<EntryFields> = fc
  .constantFrom(...NOTIFICATION_TYPES)
  .chain((type) => {
    return fc.tuple(
      fc.constant(type),
      fc.constantFrom(...audiencesOf(type)),
      fc.record(
        {
          payload_json: membersOf(samplePayload(type)),
          recipient_user_ids_json: userIds,
          idempotency_key: fc.oneof(text, fc.string({ unit: 'binary', minLength: 1 })),
          occurred_at_ms: fc.oneof(msBetween(946_684_800_000, 1_999_999_999_999), text),
          deliver_at_ms: mostly(msBetween(946_684_800_000, 1_800_000_000_000), text),
          expires_at_ms: fc.oneof(
            msBetween(2_000_000_000_000, 2_500_000_000_000),
            msBetween(0, 2_500_000_000_000),
            mostly(fc.nat().map(String), text),
          ),
          request_id: text,
          traceparent: traceparents,
        },
        { requiredKeys: ['payload_json'] },
      ),
    );
  })
  .map(([type, audience, changes]) => {
    const { recipient_user_ids_json: _recipients, ...others } = changes;
    return entryOf(type, audience === 'user' ? changes : others, audience);
  });
