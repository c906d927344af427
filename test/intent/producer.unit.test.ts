/** The producer module: what it builds, what it refuses, what it appends; and the stream in memory for tests of producers. */
import type { NotificationType } from '../../api/intent/catalog.ts';
import { entryFieldsOf, envelopeOf } from '../../api/intent/entry.ts';
import * as producer from '../../client/notificationintent.ts';
import type { NotificationIntent } from '../../client/notificationintent.ts';
import { InvalidIntentError, newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { createMemoryStream, expectPublished } from '../../client/testing.ts';
import { NOTIFICATION_TYPES, audiencesOf, parseIntent, specOf, samplePayload } from './galaxy.ts';

/** As `newGameTurnReady` of `game.turn.ready`. */
const constructorOf = (type: NotificationType): string =>
  `new${type.replaceAll(/(?:^|[._])(.)/g, (_, first: string) => first.toUpperCase())}`;

/** As a caller without types sees a constructor. */
type AnyConstructor = (options: Record<string, unknown>) => NotificationIntent;
const constructorNamed = (name: string) => (producer as unknown as Record<string, AnyConstructor>)[name]!;
const untyped = newGameTurnReady as unknown as AnyConstructor;

const TURN = {
  idempotencyKey: 'game-7/turn-54',
  occurredAt: 1_775_121_700_000,
  recipientUserIds: ['user-2', 'user-1'],
  payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
};

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
  test('I37 there is one for each type', () => {
    const exported = Object.keys(producer).filter((name) => /^new(?!Intent$)/.test(name));
    expect(exported.sort()).toEqual(NOTIFICATION_TYPES.map(constructorOf).sort());
  });

  test.each(NOTIFICATION_TYPES)('I37 the one of %s builds what the service reads', (type) => {
    for (const audience of audiencesOf(type)) {
      const payload = { ...samplePayload(type), extra: { passes: ['through', 1, null] } };
      const intent = constructorNamed(constructorOf(type))({
        ...{ idempotencyKey: 'key-1', occurredAt: new Date(1_775_121_700_000) },
        ...{ requestId: 'request-1', traceId: 'trace-1', payload },
        ...(audience === 'user' ? { recipientUserIds: ['user-2', 'user-1'] } : {}),
        // Administrators need no word, except where users are possible too.
        ...(audience === 'admin_email' && audiencesOf(type).length > 1 ? { audience } : {}),
      });
      expect(intent).toEqual({
        ...{ notificationType: type, producer: specOf(type).producer, audienceKind: audience },
        recipientUserIds: audience === 'user' ? ['user-2', 'user-1'] : [],
        ...{ idempotencyKey: 'key-1', occurredAtMs: 1_775_121_700_000 },
        ...{ payloadJson: expect.any(String), requestId: 'request-1', traceId: 'trace-1' },
      });
      expect(JSON.parse(intent.payloadJson)).toEqual(payload);
      const parsed = parseIntent('7-7', entryFieldsOf(envelopeOf(intent)));
      expect(parsed).toEqual({ ok: true, intent: { ...intent, notificationId: '7-7' } });
    }
  });

  test('I37 an application whose owner was forgotten does not go to the administrators', () => {
    const payload = { game_id: 'g', game_name: 'n', applicant_user_id: 'user-9', applicant_name: 'Ada' };
    const application = constructorNamed('newLobbyApplicationSubmitted');
    for (const mistake of [
      {},
      { recipientUserIds: undefined },
      { audience: 'user' },
      { audience: 'admin_email', recipientUserIds: ['user-1'] },
    ]) {
      const options = { idempotencyKey: 'a', occurredAt: TURN.occurredAt, payload, ...mistake };
      expect(refusalOf(() => application(options)).code).toBe('invalid_recipients');
    }
  });

  test('intent-D10 I37 the time is asked for: one that is made up would make a repeat a conflict', () => {
    expect(() => untyped({ ...TURN, occurredAt: undefined })).toThrow(
      /occurred_at_ms must be whole milliseconds/,
    );
    expect(newGameTurnReady({ ...TURN, occurredAt: new Date(1_790_000_000_005) }).occurredAtMs).toBe(
      1_790_000_000_005,
    );
  });

  const withPayload = (changes: object) => ({ payload: { ...TURN.payload, ...changes } });
  // Of what the service refuses, only what no entry can have in this form, and one of each field.
  test.each([
    ['a blank key', { idempotencyKey: ' ' }, 'invalid_envelope', 'idempotency_key'],
    ['no key', { idempotencyKey: undefined }, 'invalid_envelope', 'idempotency_key'],
    ['a key that is no text', { idempotencyKey: 54 }, 'invalid_envelope', 'idempotency_key'],
    ['a key that UTF-8 would change', { idempotencyKey: 'a\ud800' }, 'invalid_envelope', 'idempotency_key'],
    ['a request id that is no text', { requestId: 7 }, 'invalid_envelope', 'request_id'],
    ['a request id that UTF-8 would change', { requestId: '\udc00' }, 'invalid_envelope', 'request_id'],
    ['a trace id with control characters', { traceId: '\0' }, 'invalid_envelope', 'trace_id'],
    ['no date', { occurredAt: new Date(Number.NaN) }, 'invalid_envelope', 'occurred_at_ms'],
    ['no number', { occurredAt: Number.NaN }, 'invalid_envelope', 'occurred_at_ms'],
    ['newcomer-11 a time in seconds', { occurredAt: 1_790_000_000 }, 'invalid_envelope', 'occurred_at_ms'],
    ['a time in nanoseconds', { occurredAt: 1.775e18 }, 'invalid_envelope', 'occurred_at_ms'],
    ['no recipients', { recipientUserIds: [] }, 'invalid_recipients', 'recipient_user_ids_json'],
    ['recipients left out', { recipientUserIds: undefined }, 'invalid_recipients', 'is required'],
    ['an audience of other types', { audience: 'admin_email' }, 'invalid_audience', 'audience_kind'],
    ['no payload', { payload: undefined }, 'invalid_payload', 'payload_json'],
    ['an array as payload', { payload: [] }, 'invalid_payload', 'payload_json'],
    ['a field left out', { payload: { game_id: 'g', game_name: 'n' } }, 'invalid_payload', 'turn_number'],
    ['a payload too large', withPayload({ x: 'x'.repeat(262_144) }), 'invalid_payload', 'bytes'],
    ['an entry too large', withPayload({ x: 'x'.repeat(1_048_576) }), 'entry_too_large', 'bytes'],
    ['a lossy value', withPayload({ note: undefined }), 'invalid_payload', 'field note: undefined'],
  ])('I37 %s is refused with the code and the field', (_what, change, code, field) => {
    const refusal = refusalOf(() => untyped({ ...TURN, ...change }));

    expect(refusal.code).toBe(code);
    expect(refusal.message).toContain(field);
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
    for (const further of [{ note: value }, { outer: { note: value } }, { list: [1, value] }]) {
      expect(refusalOf(() => untyped({ ...TURN, ...withPayload(further) }))).toEqual({
        code: 'invalid_payload',
        message: expect.stringMatching(/^payload_json /),
      });
    }
  });
});

describe('publication', () => {
  const FIELDS = Object.entries(envelopeOf(newGameTurnReady(TURN))).flat();

  test('I37 the entry is the envelope, appended with one plain XADD', async () => {
    const xadd = jest.fn().mockResolvedValue('7-7');
    expect(await publishIntent({ xadd }, newGameTurnReady(TURN))).toBe('7-7');
    expect(await publishIntent({ xadd }, newGameTurnReady(TURN), { stream: 'other' })).toBe('7-7');
    expect(xadd.mock.calls).toEqual([
      ['notification:intents', '*', ...FIELDS],
      ['other', '*', ...FIELDS],
    ]);
  });

  test("I37 an error of the caller's client is passed on as it is and not tried again", async () => {
    const failure = new Error('WRONGTYPE');
    const xadd = jest.fn().mockRejectedValue(failure);
    await expect(publishIntent({ xadd }, newGameTurnReady(TURN))).rejects.toBe(failure);
    expect(xadd).toHaveBeenCalledTimes(1);
  });

  test('I37 a client that appends nothing is an error', async () => {
    const redis = { xadd: async () => null };
    await expect(publishIntent(redis, newGameTurnReady(TURN), { stream: 's' })).rejects.toThrow(
      'Redis appended nothing to s',
    );
  });
});

const turn = (idempotencyKey = 'one', turnNumber = 54) =>
  newGameTurnReady({ ...TURN, idempotencyKey, payload: { ...TURN.payload, turn_number: turnNumber } });

describe('the stream in memory', () => {
  test('I71 what was published is found, and repeats are left aside', async () => {
    const stream = createMemoryStream();
    for (const key of ['one', 'two', 'one']) await publishIntent(stream, turn(key));
    const found = expectPublished(stream, {
      type: 'game.turn.ready',
      idempotencyKey: 'one',
      recipientUserIds: ['user-1', 'user-2'],
      payload: { turn_number: 54, game_name: 'Andromeda', game_id: 'game-7' },
    });
    expect(found).toEqual(turn('one'));
    expect(stream.published.map(({ notificationId, isDuplicate }) => [notificationId, isDuplicate])).toEqual([
      ['1-0', false],
      ['2-0', false],
      ['3-0', true],
    ]);
  });

  test('I71 what was not published fails, with a list of what was', async () => {
    const stream = createMemoryStream();
    for (const key of ['one', 'two']) await publishIntent(stream, turn(key));
    for (const expected of [
      { type: 'game.finished' as const },
      { idempotencyKey: 'three' },
      { recipientUserIds: ['user-1'] },
      { payload: { game_id: 'game-7' } },
      {}, // two are as expected, and it should be one
    ]) {
      expect(() => expectPublished(stream, expected)).toThrow(
        /^expected one intent .* among 2 published:\n {2}1-0 .*"one".*\n {2}2-0 .*"two"/,
      );
    }
  });

  test('newcomer-3 a conflict names the fields that differ, and not what they hold', async () => {
    const stream = createMemoryStream();
    const first = turn();
    await publishIntent(stream, first);
    const others = { occurredAtMs: first.occurredAtMs + 1, recipientUserIds: ['somebody-else'] };
    await expect(publishIntent(stream, { ...first, ...others })).rejects.toThrow(
      'came before, as 1-0, with other content (recipient_user_ids_json, occurred_at_ms)',
    );
    await expect(publishIntent(stream, turn('one', 55))).rejects.toThrow('with other content (payload_json)');
  });

  test('I71 it refuses what the service refuses', async () => {
    const stream = createMemoryStream();
    await publishIntent(stream, turn());
    await expect(publishIntent(stream, turn('one', 55))).rejects.toMatchObject({
      name: 'InvalidIntentError',
      code: 'idempotency_conflict',
      field: 'idempotency_key',
    });
    await expect(publishIntent(stream, turn('one', 55), { stream: 'other' })).resolves.toBe('2-0');
    const xadd = stream.xadd as (stream: string, ...given: string[]) => Promise<unknown>;
    await expect(xadd('s', '*', 'notification_type', 'game.turn.ready')).rejects.toMatchObject({
      code: 'invalid_envelope',
      field: 'producer',
    });
    await expect(
      xadd('s', '*', ...['a', 'b'].flatMap((type) => ['notification_type', type])),
    ).rejects.toMatchObject({ field: 'notification_type' });
    for (const command of ['MAXLEN ~ 10 * a b', '* a', '1-0 a b'])
      await expect(xadd('s', ...command.split(' '))).rejects.toThrow('producers use a plain XADD');
    expect(stream.published).toHaveLength(2);
  });

  test('I71 a failure of Redis is the callers', async () => {
    const stream = createMemoryStream();
    expect(() => stream.failNext(undefined as never)).toThrow(TypeError);
    stream.failNext(new Error('connection refused'));
    await expect(publishIntent(stream, turn())).rejects.toThrow('connection refused');
    await expect(publishIntent(stream, turn())).resolves.toBe('1-0');
  });
});
