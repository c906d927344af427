/**
 * The entrances that fuzz.unit.test.ts leaves: what people and other programs send to workflows of
 * subscriptions and to receivers, and files of operators. Each case ends with a verdict, and no verdict, answer
 * or line of the log quotes what was planted in it. FUZZ_CASES sets how many there are.
 */
import { ApplicationFailure } from '@temporalio/common';
import fc from 'fast-check';
import { AddressError, parseBinaryAddress } from '../../api/subscription/router-address.ts';
import { importedQueueSchema, tokenRequestSchema } from '../../api/subscription/requests.ts';
import { parseTraceparent } from '../../api/ids.ts';
import { verdictsOf } from '../../cli/intent/intents.ts';
import { createCallbackReceiver, memoryCallbackStore } from '../../client/account-callback/receiver.ts';
import { createCollectorReceiver } from '../../client/symbol-config/receiver.ts';
import { loadConfig } from '../../config/load.ts';
import { ConfigError } from '../../config/variables.ts';
import * as requests from '../../workflows/subscription/requests.ts';
import { scratchFolder } from '../scratch.ts';
import { fuzz, json, plantedIn, text } from './nasty-inputs.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const PLANTED = 'pl4nted';

const planted = (texts: fc.Arbitrary<string>) => plantedIn(PLANTED, texts);

/** A value of any shape, often near to a good one: members are replaced, and have the mark. */
function near(...good: object[]): fc.Arbitrary<unknown> {
  const strange = fc.oneof(
    planted(text),
    fc.anything({ maxDepth: 2 }),
    fc.constantFrom(null, undefined, -1, 0, 1e9, NaN, true, [], {}, '', '\0'),
    fc.array(planted(text), { maxLength: 3 }),
  );
  const changed = fc
    .tuple(fc.constantFrom(...good), fc.array(fc.tuple(fc.nat(), strange), { maxLength: 3 }))
    .map(([whole, changes]) => {
      const copy = structuredClone(whole);
      for (const [which, value] of changes) {
        const places = placesIn(copy);
        const [owner, name] = places[which % places.length]!;
        owner[name] = value;
      }
      return copy;
    });
  return fc.oneof({ weight: 5, arbitrary: changed }, { weight: 1, arbitrary: strange });
}

/** Every member of a value, at any depth. */
function placesIn(value: object): [Record<string, unknown>, string][] {
  return Object.entries(value).flatMap(([name, member]) => [
    [value as Record<string, unknown>, name] as [Record<string, unknown>, string],
    ...(typeof member === 'object' && member !== null ? placesIn(member as object) : []),
  ]);
}

/** JSON near to good values. It has no bigint. */
const nearJson = (...good: object[]): fc.Arbitrary<string> =>
  near(...good).map(
    (value) =>
      JSON.stringify(value, (_, member: unknown) => (typeof member === 'bigint' ? String(member) : member)) ??
      '',
  );

/** A check that takes a value, or refuses it by name without a quotation. */
function takesOrRefuses(kind: abstract new (...args: never[]) => Error, check: () => unknown): void {
  try {
    check();
  } catch (error) {
    expect(error).toBeInstanceOf(kind);
    expect((error as Error).message).not.toContain(PLANTED);
  }
}

const PRINT = 'a'.repeat(43);
const SERVER = { host: 'smp.example.com', port: 5223, keyHash: PRINT };
const IDS = { connIds: ['aaaaaaaaaaaaaaaa', 'b'] };
const commands = near(
  { ...IDS, enable: true },
  { connId: 'a', server: SERVER },
  { protocol: 'smp', ...SERVER },
  { requestId: '00000000-0000-0000-0000-000000000000' },
  { kind: 'create', ...IDS },
);
const checks = [
  requests.checkList,
  requests.checkToggle,
  requests.checkRequestId,
  requests.checkRetry,
  requests.checkTrust,
] as ((request: unknown) => void)[];

fuzz(
  'N1 N17 whatever is asked of a subscription is taken or refused by name, and never quoted',
  0.3,
  [commands],
  (request) => {
    expect(typeof requests.isCommand(request)).toBe('boolean');
    for (const check of checks) takesOrRefuses(ApplicationFailure, () => check(request));
  },
);

const queues = near(
  { server: { ...SERVER, port: 1 }, recipientId: 'a'.repeat(32), userId: 1 },
  { device: { provider: 'AT', token: 'aa' }, verification: { nonce: 'n', code: 'c' } },
);
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
  'N1 N17 queues to import, requests for tokens and addresses of routers are taken or refused, and never quoted',
  0.3,
  [queues, address],
  (request, where) => {
    for (const schema of [importedQueueSchema, tokenRequestSchema]) {
      const { error } = schema.safeParse(request);
      // As people are told: where, and what is wrong there.
      for (const { message } of error?.issues ?? []) expect(message).not.toContain(PLANTED);
    }
    takesOrRefuses(AddressError, () => parseBinaryAddress(where));
    parseTraceparent(where);
  },
);

const scratch = scratchFolder('fuzz');
const target = { name: 'eu', kind: 'price_collector', geo: 'eu', url: 'https://collector.eu/symbols' };

fuzz(
  'S1 I30 any file of targets is a list of them, or an error that quotes no value of it',
  0.1,
  [fc.oneof(nearJson([target]), json)],
  (written) => {
    const file = scratch.write('targets.json', written);
    takesOrRefuses(ConfigError, () => loadConfig({ NOTIFICATION_SYMBOL_TARGETS_FILE: file }));
  },
);

const intent = {
  notification_type: 'game.turn.ready',
  ...{ producer: 'game_master', audience_kind: 'user', recipient_user_ids_json: '["u"]' },
  ...{ idempotency_key: 'k', occurred_at_ms: '1790000000000' },
  payload_json: '{"game_id":"g","game_name":"G","turn_number":1}',
};
const lines = fc.array(json, { maxLength: 3 }).map((texts) => texts.join('\n'));

fuzz(
  'I70 any file given to `intents validate` has a verdict for each of its intents, and none quotes a value of it',
  0.2,
  [fc.oneof(nearJson(intent, [intent, intent]), json, lines)],
  (written) => {
    for (const verdict of verdictsOf(GALAXY, written)) {
      if (!('code' in verdict)) continue;
      expect(verdict.code).toMatch(/^[a-z_]+$/);
      expect(verdict.problem).not.toContain(PLANTED);
    }
  },
);

const logged: string[] = [];
const keep = (fields: object, message: string) => void logged.push(JSON.stringify(fields) + message);
const trusting = { log: { info: keep, error: keep }, acceptsUnsigned: true } as const;
const callbacks = createCallbackReceiver({ store: memoryCallbackStore(), ...trusting });
const forgetful = { read: async () => undefined, write: async () => undefined } as never;
const symbols = await createCollectorReceiver({ ...trusting, defaults: [], store: forgetful });
const body = fc.oneof(
  planted(json),
  nearJson({ version: 1, symbols: [{ symbol: 'BTC' }] }, { peakValue: '1', bottomValue: '1' }),
);

fuzz(
  'C5 S1 whatever is sent to a receiver is answered, and never quoted in its log',
  0.2,
  [body, planted(text)],
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
