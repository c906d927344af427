/** What is too late: skipped as expired whatever held it up, told once, and not sent by a replay. */
import { handOffKey } from '../../activities/intent/hand-off.ts';
import { isTerminal } from '../../api/intent/outcome.ts';
import { NothingToDoError } from '../../client/errors.ts';
import type { Operator } from '../../client/operator.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';
import { turn } from './entries.ts';
import { EMAIL, PUSH, endOf, routeIn, replayRoute } from './rows.ts';

let slot: Slot;
let operator: Operator;

/** An e-mail that fails is dead; a push that fails is tried for as long as the test may take. */
async function start(mode: string): Promise<void> {
  slot = await takeSlot();
  operator = operatorOf(slot);
  await slot.startService({
    NOTIFICATION_ROUTE_DISPATCH: mode,
    NOTIFICATION_OUTCOMES: 'all',
    NOTIFICATION_ROUTE_BACKOFF_MIN: '200ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
    NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1',
  });
}

/** An intent for user-1. @param expiresInMs by the clock of this machine, which PostgreSQL has, too. */
const entry = (key: string, expiresInMs?: number) =>
  turn({
    idempotency_key: key,
    recipient_user_ids_json: '["user-1"]',
    expires_at_ms: expiresInMs === undefined ? undefined : String(Date.now() + expiresInMs),
  });

/** A stream that takes no entries meanwhile. */
async function withBroken(stream: string, act: () => Promise<void>): Promise<void> {
  await slot.redis.rename(stream, 'aside').catch(() => undefined);
  await slot.redis.set(stream, 'not a stream');
  await act();
  await slot.redis.rename('aside', stream).catch(() => slot.redis.del(stream));
}

/** Notifications of which something went out. */
async function sentOf(stream: string): Promise<Set<string>> {
  if ((await slot.redis.type(stream)) !== 'stream') return new Set();
  const entries = await slot.redis.xrange(stream, '-', '+');
  return new Set(entries.map(([, fields]) => fields.join(' ').match(/\d{13}-\d+/)![0]));
}

const expireNow = (id: string) =>
  slot.db.query('UPDATE notification.records SET expires_at = now() WHERE notification_id = $1', [id]);

const sentences = async () => (await operator.why('user-1')).answers.map(({ sentence }) => sentence);

describe.each(['on_failure', 'direct'])('in mode %s', (mode) => {
  beforeAll(() => start(mode));
  afterAll(() => slot.release());

  test('I78 Q1 what is late when it is accepted is skipped, told once, and holds nothing up', async () => {
    const [late, inTime, plain] = (await append(slot.redis, [
      entry('late', -1_000),
      entry('in-time', 3_600_000),
      entry('plain'),
    ])) as [string, string, string];
    for (const id of [inTime, plain]) await routeIn(slot, id, EMAIL, 'published');
    for (const route of [PUSH, EMAIL]) {
      expect(await routeIn(slot, late, route, 'skipped')).toMatchObject({
        ...{ attempt_count: 0, entry_id: null, last_error_classification: 'expired' },
        last_error_message: expect.stringMatching(
          /^it was worth sending until 2\S+Z, and no attempt was counted$/,
        ),
      });
    }
    const told = await endOf(slot, late);
    expect(told.map(({ kind }) => kind)).toEqual(['accepted', 'route_skipped', 'route_skipped', 'expired']);
    expect(told).toContainEqual(
      expect.objectContaining({ kind: 'route_skipped', route: PUSH, reason: 'expired' }),
    );
    expect(told.at(-1)).toMatchObject({ eventId: `${late}/end`, published: 0, skipped: 2, deadLettered: 0 });
    expect((await endOf(slot, inTime)).at(-1)).toMatchObject({ kind: 'settled', published: 2 });
    await routeIn(slot, inTime, PUSH, 'published');
    await routeIn(slot, plain, PUSH, 'published');
    for (const stream of [GATEWAY, MAIL]) expect(await sentOf(stream)).toEqual(new Set([inTime, plain]));
    expect(await sentences()).toContainEqual(
      expect.stringMatching(
        /^the push of game.turn.ready was skipped at 2\S+Z because it came too late: it was worth sending until 2/,
      ),
    );
  });
});

describe('in mode child', () => {
  beforeAll(() => start('child'));
  afterAll(() => slot.release());

  test('I78 Q1 what becomes late while it is tried again is skipped, and its sibling stays published', async () => {
    let id = '';
    await withBroken(GATEWAY, async () => {
      id = (await append(slot.redis, [entry('retried', 3_600_000)]))[0]!;
      await routeIn(slot, id, EMAIL, 'published');
      const failed = await routeIn(slot, id, PUSH, 'failed');
      expect(failed.last_error_classification).toBe('gateway_stream_publish_failed');
      await expireNow(id);
      const skipped = await routeIn(slot, id, PUSH, 'skipped');
      expect(skipped.last_error_classification).toBe('expired');
      expect(skipped.last_error_message).toMatch(/attempt \d+ failed with gateway_stream_publish_failed$/);
      expect(skipped.attempt_count).toBeGreaterThanOrEqual(failed.attempt_count);
    });
    const ends = (await endOf(slot, id)).filter(isTerminal);
    expect(ends).toMatchObject([{ kind: 'expired', published: 1, skipped: 1, deadLettered: 0 }]);
    // Its workflow has nothing left to do.
    await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).result();
  });

  test('I78 what becomes late while its channel is paused is skipped when it is resumed', async () => {
    await operator.channels.pause('push', { reason: 'maintenance', requestedBy: 'nina' });
    const [id] = (await append(slot.redis, [entry('paused', 3_600_000)])) as [string];
    await routeIn(slot, id, EMAIL, 'published');
    expect((await routeIn(slot, id, PUSH, 'pending')).last_error_classification).toBeNull();
    await expireNow(id);
    expect(await sentences()).toContainEqual(
      expect.stringMatching(
        /^the push .* waits: nina has paused push .*: maintenance; it expired at \S+, and is skipped then$/,
      ),
    );
    const plain = (await append(slot.redis, [entry('also plain')]))[0]!;
    await operator.channels.resume('push', { requestedBy: 'nina' });
    await routeIn(slot, plain, PUSH, 'published');
    expect(await routeIn(slot, id, PUSH, 'skipped')).toMatchObject({
      ...{ last_error_classification: 'expired', attempt_count: 0 },
    });
    const sent = await sentOf(GATEWAY);
    expect([sent.has(plain), sent.has(id)]).toEqual([true, false]);
    expect((await endOf(slot, id)).at(-1)).toMatchObject({ kind: 'expired', published: 1, skipped: 1 });
  });

  test('I78 I25 a replay does not send what is late, and says so', async () => {
    let ids: string[] = [];
    await withBroken(MAIL, async () => {
      ids = await append(slot.redis, [entry('dead', 3_600_000), entry('other', 3_600_000)]);
      for (const id of ids) {
        await routeIn(slot, id, EMAIL, 'dead_letter');
        await routeIn(slot, id, PUSH, 'published');
      }
    });
    const [late, inTime] = ids as [string, string];
    await expireNow(late);

    await expect(operator.replays.route(late, EMAIL)).rejects.toThrow(NothingToDoError);
    await expect(operator.replays.route(late, EMAIL)).rejects.toThrow(
      /^route email:user:user-1 of \S+ expired at 2\S+Z: it is not sent any more$/,
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
    const handle = await replayRoute(slot, late, EMAIL);
    await expect(handle.result()).rejects.toThrow();
    expect(slot.logs.map(({ msg }) => msg)).toContain('replay found the route expired, and sent nothing');
    await routeIn(slot, late, EMAIL, 'dead_letter');
    expect((await operator.notifications.show(late)).replays).toEqual([]);
    const sent = await sentOf(MAIL);
    expect([sent.has(inTime), sent.has(late)]).toEqual([true, false]);
    expect((await endOf(slot, late)).filter(isTerminal)).toMatchObject([
      { kind: 'settled', deadLettered: 1 },
    ]);
    expect(await sentences()).toContainEqual(
      expect.stringMatching(/ is dead since .*; it expired at \S+, so a replay does not send it$/),
    );
  });

  test('I78 I23 what was handed off in time and not settled is published, however late its row is looked at', async () => {
    await operator.channels.pause('push', { requestedBy: 'test' });
    const [id] = (await append(slot.redis, [entry('crashed', 3_600_000)])) as [string];
    await routeIn(slot, id, EMAIL, 'published');
    await routeIn(slot, id, PUSH, 'pending');
    const deliveries = () => slot.redis.xlen(GATEWAY);
    const before = await deliveries();
    // As an attempt leaves it that dies behind its hand-off.
    const entryId = (await slot.redis.xadd(GATEWAY, '*', 'event_id', `${id}/${PUSH}`))!;
    await slot.redis.set(handOffKey(id, PUSH, 0), entryId);
    await expireNow(id);
    await operator.channels.resume('push', { requestedBy: 'test' });
    expect(await routeIn(slot, id, PUSH, 'published')).toMatchObject({
      ...{ entry_id: entryId, last_error_classification: null, attempt_count: 1 },
    });
    expect(await deliveries()).toBe(before + 1);
    expect((await endOf(slot, id)).at(-1)).toMatchObject({ kind: 'settled', published: 2, skipped: 0 });
  });

  test('I78 an expired route waits for Redis to be closed there, and spends nothing', async () => {
    await operator.channels.pause('push', { requestedBy: 'test' });
    const [id] = (await append(slot.redis, [entry('closed', 3_600_000)])) as [string];
    await routeIn(slot, id, EMAIL, 'published');
    await routeIn(slot, id, PUSH, 'pending');
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
    expect(await routeIn(slot, id, PUSH, 'pending')).toMatchObject({ attempt_count: 0 });
    await slot.redis.del(key);
    await routeIn(slot, id, PUSH, 'skipped');
  });
});
