/** The producer module: what it builds, what it refuses, what it appends. */
import { connect } from 'node:net';
import { Redis } from 'ioredis';
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { envelopeOf } from '../../api/intent/entry.ts';
import * as producer from '../../client/notificationintent.ts';
import type { NotificationIntent } from '../../client/notificationintent.ts';
import {
  InvalidIntentError,
  newGameTurnReady,
  newLobbyApplicationSubmitted,
  publishIntent,
} from '../../client/notificationintent.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { NOTIFICATION_TYPES, audiencesOf, fieldsOf, parseIntent, specOf } from './galaxy.ts';

const CONSTRUCTORS: Record<string, NotificationType> = {
  newGeoReviewRecommended: 'geo.review_recommended',
  newGameTurnReady: 'game.turn.ready',
  newGameFinished: 'game.finished',
  newGameGenerationFailed: 'game.generation_failed',
  newLobbyRuntimePausedAfterStart: 'lobby.runtime_paused_after_start',
  newLobbyApplicationSubmitted: 'lobby.application.submitted',
  newLobbyMembershipApproved: 'lobby.membership.approved',
  newLobbyMembershipRejected: 'lobby.membership.rejected',
  newLobbyMembershipBlocked: 'lobby.membership.blocked',
  newLobbyInviteCreated: 'lobby.invite.created',
  newLobbyInviteRedeemed: 'lobby.invite.redeemed',
  newLobbyInviteExpired: 'lobby.invite.expired',
  newLobbyRaceNameRegistrationEligible: 'lobby.race_name.registration_eligible',
  newLobbyRaceNameRegistered: 'lobby.race_name.registered',
  newLobbyRaceNameRegistrationDenied: 'lobby.race_name.registration_denied',
  newRuntimeImagePullFailed: 'runtime.image_pull_failed',
  newRuntimeContainerStartFailed: 'runtime.container_start_failed',
  newRuntimeStartConfigInvalid: 'runtime.start_config_invalid',
};

/** As a caller without types sees a constructor. */
type AnyConstructor = (options: Record<string, unknown>) => NotificationIntent;
const constructorNamed = (name: string) => (producer as unknown as Record<string, AnyConstructor>)[name]!;
const untyped = newGameTurnReady as unknown as AnyConstructor;

const samplePayload = (type: NotificationType): Record<string, unknown> =>
  Object.fromEntries(
    fieldsOf(type).map((field) => [
      field,
      /_ms$|turn_number$/.test(field) ? 1_775_121_700_000 : `a ${field}`,
    ]),
  );

const TURN = {
  idempotencyKey: 'game-7/turn-54',
  occurredAt: 1_775_121_700_000,
  recipientUserIds: ['user-2', 'user-1'],
  payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
};

/** What the service reads from the fields of an intent. */
function readBack(fields: [string, string][], entryId = '1-0'): Intent {
  const parsed = parseIntent(
    entryId,
    fields.map(([name, value]) => [Buffer.from(name), Buffer.from(value)]),
  );
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  return parsed.intent;
}

function refusalOf(build: () => unknown): { code: string; message: string } {
  try {
    build();
  } catch (error) {
    if (error instanceof InvalidIntentError) return { code: error.code, message: error.message };
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('constructors', () => {
  test('I37 there is one for each of the eighteen types', () => {
    const exported = Object.keys(producer).filter((name) => /^new(?!Intent$)/.test(name));

    expect(exported.sort()).toEqual(Object.keys(CONSTRUCTORS).sort());
    expect(Object.values(CONSTRUCTORS).sort()).toEqual([...NOTIFICATION_TYPES].sort());
    expect(exported).toHaveLength(18);
  });

  test.each(Object.entries(CONSTRUCTORS))('I37 %s builds what the service reads as %s', (name, type) => {
    for (const audience of audiencesOf(type)) {
      const intent = constructorNamed(name)({
        idempotencyKey: 'key-1',
        occurredAt: new Date(1_775_121_700_000),
        requestId: 'request-1',
        traceId: 'trace-1',
        payload: { ...samplePayload(type), extra: { passes: ['through', 1, null] } },
        ...(audience === 'user' ? { recipientUserIds: ['user-2', 'user-1'] } : { audience: 'admin_email' }),
      });

      expect(intent).toEqual({
        notificationType: type,
        producer: specOf(type).producer,
        audienceKind: audience,
        recipientUserIds: audience === 'user' ? ['user-2', 'user-1'] : [],
        idempotencyKey: 'key-1',
        occurredAtMs: 1_775_121_700_000,
        payloadJson: expect.any(String),
        requestId: 'request-1',
        traceId: 'trace-1',
      });
      expect(JSON.parse(intent.payloadJson)).toEqual({
        ...samplePayload(type),
        extra: { passes: ['through', 1, null] },
      });
      expect(readBack(Object.entries(envelopeOf(intent)), '7-7')).toEqual({
        ...intent,
        notificationId: '7-7',
      });
    }
  });

  test('I37 administrators need no word, except where users are possible too', () => {
    const payload = { game_id: 'g', game_name: 'n', failure_reason: 'r' };

    expect(
      producer.newGameGenerationFailed({ idempotencyKey: 'key-1', occurredAt: Date.now(), payload })
        .audienceKind,
    ).toBe('admin_email');
  });

  test('I37 an application whose owner was forgotten does not go to the administrators', () => {
    const payload = { game_id: 'g', game_name: 'n', applicant_user_id: 'user-9', applicant_name: 'Ada' };
    const application = constructorNamed('newLobbyApplicationSubmitted');
    const mistakes = [
      {},
      { recipientUserIds: undefined },
      { audience: 'user' },
      { audience: 'admin_email', recipientUserIds: ['user-1'] },
    ];

    for (const mistake of mistakes) {
      expect(
        refusalOf(() =>
          application({ idempotencyKey: 'a', occurredAt: 1_790_000_000_000, payload, ...mistake }),
        ).code,
      ).toBe('invalid_recipients');
    }
  });

  test('I37 an application goes to the owner of a private game or to the administrators of a public one', () => {
    const payload = { game_id: 'g', game_name: 'n', applicant_user_id: 'user-9', applicant_name: 'Ada' };

    const toOwner = newLobbyApplicationSubmitted({
      idempotencyKey: 'a',
      occurredAt: Date.now(),
      recipientUserIds: ['user-1'],
      payload,
    });
    const toAdministrators = newLobbyApplicationSubmitted({
      idempotencyKey: 'b',
      occurredAt: Date.now(),
      audience: 'admin_email',
      payload,
    });

    expect(toOwner).toMatchObject({ audienceKind: 'user', recipientUserIds: ['user-1'] });
    expect(toAdministrators).toMatchObject({ audienceKind: 'admin_email', recipientUserIds: [] });
    expect(toOwner.payloadJson).toBe(toAdministrators.payloadJson);
    expect(envelopeOf(toAdministrators)).not.toHaveProperty('recipient_user_ids_json');
  });

  test('intent-D10 I37 the time is asked for: one that is made up would make a repeat a conflict', () => {
    const { occurredAt: _given, ...options } = TURN;

    expect(() => untyped(options)).toThrow(/occurred_at_ms must be whole milliseconds/);
    expect(newGameTurnReady({ ...TURN, occurredAt: new Date(1_790_000_000_005) }).occurredAtMs).toBe(
      1_790_000_000_005,
    );
    expect(newGameTurnReady(TURN)).toEqual(newGameTurnReady(TURN));
  });

  test('I37 the payload is canonical, so equal events give equal entries', () => {
    const { payload } = TURN;
    const reordered = Object.fromEntries(Object.entries(payload).reverse()) as typeof payload;

    expect(newGameTurnReady({ ...TURN, payload: reordered }).payloadJson).toBe(
      newGameTurnReady(TURN).payloadJson,
    );
  });

  test.each([
    ['a blank key', { idempotencyKey: ' ' }, 'invalid_envelope', 'idempotency_key'],
    ['a key with control characters', { idempotencyKey: 'a\nb' }, 'invalid_envelope', 'idempotency_key'],
    ['a long key', { idempotencyKey: 'x'.repeat(1_025) }, 'invalid_envelope', 'idempotency_key'],
    ['a key that UTF-8 would change', { idempotencyKey: 'a\ud800' }, 'invalid_envelope', 'idempotency_key'],
    ['a long request id', { requestId: 'x'.repeat(1_025) }, 'invalid_envelope', 'request_id'],
    ['a trace id with control characters', { traceId: '\0' }, 'invalid_envelope', 'trace_id'],
    ['no date', { occurredAt: new Date(Number.NaN) }, 'invalid_envelope', 'occurred_at_ms'],
    ['no number', { occurredAt: Number.NaN }, 'invalid_envelope', 'occurred_at_ms'],
    ['a time before 1970', { occurredAt: -1 }, 'invalid_envelope', 'occurred_at_ms'],
    ['a part of a millisecond', { occurredAt: 1.5 }, 'invalid_envelope', 'occurred_at_ms'],
    ['newcomer-11 a time in seconds', { occurredAt: 1_790_000_000 }, 'invalid_envelope', 'occurred_at_ms'],
    ['a time in nanoseconds', { occurredAt: 1.775e18 }, 'invalid_envelope', 'occurred_at_ms'],
    ['no recipients', { recipientUserIds: [] }, 'invalid_recipients', 'recipient_user_ids_json'],
    ['a recipient twice', { recipientUserIds: ['a', 'a'] }, 'invalid_recipients', 'recipient_user_ids_json'],
    ['a blank recipient', { recipientUserIds: ['a', ''] }, 'invalid_recipients', 'recipient_user_ids_json'],
    ['a broken recipient', { recipientUserIds: ['\ud800'] }, 'invalid_recipients', 'recipient_user_ids_json'],
    [
      'recipients left out',
      { recipientUserIds: undefined },
      'invalid_recipients',
      'recipient_user_ids_json is required',
    ],
    ['an audience of other types', { audience: 'admin_email' }, 'invalid_audience', 'audience_kind'],
    ['no key', { idempotencyKey: undefined }, 'invalid_envelope', 'idempotency_key'],
    ['a key that is no text', { idempotencyKey: 54 }, 'invalid_envelope', 'idempotency_key'],
    ['a request id that is no text', { requestId: null }, 'invalid_envelope', 'request_id'],
    ['a request id that UTF-8 would change', { requestId: '\udc00' }, 'invalid_envelope', 'request_id'],
    ['no payload', { payload: undefined }, 'invalid_payload', 'payload_json'],
    ['an array as payload', { payload: [] }, 'invalid_payload', 'payload_json'],
    [
      'a payload field left out',
      { payload: { game_id: 'g', game_name: 'n' } },
      'invalid_payload',
      'turn_number',
    ],
    ['a blank payload field', { payload: { ...TURN.payload, game_id: ' ' } }, 'invalid_payload', 'game_id'],
    [
      'text for a number',
      { payload: { ...TURN.payload, turn_number: '54' } },
      'invalid_payload',
      'turn_number',
    ],
    [
      'an entry too large',
      { payload: { ...TURN.payload, x: 'x'.repeat(1_048_576) } },
      'entry_too_large',
      'bytes',
    ],
    [
      'a payload too large',
      { payload: { ...TURN.payload, x: 'x'.repeat(262_144) } },
      'invalid_payload',
      'bytes',
    ],
  ])('I37 %s is refused with the code and the field', (_what, change, code, field) => {
    const refusal = refusalOf(() => untyped({ ...TURN, ...change }));

    expect(refusal.code).toBe(code);
    expect(refusal.message).toContain(field);
  });

  test('I37 administrators are not named by producers', () => {
    const options = { ...TURN, payload: { game_id: 'g', game_name: 'n', failure_reason: 'r' } };

    expect(refusalOf(() => constructorNamed('newGameGenerationFailed')(options)).code).toBe(
      'invalid_recipients',
    );
  });

  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  test.each([
    ['undefined', undefined],
    ['NaN', Number.NaN],
    ['Infinity', Number.POSITIVE_INFINITY],
    ['a bigint', 54n],
    ['a function', () => 54],
    ['a symbol', Symbol('s')],
    ['an integer beyond 2^53', 2 ** 53],
    ['a lone surrogate', '\ud800'],
    ['a NUL character', 'a\0'],
    ['a circle', circular],
  ])('I37 payload values that JSON would lose are refused: %s', (_what, value) => {
    const payloads: Record<string, unknown>[] = [
      { ...TURN.payload, note: value },
      { ...TURN.payload, outer: { note: value } },
      { ...TURN.payload, list: [1, value] },
    ];
    for (const payload of payloads) {
      const refusal = refusalOf(() => untyped({ ...TURN, payload }));
      expect(refusal.code).toBe('invalid_payload');
      expect(refusal.message).toMatch(/^payload_json /);
    }
  });

  test('I37 the field of a lossy value is named', () => {
    const refusal = refusalOf(() =>
      newGameTurnReady({ ...TURN, payload: { ...TURN.payload, note: undefined } }),
    );

    expect(refusal.message).toBe('payload_json field note: undefined has no JSON form');
  });
});

describe('publication', () => {
  let slot: Slot;

  beforeAll(async () => {
    slot = await takeSlot();
  });

  afterAll(() => slot.release());

  beforeEach(() => slot.redis.flushdb());

  /**
   * Every command that Redis gets for this slot while `act` runs. ioredis takes commands that it hears of together with
   * the answer to MONITOR for answers.
   */
  async function commandsDuring(act: () => Promise<unknown>): Promise<string[][]> {
    const { host, port } = slot.endpoints.redis;
    const monitor = connect(port, host);
    let heard = '';
    monitor.setEncoding('utf8').on('data', (more) => (heard += String(more)));
    const commands = (): string[][] =>
      [...heard.matchAll(/^\+[\d.]+ \[(\d+) [^\]]*\] (.*)\r$/gm)]
        .filter(([, database]) => database === String(slot.slot))
        .map(([, , args]) =>
          (args!.match(/"(?:[^"\\]|\\.)*"/g) ?? []).map((arg) => JSON.parse(arg) as string),
        );
    try {
      monitor.write('MONITOR\r\n');
      await eventually('Redis to tell', async () => heard.startsWith('+OK'));
      await act();
      await slot.redis.echo('that is all');
      await eventually(
        'the end of the commands',
        async () => commands().at(-1)?.[0]?.toLowerCase() === 'echo',
      );
    } finally {
      monitor.destroy();
    }
    return commands().slice(0, -1);
  }

  test('I37 the entry is the envelope, appended with one plain XADD on a client that stays open', async () => {
    const intent = newGameTurnReady({ ...TURN, requestId: 'request-1' });
    let notificationId = '';

    const commands = await commandsDuring(async () => {
      notificationId = await publishIntent(slot.redis, intent);
    });

    const fields = Object.entries(envelopeOf(intent)).flat();
    expect(commands).toEqual([['xadd', 'notification:intents', '*', ...fields]]);
    expect(await slot.redis.xrange('notification:intents', '-', '+')).toEqual([[notificationId, fields]]);
    expect(slot.redis.status).toBe('ready');
  });

  test('I37 what the service reads from the stream is the intent', async () => {
    const intent = newGameTurnReady({
      ...TURN,
      payload: { ...TURN.payload, note: 'Zoë 🚀', ['__proto__']: 1 },
    });
    const notificationId = await publishIntent(slot.redis, intent);

    const [[id, fields] = ['', []]] = await slot.redis.xrangeBuffer('notification:intents', '-', '+');
    const pairs = Array.from(
      { length: fields.length / 2 },
      (_, index) => [fields[2 * index]!, fields[2 * index + 1]!] as const,
    );
    expect(parseIntent(id.toString(), pairs)).toEqual({ ok: true, intent: { ...intent, notificationId } });
  });

  test('I37 nothing is trimmed, and another stream can be named', async () => {
    const intents = Array.from({ length: 1_500 }, (_, turn) =>
      newGameTurnReady({ ...TURN, idempotencyKey: `turn-${turn}` }),
    );
    const ids = await Promise.all(
      intents.map((intent) => publishIntent(slot.redis, intent, { stream: 'other' })),
    );

    expect(new Set(ids).size).toBe(1_500);
    expect(await slot.redis.xlen('other')).toBe(1_500);
    expect(await slot.redis.exists('notification:intents')).toBe(0);
  });

  test("I37 an error of Redis is the caller's, after exactly one command, and the client stays open", async () => {
    await slot.redis.set('notification:intents', 'no stream');
    let failure: unknown;

    const commands = await commandsDuring(async () => {
      failure = await publishIntent(slot.redis, newGameTurnReady(TURN)).catch((error: unknown) => error);
    });

    expect(failure).toMatchObject({ name: 'ReplyError', message: expect.stringMatching(/^WRONGTYPE/) });
    expect(commands.map(([name]) => name)).toEqual(['xadd']);
    expect(slot.redis.status).toBe('ready');
  });

  test("I37 an error of the caller's client is passed on as it is and not tried again", async () => {
    const { host, port } = slot.redis.options;
    const client = new Redis({ host: host!, port: port!, lazyConnect: true, retryStrategy: null });
    await client.connect();
    client.disconnect();
    await new Promise((resolve) => client.once('end', resolve));
    const sent = jest.spyOn(client, 'xadd');

    const failure = await publishIntent(client, newGameTurnReady(TURN)).catch((error: unknown) => error);

    expect(sent).toHaveBeenCalledTimes(1);
    expect(failure).toBeInstanceOf(Error);
    expect(failure).toBe(
      await (sent.mock.results[0]!.value as Promise<unknown>).catch((error: unknown) => error),
    );
    expect(client.status).toBe('end');
    expect(await slot.redis.exists('notification:intents')).toBe(0);
  });

  test('I37 a client that appends nothing is an error', async () => {
    const redis = { xadd: async () => null };

    await expect(publishIntent(redis, newGameTurnReady(TURN), { stream: 's' })).rejects.toThrow(
      'Redis appended nothing to s',
    );
  });
});
