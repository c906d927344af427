/** What is too late: skipped as expired whatever held it up, told once, and not sent by a replay. */
import { handOffKey } from '../../activities/intent/hand-off.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import type { Outcome } from '../../api/intent/outcome.ts';
import { OUTCOMES_STREAM, isTerminal, readOutcome } from '../../api/intent/outcome.ts';
import { NothingToDoError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import {
  INTENT_TASK_QUEUE,
  REPLAY_SIGNAL,
  ROUTE_WORKFLOW,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';
import { turn } from './entries.ts';

const PUSH = 'push:user:user-1';
const EMAIL = 'email:user:user-1';
/** The three ways of working intents off. */
const MODES = {
  child: { NOTIFICATION_ROUTE_DISPATCH: 'child' },
  on_failure: { NOTIFICATION_ROUTE_DISPATCH: 'on_failure' },
  direct: { NOTIFICATION_ROUTE_DISPATCH: 'direct' },
};
type Mode = keyof typeof MODES;

let slot: Slot;
let operator: Operator;

async function start(mode: Mode, environment: Record<string, string>): Promise<void> {
  slot = await takeSlot();
  operator = operatorOf(slot);
  await slot.startService({
    ...MODES[mode],
    NOTIFICATION_OUTCOMES: 'all',
    NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
    ...environment,
  });
}

/** An intent for user-1. @param expiresInMs by the clock of this machine, which PostgreSQL has, too. */
const entry = (key: string, expiresInMs?: number) =>
  turn({
    idempotency_key: key,
    recipient_user_ids_json: '["user-1"]',
    expires_at_ms: expiresInMs === undefined ? undefined : String(Date.now() + expiresInMs),
  });

interface RouteRow {
  status: string;
  failure: string | null;
  message: string | null;
  attempts: number;
  entry: string | null;
}

async function routesOf(id: string): Promise<Record<string, RouteRow>> {
  const { rows } = await slot.db.query<RouteRow & { route: string }>(
    `SELECT route_id AS route, status, last_error_classification AS failure, last_error_message AS message,
            attempt_count AS attempts, entry_id AS entry
       FROM notification.routes WHERE notification_id = $1`,
    [id],
  );
  return Object.fromEntries(rows.map(({ route, ...row }) => [route, row]));
}

/** Read together. @returns their ids. */
async function appendTogether(entries: readonly EntryFields[]): Promise<string[]> {
  const transaction = slot.redis.multi();
  for (const fields of entries) transaction.xadd('notification:intents', '*', ...fields.flat());
  return (await transaction.exec())!.map(([, id]) => String(id));
}

const routeIn = (id: string, route: string, status: string) =>
  eventually(`${route} of ${id} to be ${status}`, async () => {
    const row = (await routesOf(id))[route];
    return row?.status === status && row;
  });

async function toldOf(id: string): Promise<Outcome[]> {
  const entries = await slot.redis.xrange(OUTCOMES_STREAM, '-', '+');
  const outcomes = entries.map(([, list]) => {
    const pairs = Array.from({ length: list.length / 2 }, (_, at) => [list[2 * at]!, list[2 * at + 1]!]);
    return readOutcome(Object.fromEntries(pairs) as Record<string, string>);
  });
  return outcomes.filter(({ notificationId }) => notificationId === id);
}

/** What is told of an intent once its end is, each event once. */
const endOf = (id: string) =>
  eventually(`the end of ${id} to be told`, async () => {
    const outcomes = new Map((await toldOf(id)).map((outcome) => [outcome.eventId, outcome]));
    return [...outcomes.values()].some(isTerminal) && [...outcomes.values()];
  });

/** Notifications of which something went out. */
async function sentOf(stream: string): Promise<Set<string>> {
  if ((await slot.redis.type(stream)) !== 'stream') return new Set();
  const entries = await slot.redis.xrange(stream, '-', '+');
  return new Set(entries.map(([, fields]) => fields.join(' ').match(/\d{13}-\d+/)![0]));
}

const expireNow = (id: string) =>
  slot.db.query('UPDATE notification.records SET expires_at = now() WHERE notification_id = $1', [id]);

const sentences = async () => (await operator.why('user-1')).answers.map(({ sentence }) => sentence);

describe.each(Object.keys(MODES) as Mode[])('in mode %s', (mode) => {
  beforeAll(() => start(mode, { NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000' }));
  afterAll(() => slot.release());

  test('I78 Q1 what is late when it is accepted is skipped, told once, and holds nothing up', async () => {
    const [late, inTime, plain] = (await appendTogether([
      entry('late', -1_000),
      entry('in-time', 3_600_000),
      entry('plain'),
    ])) as [string, string, string];
    for (const id of [inTime, plain]) await routeIn(id, EMAIL, 'published');
    for (const route of [PUSH, EMAIL]) {
      expect(await routeIn(late, route, 'skipped')).toEqual({
        status: 'skipped',
        failure: 'expired',
        message: expect.stringMatching(/^it was worth sending until 2\S+Z, and no attempt was counted$/),
        attempts: 0,
        entry: null,
      });
    }
    const told = await endOf(late);
    expect(told.map(({ kind }) => kind)).toEqual(['accepted', 'route_skipped', 'route_skipped', 'expired']);
    expect(told).toContainEqual(
      expect.objectContaining({ kind: 'route_skipped', route: PUSH, reason: 'expired' }),
    );
    expect(told.at(-1)).toMatchObject({ eventId: `${late}/end`, published: 0, skipped: 2, deadLettered: 0 });
    expect((await endOf(inTime)).at(-1)).toMatchObject({ kind: 'settled', published: 2 });
    await routeIn(inTime, PUSH, 'published');
    await routeIn(plain, PUSH, 'published');
    for (const stream of [GATEWAY, MAIL]) expect(await sentOf(stream)).toEqual(new Set([inTime, plain]));
    expect(await sentences()).toContainEqual(
      expect.stringMatching(
        /^the push of game.turn.ready was skipped at 2\S+Z because it came too late: it was worth sending until 2/,
      ),
    );
  });

  test('I78 Q1 what becomes late while it is tried again is skipped, and its sibling stays published', async () => {
    await slot.redis.set(GATEWAY, 'not a stream');
    const [id] = (await append(slot.redis, [entry('retried', 3_600_000)])) as [string];
    const failed = await routeIn(id, PUSH, 'failed');
    expect(failed.failure).toBe('gateway_stream_publish_failed');
    await routeIn(id, EMAIL, 'published');
    await expireNow(id);
    const skipped = await routeIn(id, PUSH, 'skipped');
    expect(skipped).toMatchObject({ failure: 'expired', attempts: expect.any(Number) });
    expect(skipped.message).toMatch(/attempt \d+ failed with gateway_stream_publish_failed$/);
    expect(skipped.attempts).toBeGreaterThanOrEqual(failed.attempts);
    const ends = (await endOf(id)).filter(isTerminal);
    expect(ends).toMatchObject([{ kind: 'expired', published: 1, skipped: 1, deadLettered: 0 }]);
    // Its workflow has nothing left to do.
    await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).result();
    await slot.redis.del(GATEWAY);
  });

  test('I78 what becomes late while its channel is paused is skipped when it is resumed', async () => {
    await operator.channels.pause('push', { reason: 'maintenance', requestedBy: 'nina' });
    const [id] = (await append(slot.redis, [entry('paused', 3_600_000)])) as [string];
    await routeIn(id, EMAIL, 'published');
    expect((await routeIn(id, PUSH, 'pending')).failure).toBeNull();
    await expireNow(id);
    expect(await sentences()).toContainEqual(
      expect.stringMatching(
        /^the push .* waits: nina has paused push .*: maintenance; it expired at \S+, and is skipped then$/,
      ),
    );
    const plain = (await append(slot.redis, [entry('also plain')]))[0]!;
    await operator.channels.resume('push', { requestedBy: 'nina' });
    await routeIn(plain, PUSH, 'published');
    expect(await routeIn(id, PUSH, 'skipped')).toMatchObject({ failure: 'expired', attempts: 0 });
    const sent = await sentOf(GATEWAY);
    expect([sent.has(plain), sent.has(id)]).toEqual([true, false]);
    expect((await endOf(id)).at(-1)).toMatchObject({ kind: 'expired', published: 1, skipped: 1 });
  });
});

describe('whatever the mode', () => {
  // The first failure of a push is its last.
  beforeAll(() => start('child', { NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1' }));
  afterAll(() => slot.release());

  test('I78 I25 a replay does not send what is late, and says so', async () => {
    await slot.redis.set(GATEWAY, 'not a stream');
    const [late, inTime] = (await append(slot.redis, [
      entry('dead', 3_600_000),
      entry('other', 3_600_000),
    ])) as [string, string];
    for (const id of [late, inTime]) {
      await routeIn(id, PUSH, 'dead_letter');
      await routeIn(id, EMAIL, 'published');
    }
    await expireNow(late);
    await slot.redis.del(GATEWAY);

    await expect(operator.replays.route(late, PUSH)).rejects.toThrow(NothingToDoError);
    await expect(operator.replays.route(late, PUSH)).rejects.toThrow(
      /^route push:user:user-1 of \S+ expired at 2\S+Z: it is not sent any more$/,
    );
    const filter = { type: 'game.turn.ready' };
    expect(await operator.replays.preview(filter)).toMatchObject([{ routes: 2, expired: 1 }]);
    const { operationId } = await operator.operations.replay(filter, { requestedBy: 'test' });
    const { view, outcome } = await eventually('the operation to be over', async () => {
      const now = await operator.operations.show(operationId);
      const found = await operator.operations.outcome(operationId);
      return now.endedAt !== undefined && found.open === 0 && { view: now, outcome: found };
    });
    expect(view).toMatchObject({ total: 2, done: 2, ordered: 1 });
    expect(outcome).toEqual({ published: 1, skipped: 0, expired: 1, diedAgain: 0, open: 0, gone: 0 });

    // An order that went past the client, as with the temporal program, or one that was given a moment too early.
    const startedAt = new Date().toISOString();
    const handle = await slot.client.workflow.signalWithStart(ROUTE_WORKFLOW, {
      workflowId: routeWorkflowId(late, PUSH),
      taskQueue: INTENT_TASK_QUEUE,
      args: [{ notificationId: late, routeRef: PUSH }],
      signal: REPLAY_SIGNAL,
      signalArgs: [{}],
      workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    });
    await expect(handle.result()).rejects.toThrow();
    expect(slot.logs.map(({ msg }) => msg)).toContain('replay found the route expired, and sent nothing');
    expect(
      await operator.replays.wait([{ notificationId: late, routeId: PUSH }], startedAt, { limitMs: 20_000 }),
    ).toEqual({ published: 0, skipped: 0, expired: 1, diedAgain: 0, open: 0, gone: 0 });
    expect((await routesOf(late))[PUSH]).toMatchObject({ status: 'dead_letter' });
    expect((await operator.notifications.show(late)).replays).toEqual([]);
    expect(await sentOf(GATEWAY)).toEqual(new Set([inTime]));
    expect((await endOf(late)).filter(isTerminal)).toMatchObject([{ kind: 'settled', deadLettered: 1 }]);
    expect(await sentences()).toContainEqual(
      expect.stringMatching(/ is dead since .*; it expired at \S+, so a replay does not send it$/),
    );
  });

  test('I78 I23 what was handed off in time and not settled is published, however late its row is looked at', async () => {
    await operator.channels.pause('push', { requestedBy: 'test' });
    const [id] = (await append(slot.redis, [entry('crashed', 3_600_000)])) as [string];
    await routeIn(id, EMAIL, 'published');
    await routeIn(id, PUSH, 'pending');
    const deliveries = () => slot.redis.xlen(GATEWAY);
    const before = await deliveries();
    // As an attempt leaves it that dies behind its hand-off.
    const entryId = (await slot.redis.xadd(GATEWAY, '*', 'event_id', `${id}/${PUSH}`))!;
    await slot.redis.set(handOffKey(id, PUSH, 0), entryId);
    await expireNow(id);
    await operator.channels.resume('push', { requestedBy: 'test' });
    expect(await routeIn(id, PUSH, 'published')).toMatchObject({
      entry: entryId,
      failure: null,
      attempts: 1,
    });
    expect(await deliveries()).toBe(before + 1);
    expect((await endOf(id)).at(-1)).toMatchObject({ kind: 'settled', published: 2, skipped: 0 });
  });

  test('I78 an expired route waits for Redis to be closed there, and spends nothing', async () => {
    await operator.channels.pause('push', { requestedBy: 'test' });
    const [id] = (await append(slot.redis, [entry('closed', 3_600_000)])) as [string];
    await routeIn(id, EMAIL, 'published');
    await routeIn(id, PUSH, 'pending');
    // A value that the script cannot read: Redis refuses, as one does that is not the master.
    const key = handOffKey(id, PUSH, 0);
    await slot.redis.lpush(key, 'no text');
    await expireNow(id);
    await operator.channels.resume('push', { requestedBy: 'test' });
    await eventually('the attempt to be put off', async () => {
      const handle = slot.client.workflow.getHandle(routeWorkflowId(id, PUSH));
      const { raw } = await handle.describe();
      return raw.pendingActivities?.some(({ lastFailure }) =>
        lastFailure?.message?.startsWith('redis_unavailable'),
      );
    });
    expect((await routesOf(id))[PUSH]).toMatchObject({ status: 'pending', attempts: 0 });
    await slot.redis.del(key);
    await routeIn(id, PUSH, 'skipped');
  });

  test('I78 I9 of a repeat with another time the first one counts', async () => {
    const [first, again] = (await append(slot.redis, [
      entry('twice', 3_600_000),
      entry('twice', -1_000),
    ])) as [string, string];
    expect((await endOf(again)).at(-1)).toMatchObject({ kind: 'duplicate', duplicateOf: first });
    expect((await endOf(first)).at(-1)).toMatchObject({ kind: 'settled', published: 2 });
    const { record } = await operator.notifications.show(first);
    expect(record!.expiresAt!.getTime()).toBeGreaterThan(Date.now());
    const result = await slot.client.workflow.getHandle(notificationWorkflowId(first)).result();
    expect(result).toMatchObject({ published: 2, skipped: 0 });
  });
});
