/**
 * What producers are told about their intents: each kind of event, and one end for each intent; also of what is too late, which
 * is skipped as expired and not sent by a replay. Single attempts of it are in hand-off.service.test.ts.
 */
import type { Pool, PoolClient } from 'pg';
import {
  OPEN_GENERATION,
  RECORD_FAILURE,
  keyOf,
  loadSlice,
  settleRoutes,
} from '../../activities/intent/route-rows.ts';
import { query } from '../../activities/postgres.ts';
import type { Outcome } from '../../api/intent/outcome.ts';
import { OUTCOMES_STREAM, OUTCOME_KINDS, isTerminal } from '../../api/intent/outcome.ts';
import type { Operator } from '../../client/operator.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot, untilStarted, untilLocked } from '../harness.ts';
import { GATEWAY, MAIL, append, nothingLeftRunning } from '../service-process.ts';
import { accepted, entryOf, publishTurn, turn } from './entries.ts';
import {
  EMAIL,
  PUSH,
  acceptRows,
  countOf,
  entriesOf,
  routeIn,
  endOf,
  replayRoute,
  resultOf,
  toldOf,
} from './rows.ts';

const TELLING = {
  NOTIFICATION_OUTCOMES: 'all',
  NOTIFICATION_ROUTE_BACKOFF_MIN: '20ms',
  NOTIFICATION_ROUTE_BACKOFF_MAX: '40ms',
};

const HOUR_MS = 3_600_000;

let slot: Slot;
let operator: Operator;

async function begin(): Promise<void> {
  slot = await takeSlot();
  operator = operatorOf(slot);
}

/** What the outbox has, relayed or not: the kinds of the events of each row. */
async function writtenTogether(): Promise<string[][]> {
  const { rows } = await slot.db.query<{ kinds: string[] }>(
    `SELECT ARRAY(SELECT event ->> 1 FROM json_array_elements(events) AS event) AS kinds
       FROM notification.outcomes ORDER BY outcome_id`,
  );
  return rows.map(({ kinds }) => kinds);
}

/** An intent to user-1 that is accepted, while no service runs, and what becomes of its routes. */
async function acceptAlone() {
  await tell(OUTCOME_KINDS);
  const intent = accepted(turn({ recipient_user_ids_json: '["user-1"]' }));
  await writeRows(slot.db, [intent]);
  await acceptRows(slot, [intent]);
  const rowOf = async (route: string) => {
    const slice = { notificationId: intent.notificationId, offset: 0, limit: 99 };
    return (await loadSlice(slot.db, slice)).find(({ routeId }) => routeId === route)!;
  };
  return {
    publishRoute: async (route: string, client: Pool | PoolClient = slot.db) =>
      settleRoutes(client, [{ ...(await rowOf(route)), publishedAs: '1-1' }]),
    async killPush() {
      const death = [true, 0, 'gateway_stream_publish_failed', 'WRONGTYPE', 'a hint'];
      await query(slot.db, RECORD_FAILURE, [...keyOf(await rowOf(PUSH)), ...death]);
    },
    replayPush: async () =>
      query(slot.db, OPEN_GENERATION, [...keyOf(await rowOf(PUSH)), 'order-1', 'nina', 'INC-1']),
  };
}

/** As a process does that is configured so. */
const tell = (kinds: readonly string[]) =>
  slot.db.query('UPDATE notification.installation SET outcomes = $1', [kinds]);

/** Publishes an intent for user-1. @param expiresInMs by the clock of this machine, which PostgreSQL has, too. */
async function publish(key: string, expiresInMs: number): Promise<string> {
  const expires_at_ms = String(Date.now() + expiresInMs);
  const fields = { idempotency_key: key, recipient_user_ids_json: '["user-1"]', expires_at_ms };
  return (await append(slot.redis, [turn(fields)]))[0]!;
}

/** How often each of these notifications is in an outbound stream. */
const sent = (stream: string, ...ids: string[]) =>
  Promise.all(ids.map(async (id) => (await entriesOf(slot, stream, `${id}/`)).length));

const expireNow = (id: string) =>
  slot.db.query('UPDATE notification.records SET expires_at = now() WHERE notification_id = $1', [id]);

const like = (fields: object) => expect.objectContaining(fields) as object;

/** Whether an operator is told so about user-1. */
async function expectSentence(sentence: RegExp): Promise<void> {
  const { answers } = await operator.why('user-1');
  expect(answers).toContainEqual(like({ sentence: expect.stringMatching(sentence) as string }));
}

/** What is told of an intent whose two routes are published. */
const DELIVERED = ['accepted', 'route_published', 'route_published', 'settled'];
const kindsOf = (outcomes: readonly Outcome[]): string[] => outcomes.map(({ kind }) => kind);

describe('one service', () => {
  beforeAll(async () => {
    await begin();
    await slot.startService({
      ...TELLING,
      NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '2',
      NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED: 'Ada@example.com',
      NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '2',
    });
  });
  afterEach(() => slot.userService.heal());
  afterAll(() => slot.release());

  test('I78 Q1 what is late when it is accepted is skipped, told once, and holds nothing up', async () => {
    const [late, inTime] = [await publish('late', -1_000), await publish('in-time', HOUR_MS)];
    for (const route of [PUSH, EMAIL]) {
      await routeIn(slot, inTime, route, 'published');
      expect(await routeIn(slot, late, route, 'skipped')).toMatchObject({
        ...{ attempt_count: 0, entry_id: null, last_error_classification: 'expired' },
        last_error_message: expect.stringMatching(
          /^it was worth sending until 2\S+Z, and no attempt was counted$/,
        ),
      });
    }
    const told = await endOf(slot, late);
    expect(kindsOf(told)).toEqual(['accepted', 'route_skipped', 'route_skipped', 'expired']);
    expect(told).toContainEqual(like({ kind: 'route_skipped', route: PUSH, reason: 'expired' }));
    expect(told.at(-1)).toMatchObject({ eventId: `${late}/end`, published: 0, skipped: 2, deadLettered: 0 });
    for (const stream of [GATEWAY, MAIL]) expect(await sent(stream, inTime, late)).toEqual([1, 0]);
    await expectSentence(
      /^the push of game.turn.ready was skipped at 2\S+Z because it came too late: it was worth sending until 2/,
    );
  });

  test('I78 what becomes late while its channel is paused is skipped when it is resumed', async () => {
    await operator.channels.pause('push', { reason: 'maintenance', requestedBy: 'nina' });
    const id = await publish('paused', HOUR_MS);
    await routeIn(slot, id, EMAIL, 'published');
    expect((await routeIn(slot, id, PUSH, 'pending')).last_error_classification).toBeNull();
    await expireNow(id);
    await expectSentence(
      /^the push .* waits: nina has paused push .*: maintenance; it expired at \S+, and is skipped then$/,
    );
    await operator.channels.resume('push', { requestedBy: 'nina' });
    expect(await routeIn(slot, id, PUSH, 'skipped')).toMatchObject({
      ...{ last_error_classification: 'expired', attempt_count: 0 },
    });
    expect(await sent(GATEWAY, id)).toEqual([0]);
    expect((await endOf(slot, id)).at(-1)).toMatchObject({ kind: 'expired', published: 1, skipped: 1 });
  });

  test('I78 I25 a replay does not send what is late, and says so', async () => {
    await slot.redis.set(MAIL, 'not a stream');
    const [late, inTime] = [await publish('late-dead', HOUR_MS), await publish('other', HOUR_MS)];
    for (const id of [late, inTime]) {
      await routeIn(slot, id, EMAIL, 'dead_letter');
      await routeIn(slot, id, PUSH, 'published');
    }
    await slot.redis.del(MAIL);
    await expireNow(late);

    const filter = { type: 'game.turn.ready' };
    expect(await operator.operations.preview('replay', filter)).toMatchObject([{ routes: 2, expired: 1 }]);
    const { operationId } = await operator.operations.begin('replay', filter, { requestedBy: 'test' });
    const view = await operator.operations.follow(operationId, { limitMs: 60_000 });
    expect(view).toMatchObject({ total: 2, done: 2, ordered: 1 });
    const outcome = await eventually('the replay to be over', async () => {
      const found = await operator.operations.outcome(operationId);
      return found.open === 0 && found;
    });
    expect(outcome).toEqual({ published: 1, skipped: 0, expired: 1, diedAgain: 0, open: 0, gone: 0 });

    // An order that went past the client, as with the temporal program, or one that was given a moment too early.
    const handle = await replayRoute(slot, late, EMAIL);
    await expect(handle.result()).rejects.toThrow();
    expect(slot.logs.map(({ msg }) => msg)).toContain('replay found the route expired, and sent nothing');
    await routeIn(slot, late, EMAIL, 'dead_letter');
    expect((await operator.notifications.show(late)).replays).toEqual([]);
    expect(await sent(MAIL, inTime, late)).toEqual([1, 0]);
    expect((await endOf(slot, late)).filter(isTerminal)).toMatchObject([
      { kind: 'settled', deadLettered: 1 },
    ]);
    await expectSentence(/ is dead since .*; it expired at \S+, so a replay does not send it$/);
  });

  test('Q1 an intent is told of from acceptance to its end, in this order, with ids that say what', async () => {
    const id = await publishTurn(slot.redis, 'told');
    const [first, ...rest] = await endOf(slot, id);
    const last = rest.pop();
    const about = {
      ...{ notificationId: id, notificationType: 'game.turn.ready', producer: 'game_master' },
      ...{ idempotencyKey: 'told', occurredAtMs: expect.any(Number) as number },
    };
    expect(first).toEqual({ ...about, eventId: `${id}/accepted`, kind: 'accepted', routes: 2, skipped: 0 });
    expect(rest).toHaveLength(2);
    for (const route of [PUSH, EMAIL])
      expect(rest).toContainEqual({
        ...{ ...about, eventId: `${id}/${route}/0/published`, kind: 'route_published' },
        ...{ route, channel: route.split(':')[0], generation: 0 },
      });
    const totals = { published: 2, skipped: 0, deadLettered: 0 };
    expect(last).toEqual({ ...about, eventId: `${id}/end`, kind: 'settled', ...totals });
  });

  test('Q1 refusals are told with what they are about, each as the end of its entry', async () => {
    const key = { idempotency_key: 'key', recipient_user_ids_json: '["user-1"]' };
    const [first, again, other, broken, unknown] = (await append(slot.redis, [
      turn(key),
      turn(key),
      turn({ ...key, payload_json: '{"game_id":"other","game_name":"n","turn_number":1}' }),
      turn({ idempotency_key: 'broken', occurred_at_ms: 'yesterday' }),
      turn({ idempotency_key: 'unknown', recipient_user_ids_json: '["missing-user"]' }),
    ])) as [string, string, string, string, string];
    for (const [id, end] of [
      [again, { kind: 'duplicate', duplicateOf: first, idempotencyKey: 'key', producer: 'game_master' }],
      [other, { kind: 'conflict', conflictsWith: first, eventId: `${other}/end` }],
      [broken, { kind: 'malformed', field: 'occurred_at_ms', idempotencyKey: 'broken' }],
      [unknown, { kind: 'malformed', failureCode: 'recipient_not_found' }],
    ] as const)
      expect(await endOf(slot, id)).toMatchObject([end]);
    expect(kindsOf(await endOf(slot, first))).toEqual(DELIVERED);
  });

  test('Q1 a dead letter belongs to the end, and what its replay publishes is told after it, without another end', async () => {
    await slot.redis.set(GATEWAY, 'not a stream');
    const id = await publishTurn(slot.redis, 'dead');
    const outcomes = await endOf(slot, id);
    const eventId = `${id}/${PUSH}/0/dead_letter`;
    const reason = 'gateway_stream_publish_failed';
    expect(outcomes).toContainEqual(like({ kind: 'route_dead_lettered', route: PUSH, reason, eventId }));
    expect(outcomes.at(-1)).toMatchObject({ kind: 'settled', published: 1, deadLettered: 1 });

    await slot.redis.del(GATEWAY);
    await replayRoute(slot, id, PUSH);
    const after = await eventually('the replay to be told', async () => {
      const now = await toldOf(slot, id);
      return now.length > outcomes.length && now;
    });
    expect(after.slice(outcomes.length)).toMatchObject([
      { kind: 'recovered', route: PUSH, generation: 1, eventId: `${id}/${PUSH}/1/published` },
    ]);
  });

  test('Q1 a cancelled intent ends as cancelled, with what was published before', async () => {
    await operator.channels.pause('push', { requestedBy: 'test' });
    const id = await publishTurn(slot.redis, 'cancelled');
    await eventually('the e-mail to be told', async () =>
      kindsOf(await toldOf(slot, id)).includes('route_published'),
    );
    await slot.client.workflow.getHandle(notificationWorkflowId(id)).cancel();
    const outcomes = await endOf(slot, id);
    expect(outcomes.slice(-2)).toMatchObject([
      { kind: 'route_skipped', route: PUSH, reason: 'cancelled' },
      { kind: 'cancelled', published: 1, skipped: 1, deadLettered: 0, eventId: `${id}/end` },
    ]);
    await operator.channels.resume('push', { requestedBy: 'test' });
  });

  test('Q1 an intent that is cancelled before it is accepted ends once', async () => {
    slot.userService.fail({ failure: { kind: 'status', status: 503 }, times: 1_000 });
    const id = await publishTurn(slot.redis, 'never');
    const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
    await untilStarted(handle);
    await handle.cancel();
    expect(await endOf(slot, id)).toMatchObject([
      { kind: 'cancelled', published: 0, skipped: 0, producer: 'game_master', idempotencyKey: 'never' },
    ]);
  });

  test('Q1 recipients without a usable address are told of, and no event has an address in it', async () => {
    slot.userService.setUser('user-1', { email: 'no address', preferredLanguage: 'en' });
    const id = await publishTurn(slot.redis, 'unusable', ['user-1', 'user-2']);
    const [forAdmins] = await append(slot.redis, [
      entryOf('geo.review_recommended', { idempotency_key: 'admins' }, 'admin_email'),
    ]);
    const outcomes = await endOf(slot, id);
    expect(outcomes[0]).toMatchObject({ kind: 'accepted', routes: 4, skipped: 1 });
    const reason = 'recipient_unusable';
    expect(outcomes).toContainEqual(like({ kind: 'route_skipped', route: EMAIL, reason }));
    expect(outcomes.at(-1)).toMatchObject({ kind: 'settled', published: 3, skipped: 1 });
    expect((await endOf(slot, forAdmins!)).find(({ kind }) => kind === 'route_published')).toMatchObject({
      route: expect.stringMatching(/^email:~[0-9a-f]{32}$/),
    });
    const { rows } = await slot.db.query<{ events: unknown }>('SELECT events FROM notification.outcomes');
    expect(JSON.stringify(rows)).not.toMatch(/@|no address/);
  });
});

describe('a service for each', () => {
  beforeEach(begin);
  afterEach(() => slot.release());

  test('Q1 only the ends are told where nothing else is wanted, and without outcomes no row is written', async () => {
    await slot.startService({ ...TELLING, NOTIFICATION_OUTCOMES: 'ends' });
    expect(kindsOf(await endOf(slot, await publishTurn(slot.redis, 'ends')))).toEqual(['settled']);
    await slot.stopServices();
    await slot.startService();
    const id = await publishTurn(slot.redis, 'quiet');
    const [malformed] = await append(slot.redis, [turn({ producer: 'nobody' })]);
    await eventually('the malformed one', () => operator.malformed.show(malformed!));
    await resultOf(slot, id);
    // Nothing but what was told first.
    expect(await writtenTogether()).toEqual([['settled']]);
    expect(await countOf(slot, 'intents', 'notification_id = $1 AND open_routes IS NOT NULL', [id])).toBe(0);
  });

  test('Q1 of intents that are delivered together each is told of, in few rows', async () => {
    const keys = Array.from({ length: 40 }, (_, index) => `together-${index}`);
    const ids = await append(
      slot.redis,
      [...keys, keys[0]!].map((key) => turn({ idempotency_key: key, recipient_user_ids_json: '["user-1"]' })),
    );
    await slot.startService({ ...TELLING, NOTIFICATION_ROUTE_DISPATCH: 'direct' });
    for (const id of ids.slice(0, -1)) expect(kindsOf(await endOf(slot, id))).toEqual(DELIVERED);
    expect(kindsOf(await endOf(slot, ids.at(-1)!))).toEqual(['duplicate']);
    const { rows } = await slot.db.query('SELECT FROM notification.outcomes');
    expect(rows.length).toBeLessThan(10);
  });

  test('Q1 of two processes that close the last routes at the same time, one tells the end', async () => {
    const { publishRoute } = await acceptAlone();
    const [one, other] = [await slot.db.connect(), await slot.db.connect()];
    for (const client of [one, other]) await client.query('BEGIN');
    await publishRoute(EMAIL, one);
    const closing = publishRoute(PUSH, other);
    await untilLocked(slot.db);
    await one.query('COMMIT');
    await closing;
    await other.query('COMMIT');
    for (const client of [one, other]) client.release();
    expect(await writtenTogether()).toEqual([
      ['accepted'],
      ['route_published'],
      ['route_published', 'settled'],
    ]);
    // Its numbers are read once the other transaction has ended.
    const { rows: ends } = await slot.db.query<{ totals: unknown }>(
      `SELECT event -> 8 AS totals FROM notification.outcomes, json_array_elements(events) AS event
        WHERE event ->> 1 = 'settled'`,
    );
    expect(ends).toEqual([{ totals: { published: 2, skipped: 0, dead_lettered: 0 } }]);
  });

  test('intent-12 a process without outcomes tells the end of what was accepted with them', async () => {
    await slot.startService(TELLING);
    await operator.channels.pause('push', { requestedBy: 'test' });
    const id = await publishTurn(slot.redis, 'left');
    await eventually('the e-mail to be told', async () => (await toldOf(slot, id)).length === 2);
    await slot.stopServices();
    const quiet = await slot.startService();
    await operator.channels.resume('push', { requestedBy: 'test' });
    await nothingLeftRunning(slot, 60_000);
    await quiet.stop();
    expect(await writtenTogether()).toEqual([['accepted'], ['route_published'], ['settled']]);
  });

  test.each([
    ['without outcomes', []],
    ['with outcomes', OUTCOME_KINDS],
  ])(
    'Q1 intent-12 after a replay by a process %s the end is told once both routes are closed',
    async (_, kinds) => {
      const { publishRoute, killPush, replayPush } = await acceptAlone();
      await killPush();
      await tell(kinds);
      await replayPush();
      await tell(OUTCOME_KINDS);
      for (const route of [PUSH, EMAIL]) await publishRoute(route);
      expect(await writtenTogether()).toEqual([
        ['accepted'],
        ['route_dead_lettered'],
        ['recovered'],
        ['route_published', 'settled'],
      ]);
    },
  );

  test('Q1 a replay that comes before the end has left the outbox does not end the intent again', async () => {
    const { publishRoute, killPush, replayPush } = await acceptAlone();
    await publishRoute(EMAIL);
    await killPush();
    await replayPush();
    await publishRoute(PUSH);
    expect(await writtenTogether()).toEqual([
      ['accepted'],
      ['route_published'],
      ['route_dead_lettered', 'settled'],
      ['recovered'],
    ]);
  });

  test('Q1 what a stream has lost is told again in its order and under its ids, before anything new', async () => {
    await slot.startService({ ...TELLING, NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s' });
    const ids = [await publishTurn(slot.redis, 'one'), await publishTurn(slot.redis, 'two')];
    for (const id of ids) await endOf(slot, id);
    // The second time before anybody has looked at what was told again.
    for (const key of ['three', 'four']) {
      const before = await toldOf(slot);
      await slot.redis.del(OUTCOMES_STREAM);
      const later = await publishTurn(slot.redis, key);
      await endOf(slot, later);
      const after = await toldOf(slot);
      expect(after.slice(0, before.length)).toEqual(before);
      expect(after.slice(before.length).every(({ notificationId }) => notificationId === later)).toBe(true);
    }
  });
});
