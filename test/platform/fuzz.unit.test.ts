/**
 * Whatever comes in from outside: entries of the streams, configuration, addresses, what other programs send to
 * receivers, and files of operators. Never an exception where a decision is due, nothing
 * that PostgreSQL or Temporal would refuse later, and no verdict, answer or line of the log that quotes what was planted.
 * FUZZ_CASES sets how many cases there are.
 */
import fc from 'fast-check';
import type { z } from 'zod';
import { parseCallbackInput } from '../../api/account-callback/input.ts';
import { fingerprintOf, MALFORMED_CODES, entryFieldsOf, envelopeOf } from '../../api/intent/entry.ts';
import { parseTraceparent, routeRefOf, searchableKey } from '../../api/ids.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { MALFORMED_JOB_CODES, parseMobileJob } from '../../api/mobile-push/job.ts';
import { VARIABLES, loadConfig } from '../../config/load.ts';
import { ConfigError } from '../../config/variables.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import { expectStorable } from '../intent/entries.ts';
import { goodIntents, intentEntry, strangeIntent } from '../intent/fuzzed-entries.ts';
import { ADMIN_EMAIL_VARIABLES, materializeRoutes, parseIntent } from '../intent/galaxy.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { verdictsOf } from '../../cli/intent/intents.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import { createCollectorReceiver } from '../../client/symbol-config/receiver.ts';
import { NASTY_JSON, NASTY_TEXTS, bytes, disturbed, fuzz, json, text } from './nasty-inputs.ts';

const ID = '1775121700000-0';
/** What no text column takes. */
const UNSTORABLE = /\0/;

const isStorable = (value: string): boolean => !UNSTORABLE.test(value) && value.isWellFormed();

function expectDecided(fields: EntryFields): void {
  const parsed = parseIntent(ID, fields);
  if (!parsed.ok) {
    expect(MALFORMED_CODES).toContain(parsed.malformed.failureCode);
    expectStorable(parsed.malformed);
    return;
  }
  const { intent } = parsed;
  const { idempotencyKey, payloadJson, requestId = '', recipientUserIds } = intent;
  expect([idempotencyKey, payloadJson, requestId, ...recipientUserIds].every(isStorable)).toBe(true);
  JSON.parse(payloadJson);
  // What is accepted is accepted again as the same, and no recipient is left out.
  const again = parseIntent(ID, entryFieldsOf(envelopeOf(intent)));
  expect(again.ok && fingerprintOf(again.intent)).toBe(fingerprintOf(intent));
  const recipients = recipientUserIds.map((userId) => ({
    userId,
    email: 'a@example.com',
    locale: 'en' as const,
  }));
  const audience =
    intent.audienceKind === 'user'
      ? ({ kind: 'user', recipients } as const)
      : ({ kind: 'admin_email', emails: ['a@example.com'] } as const);
  const routes = materializeRoutes(intent.notificationType, audience, { push: 3, email: 7 });
  expect(new Set(routes.map(({ routeId }) => routeId)).size).toBe(2 * Math.max(1, recipients.length));
  // Temporal takes these ids.
  const ids = routes.map(({ routeId }) => routeWorkflowId(ID, routeRefOf(routeId)));
  expect(ids.filter((id) => !/^[\x20-\x7e]{1,255}$/.test(id))).toEqual([]);
}

test('I4 I6 I8 an entry with a nasty value in any field is an intent or a malformed row that can be stored', () => {
  for (const value of [...NASTY_TEXTS, ...NASTY_JSON])
    // A type for users and one for administrators; the others differ in names only.
    for (const good of [goodIntents[0]!, goodIntents[1]!])
      for (const index of good.keys())
        expectDecided(
          good.map(([name, own], at) => [name, at === index ? Buffer.from(value) : own] as const),
        );
});

fuzz(
  'I4 I6 I8 every entry of the intent stream is an intent or a malformed row',
  0.5,
  [intentEntry],
  expectDecided,
);

/** Names and texts anywhere in it. */
function textsOf(content: object): string[] {
  const texts: string[] = [];
  JSON.stringify(content, (name, value: unknown) => {
    texts.push(name, ...(typeof value === 'string' ? [value] : []));
    return value;
  });
  return texts;
}

const goodJobs: EntryFields[] = [
  entryFieldsOf({
    userId: 'u',
    title: 't',
    body: 'b',
    channel: 'c',
    badge: '1',
    data: '{"a":1}',
    priority: 'high',
  }),
  entryFieldsOf({ payload: '{"userId":"u","title":"t","body":"b","channel":"c","badge":1,"data":{"a":1}}' }),
];
const jobEntry = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...goodJobs).chain(disturbed) },
  { weight: 2, arbitrary: json.map((payload) => entryFieldsOf({ payload })) },
  { weight: 1, arbitrary: fc.array(fc.tuple(bytes, bytes), { maxLength: 20 }) },
);

fuzz(
  'M1 every entry of the stream of jobs is a job or a malformed row that can be stored',
  0.15,
  [jobEntry],
  (fields) => {
    const parsed = parseMobileJob(ID, fields);
    if (parsed.ok) {
      const { userId, content } = parsed.job;
      expect([userId, ...textsOf(content)].every(isStorable)).toBe(true);
      return;
    }
    const { failureCode, failureMessage, rawFields, userId = '' } = parsed.malformed;
    expect(MALFORMED_JOB_CODES).toContain(failureCode);
    for (const value of [failureMessage, userId, ...Object.entries(rawFields).flat()]) {
      expect(isStorable(value)).toBe(true);
    }
  },
);

const HOUR_FIELDS = '"peak_value":"2","peak_at_ms":1,"bottom_value":"-1","bottom_at_ms":1,"user_id":"u"';
const goodInputs = [
  `{"kind":"hour","hour_start_ms":0,"closing_value":"1.50",${HOUR_FIELDS}}`,
  `{"kind":"day","day":"1970-01-01",${HOUR_FIELDS}}`,
  '{"kind":"track","user_id":"u","from_ms":1}',
].map((payload) => entryFieldsOf({ payload }));
const field = fc.constantFrom(
  ...'kind hour_start_ms day from_ms user_id peak_value peak_at_ms closing_value __proto__'.split(' '),
);
const input = fc
  .tuple(
    fc.constantFrom('hour', 'day', 'track', 'untrack'),
    fc.array(fc.tuple(field, json), { maxLength: 6 }),
  )
  .map(([kind, fields]) =>
    entryFieldsOf({
      payload: `{"kind":"${kind}",${[...fields.map(([name, value]) => `"${name}":${value}`), HOUR_FIELDS].join()}}`,
    }),
  );

fuzz(
  'C7 every entry of the stream of account inputs is an input or a reason that quotes nothing of it',
  0.1,
  [fc.oneof(input, fc.constantFrom(...goodInputs).chain(disturbed))],
  (fields) => {
    const parsed = parseCallbackInput(fields, 90_000_000);
    if (!parsed.ok) expect(parsed.message.length).toBeLessThan(500);
    else expect(JSON.parse(JSON.stringify(parsed.input))).toEqual(parsed.input);
  },
);

/** The address of a user, at any place of any value. */
const PLANTED_ADDRESS = 'pl4nted@person.example';
const QUOTED = /pl4nted|person\.example/;
const plantedEntry = (entry: fc.Arbitrary<EntryFields>): fc.Arbitrary<EntryFields> =>
  fc.tuple(entry, fc.nat(), fc.nat()).map(([fields, which, where]) =>
    fields.map(([name, value], at) => {
      if (at !== which % fields.length) return [name, value] as const;
      const place = where % (value.length + 1);
      const parts = [value.subarray(0, place), Buffer.from(PLANTED_ADDRESS), value.subarray(place)];
      return [name, Buffer.concat(parts)] as const;
    }),
  );

const entries = {
  intent: fc.oneof(intentEntry, strangeIntent),
  job: jobEntry,
  input: fc.oneof(input, fc.constantFrom(...goodInputs)),
};
/** What is said of an entry: why it is refused, or the names that Temporal has of it. */
const SAID: Record<keyof typeof entries, (fields: EntryFields) => string> = {
  intent(fields) {
    const parsed = parseIntent(ID, fields);
    if (!parsed.ok) return parsed.malformed.failureMessage;
    return [parsed.intent.idempotencyKey, ...parsed.intent.recipientUserIds].map(searchableKey).join();
  },
  job(fields) {
    const parsed = parseMobileJob(ID, fields);
    return parsed.ok ? searchableKey(parsed.job.userId) : parsed.malformed.failureMessage;
  },
  input(fields) {
    const parsed = parseCallbackInput(fields, 90_000_000);
    return parsed.ok ? '' : parsed.message;
  },
};

fuzz(
  'I6 M1 C7 security-18 no refusal of an entry quotes a value of it, in Temporal and logs neither',
  0.4,
  [
    fc
      .constantFrom('intent', 'intent', 'job', 'input')
      .chain((kind) => fc.tuple(fc.constant(kind), plantedEntry(entries[kind]))),
  ],
  ([kind, fields]) => expect(SAID[kind](fields)).not.toMatch(QUOTED),
);

const PLANTED_SECRET = 'pl4nted-secret';
const rows = Object.entries<z.ZodType>({ ...VARIABLES, ...ADMIN_EMAIL_VARIABLES });
const setting = fc.tuple(
  fc.constantFrom(...rows),
  fc.oneof(
    text,
    json,
    fc.constantFrom(
      ...'0 -1 1e400 99999999999999999999 1h 1ms true , : a:b [::1]:1 http:// postgres://u:p@h/d'.split(' '),
    ),
  ),
);

fuzz(
  'I30 any environment is a configuration, or an error that names variables and shows no secret',
  0.1,
  [fc.array(setting, { maxLength: 8 }), fc.boolean()],
  (settings, isProduction) => {
    const env = Object.fromEntries(
      settings.map(([[name, schema], value]) => [
        name,
        schema.meta()?.secret ? `${PLANTED_SECRET} ${value}` : value,
      ]),
    );
    try {
      loadConfig({ ...env, ...(isProduction ? { NODE_ENV: 'production' } : {}) });
    } catch (error) {
      expect(error).toBeInstanceOf(ConfigError);
      for (const problem of (error as ConfigError).problems) expect(problem).toMatch(/^[A-Z][A-Z0-9_]+ /);
      expect((error as Error).message).not.toContain(PLANTED_SECRET);
    }
  },
);

const PLANTED = 'pl4nted';

/** A text with the mark somewhere in it. */
const planted = (texts: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(texts, fc.nat()).map(([value, at]) => {
    const place = at % (value.length + 1);
    return value.slice(0, place) + PLANTED + value.slice(place);
  });

const PRINT = 'a'.repeat(43);
const address = fc.oneof(
  planted(text),
  fc
    .tuple(fc.constantFrom('smp', 'ntf', 'http', ''), planted(text), fc.boolean(), planted(text))
    .map(
      ([scheme, password, isKnown, host]) => `${scheme}://${isKnown ? PRINT : ''}:${password}@${host}:5223`,
    ),
  planted(text).map((host) => `${host}:443#${PRINT}`),
);

fuzz(
  'N1 N17 addresses of routers and traces are taken or refused by name, and never quoted',
  0.3,
  [address],
  (where) => {
    parseTraceparent(where);
    try {
      parseBinaryAddress(where);
    } catch (error) {
      expect(error).toBeInstanceOf(AddressError);
      expect((error as Error).message).not.toContain(PLANTED);
    }
  },
);

const written = fc.oneof(
  plantedEntry(intentEntry).map((fields) =>
    JSON.stringify(Object.fromEntries(fields.map(([name, value]) => [String(name), String(value)]))),
  ),
  json,
  fc.array(json, { maxLength: 3 }).map((texts) => texts.join('\n')),
);

fuzz(
  'I70 any file given to `intents validate` has a verdict for each of its intents, and none quotes a value of it',
  0.2,
  [written],
  (content) => {
    for (const verdict of verdictsOf(GALAXY, content)) {
      if (!('code' in verdict)) continue;
      expect(verdict.code).toMatch(/^[a-z_]+$/);
      expect(verdict.problem).not.toMatch(QUOTED);
    }
  },
);

const logged: string[] = [];
const keep = (fields: object, message: string) => void logged.push(JSON.stringify(fields) + message);
const trusting = { log: { info: keep, error: keep }, acceptsUnsigned: true } as const;
const callbacks = createCallbackReceiver({ store: memoryCallbackStore(), ...trusting });
const forgetful = { read: async () => undefined, write: async () => undefined } as never;
const symbols = await createCollectorReceiver({ ...trusting, defaults: [], store: forgetful });

fuzz(
  'C5 S1 whatever is sent to a receiver is answered, and never quoted in its log',
  0.2,
  [planted(json), planted(text)],
  async (content, where) => {
    const answers = [
      await callbacks.answer({ path: `/users/${where}/hourly/0`, headers: {}, body: content }),
      await callbacks.answer({ path: '/v1/users/ann/extremes/hourly/0', headers: {}, body: content }),
      await symbols.answer({ headers: {}, body: content }),
    ];
    for (const { status } of answers) expect([200, 400, 401, 404, 409, 413, 422]).toContain(status);
    expect(logged.splice(0).join()).not.toContain(PLANTED);
  },
);
