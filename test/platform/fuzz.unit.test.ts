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
import { VARIABLES } from '../../config/load.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import { expectStorable } from '../intent/entries.ts';
import { goodIntents, intentEntry, strangeIntent } from '../intent/fuzzed-entries.ts';
import { ADMIN_EMAIL_VARIABLES, materializeRoutes, parseIntent } from '../intent/galaxy.ts';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { verdictsOf } from '../../cli/intent/intents.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import { createCollectorReceiver } from '../../client/symbol-config/receiver.ts';
import { problemsOf } from './config-problems.ts';
import { NASTY_JSON, NASTY_TEXTS, bytes, disturbed, fuzz, json, text } from './nasty-inputs.ts';

const ID = '1775121700000-0';
/** No text column takes the others. */
const isStorable = (value: string): boolean => !value.includes('\0') && value.isWellFormed();

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
  const email = 'a@example.com';
  const recipients = recipientUserIds.map((userId) => ({ userId, email, locale: 'en' as const }));
  const audience =
    intent.audienceKind === 'user'
      ? ({ kind: 'user', recipients } as const)
      : ({ kind: 'admin_email', emails: [email] } as const);
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

fuzz('I4 I6 I8 every entry of intents is an intent or a malformed row', 500, [intentEntry], expectDecided);

/** Names and texts anywhere in it. */
function textsOf(content: object): string[] {
  const texts: string[] = [];
  JSON.stringify(content, (name, value: unknown) => {
    texts.push(name, ...(typeof value === 'string' ? [value] : []));
    return value;
  });
  return texts;
}

const JOB = {
  userId: 'u',
  title: 't',
  body: 'b',
  channel: 'c',
  badge: '1',
  data: '{"a":1}',
  priority: 'high',
};
const goodJobs: EntryFields[] = [
  entryFieldsOf(JOB),
  entryFieldsOf({ payload: '{"userId":"u","title":"t","body":"b","channel":"c","badge":1,"data":{"a":1}}' }),
];
const jobEntry = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...goodJobs).chain(disturbed) },
  { weight: 2, arbitrary: json.map((payload) => entryFieldsOf({ payload })) },
  { weight: 1, arbitrary: fc.array(fc.tuple(bytes, bytes), { maxLength: 20 }) },
);

fuzz('M1 every entry of jobs is a job or a malformed row that can be stored', 150, [jobEntry], (fields) => {
  const parsed = parseMobileJob(ID, fields);
  if (parsed.ok) {
    const { userId, content } = parsed.job;
    expect([userId, ...textsOf(content)].every(isStorable)).toBe(true);
    return;
  }
  const { failureCode, failureMessage, rawFields, userId = '' } = parsed.malformed;
  expect(MALFORMED_JOB_CODES).toContain(failureCode);
  expect([failureMessage, userId, ...Object.entries(rawFields).flat()].every(isStorable)).toBe(true);
});

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

const inputEntry = fc.oneof(input, fc.constantFrom(...goodInputs).chain(disturbed));

fuzz('C7 every account input is taken, or has a reason that is short', 100, [inputEntry], (fields) => {
  const parsed = parseCallbackInput(fields, 90_000_000);
  if (!parsed.ok) expect(parsed.message.length).toBeLessThan(500);
  else expect(JSON.parse(JSON.stringify(parsed.input))).toEqual(parsed.input);
});

/** @returns the text with the mark somewhere in it. */
function withMark(text: string, at: number, mark: string): string {
  const place = at % (text.length + 1);
  return text.slice(0, place) + mark + text.slice(place);
}

/** The address of a user, at any place of any value. */
const QUOTED = /pl4nted|person\.example/;
const plantedEntry = (entry: fc.Arbitrary<EntryFields>): fc.Arbitrary<EntryFields> =>
  fc.tuple(entry, fc.nat(), fc.nat()).map(([fields, which, where]) =>
    fields.map(([name, value], at) => {
      if (at !== which % fields.length) return [name, value] as const;
      const marked = withMark(value.toString('latin1'), where, 'pl4nted@person.example');
      return [name, Buffer.from(marked, 'latin1')] as const;
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

const saidOfPlanted = fc
  .constantFrom('intent', 'intent', 'job', 'input')
  .chain((kind) => plantedEntry(entries[kind]).map((fields) => SAID[kind](fields)));

fuzz(
  'I6 M1 C7 security-18 nothing that is said of an entry quotes a value of it',
  400,
  [saidOfPlanted],
  (said) => expect(said).not.toMatch(QUOTED),
);

const PLANTED = 'pl4nted';
const rows = Object.entries<z.ZodType>({ ...VARIABLES, ...ADMIN_EMAIL_VARIABLES });
const NUMBERS =
  '0 -1 1e400 99999999999999999999 1h 1ms true , : a:b [::1]:1 http:// postgres://u:p@h/d'.split(' ');
const setting = fc
  .tuple(fc.constantFrom(...rows), fc.oneof(text, json, fc.constantFrom(...NUMBERS)))
  .map(([[name, schema], value]) => [name, schema.meta()?.secret ? `${PLANTED} ${value}` : value] as const);
const environment = fc
  .tuple(fc.array(setting, { maxLength: 8 }), fc.constantFrom('production', 'development'))
  .map(([settings, NODE_ENV]) => ({ NODE_ENV, ...Object.fromEntries(settings) }));

fuzz(
  'I30 any environment is taken, or its problems name variables and show no secret',
  100,
  [environment],
  (env) => {
    const problems = problemsOf(env);
    expect(problems.filter((problem) => !/^[A-Z][A-Z0-9_]+ /.test(problem))).toEqual([]);
    expect(problems.join()).not.toContain(PLANTED);
  },
);

const planted = (texts: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(texts, fc.nat()).map(([value, at]) => withMark(value, at, PLANTED));

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
  'N1 N17 addresses of routers and traces are taken or refused, and never quoted',
  300,
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
  'I70 `intents validate` has verdicts for any file, and none quotes a value of it',
  200,
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

const sent = [planted(json), planted(text)] as [fc.Arbitrary<string>, fc.Arbitrary<string>];
fuzz(
  'C5 S1 whatever is sent to a receiver is answered, and never quoted in its log',
  200,
  sent,
  async (body, where) => {
    const answers = [
      await callbacks.answer({ path: `/users/${where}/hourly/0`, headers: {}, body }),
      await callbacks.answer({ path: '/v1/users/ann/extremes/hourly/0', headers: {}, body }),
      await symbols.answer({ headers: {}, body }),
    ];
    for (const { status } of answers) expect([200, 400, 401, 404, 409, 413, 422]).toContain(status);
    expect(logged.splice(0).join()).not.toContain(PLANTED);
  },
);
