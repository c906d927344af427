/** What is too late: skipped as expired, told once, and not sent by a replay. Single attempts are in hand-off.service.test.ts. */
import { isTerminal } from '../../api/intent/outcome.ts';
import { eventually, operatorOfTests, slotOfTests } from '../harness.ts';
import { GATEWAY, MAIL, append } from '../service-process.ts';
import { turn } from './entries.ts';
import { EMAIL, PUSH, endOf, routeIn, replayRoute } from './rows.ts';

const slot = slotOfTests();
const operator = operatorOfTests(slot);

beforeAll(() =>
  slot.startService({ NOTIFICATION_OUTCOMES: 'all', NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1' }),
);

/** An intent for user-1. @param expiresInMs by the clock of this machine, which PostgreSQL has, too. */
const entry = (key: string, expiresInMs?: number) =>
  turn({
    idempotency_key: key,
    recipient_user_ids_json: '["user-1"]',
    expires_at_ms: expiresInMs === undefined ? undefined : String(Date.now() + expiresInMs),
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
  await slot.redis.rename(MAIL, 'aside').catch(() => undefined);
  await slot.redis.set(MAIL, 'not a stream');
  const ids = await append(slot.redis, [entry('dead', 3_600_000), entry('other', 3_600_000)]);
  for (const id of ids) {
    await routeIn(slot, id, EMAIL, 'dead_letter');
    await routeIn(slot, id, PUSH, 'published');
  }
  await slot.redis.rename('aside', MAIL).catch(() => slot.redis.del(MAIL));
  const [late, inTime] = ids as [string, string];
  await expireNow(late);

  const filter = { type: 'game.turn.ready' };
  expect(await operator.operations.preview('replay', filter)).toMatchObject([{ routes: 2, expired: 1 }]);
  const { operationId } = await operator.operations.begin('replay', filter, { requestedBy: 'test' });
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
  expect((await endOf(slot, late)).filter(isTerminal)).toMatchObject([{ kind: 'settled', deadLettered: 1 }]);
  expect(await sentences()).toContainEqual(
    expect.stringMatching(/ is dead since .*; it expired at \S+, so a replay does not send it$/),
  );
});
