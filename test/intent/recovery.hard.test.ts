/** What goes away and comes back: the User Service, the service itself, the progress of its reader. */
import { leaseKey } from '../../activities/intent/hand-off.ts';
import { envelopeOf } from '../../api/intent/entry.ts';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

const GATEWAY = 'gateway:client-events';
const MAIL = 'mail:delivery_commands';
const OFFSET_KEY = `notification:stream_offsets:${Buffer.from('notification:intents').toString('base64url')}`;

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

let count = 0;
const intentFor = (recipientUserIds: string[]) =>
  newGameTurnReady({
    idempotencyKey: `key-${(count += 1)}`,
    occurredAt: Date.now(),
    recipientUserIds,
    payload: { game_id: 'g', game_name: 'G', turn_number: count },
  });
const publish = (recipientUserIds = ['user-1']) => publishIntent(slot.redis, intentFor(recipientUserIds));

const published = (id: string) =>
  eventually(`${id} to be published`, async () => {
    const { rows } = await slot.db.query<{ status: string }>(
      'SELECT status FROM notification.routes WHERE notification_id = $1',
      [id],
    );
    return rows.length > 0 && rows.every(({ status }) => status === 'published');
  });

/** How often each route was appended, by the id that consumers deduplicate on. */
async function outboundIds(): Promise<string[]> {
  const ids = async (stream: string, field: string) =>
    (await slot.redis.xrange(stream, '-', '+')).map(([, fields]) => fields[fields.indexOf(field) + 1]!);
  return [...(await ids(GATEWAY, 'event_id')), ...(await ids(MAIL, 'delivery_id'))].sort();
}

const routesFor = (ids: string[]) =>
  ids.flatMap((id) => [`${id}/email:user:user-1`, `${id}/push:user:user-1`]).sort();

test('I12 an intent waits durably for the User Service, and others overtake it', async () => {
  await slot.startService();
  slot.userService.fail({ failure: { kind: 'status', status: 503 }, userId: 'user-9' });
  const waiting = await publish(['user-9']);
  const overtaking = await publish(['user-1']);
  await published(overtaking);
  const handle = slot.client.workflow.getHandle(notificationWorkflowId(waiting));
  const failure = await eventually('the reason on the pending activity', async () => {
    const { raw } = await handle.describe();
    return raw.pendingActivities?.[0]?.lastFailure ?? undefined;
  });
  expect(failure).toMatchObject({
    // Later on it is not asked about this user for a while.
    message: expect.stringMatching(/^User Service (answered with status 503$|is not asked about this user )/),
    applicationFailureInfo: { type: 'UserServiceUnavailable' },
  });
  const { rows } = await slot.db.query('SELECT 1 FROM notification.records WHERE notification_id = $1', [
    waiting,
  ]);
  expect(rows).toEqual([]);
  slot.userService.heal();
  await published(waiting);
});

test('I3 I35 a service that stops hands over, and the next one reads on where it stopped', async () => {
  const first = await slot.startService();
  const before = [await publish(), await publish()];
  await Promise.all(before.map(published));
  await first.stop();
  const stoppedAt = await slot.redis.get(OFFSET_KEY);
  expect(stoppedAt).toBe(before[1]);
  const between = [await publish(), await publish()];
  await slot.startService();
  await Promise.all(between.map(published));
  expect(await outboundIds()).toEqual(routesFor([...before, ...between]));
});

test('I3 after its progress is lost the reader starts from 0-0, and nothing is delivered twice', async () => {
  const first = await slot.startService();
  const ids = [await publish(), await publish(), await publish()];
  await Promise.all(ids.map(published));
  await first.stop();
  await slot.redis.del(OFFSET_KEY);
  await slot.startService();
  const last = await publish();
  await published(last);
  await eventually('the offset to reach the end', async () => (await slot.redis.get(OFFSET_KEY)) === last);
  expect(await outboundIds()).toEqual(routesFor([...ids, last]));
});

test('I36 two services share the work without doing any of it twice', async () => {
  await Promise.all([slot.startService(), slot.startService()]);
  const ids = await Promise.all(Array.from({ length: 30 }, () => publish()));
  await eventually(
    'all routes to be published',
    async () => {
      const { rows } = await slot.db.query("SELECT FROM notification.routes WHERE status = 'published'");
      return rows.length === 2 * ids.length;
    },
    240_000,
  );
  expect(await outboundIds()).toEqual(routesFor(ids));
}, 300_000);

test('I9 identical concurrent intents leave one record, conflicting ones are refused', async () => {
  await slot.startService();
  const options = { idempotencyKey: 'at-once', recipientUserIds: ['user-1'], occurredAt: 1790000000000 };
  const intent = (turn: number) =>
    newGameTurnReady({ ...options, payload: { game_id: 'g', game_name: 'G', turn_number: turn } });
  const ids = await Promise.all(
    Array.from({ length: 40 }, (_, index) => publishIntent(slot.redis, intent(index % 2))),
  );
  const outcomes = await Promise.all(
    ids.map((id) =>
      eventually(`the outcome of ${id}`, async () => {
        const result: unknown = await slot.client.workflow.getHandle(notificationWorkflowId(id)).result();
        return (result as { outcome: string }).outcome;
      }),
    ),
  );
  const { rows } = await slot.db.query<{ notification_id: string }>(
    'SELECT notification_id FROM notification.records',
  );
  expect(rows).toHaveLength(1);
  const winner = ids.indexOf(rows[0]!.notification_id);
  const expected = ids.map((_, index) => {
    if (index === winner) return 'accepted';
    return index % 2 === winner % 2 ? 'duplicate' : 'idempotency_conflict';
  });
  expect(outcomes).toEqual(expected);
  expect(await outboundIds()).toEqual(routesFor([rows[0]!.notification_id]));
});

test('I24 while PostgreSQL is away intents and routes wait, and no attempt is spent', async () => {
  await slot.startService();
  await published(await publish());

  // This route is held by a foreign lease, so that the outage finds it in mid-flight.
  const held = `${Date.now() + 60_000}-0`;
  const route = 'push:user:user-1';
  await slot.redis.set(leaseKey(held, route), 'another worker', 'PX', 60_000);
  const fields = envelopeOf(intentFor(['user-1']));
  await slot.redis.xadd('notification:intents', held, ...Object.entries(fields).flat());
  await eventually('the held route', async () => {
    const { rows } = await slot.db.query('SELECT 1 FROM notification.routes WHERE notification_id = $1', [
      held,
    ]);
    return rows.length > 0;
  });

  const outage = await slot.cutOffDatabase();
  await slot.redis.del(leaseKey(held, route));
  const waiting = await publish();
  // It waits in its stream, and the reader says why.
  const reader = slot.client.workflow.getHandle(bridgeWorkflowId('notification:intents'));
  await eventually('the reason on the reader', async () => {
    const { raw } = await reader.describe();
    const failure = raw.pendingActivities?.[0]?.lastFailure;
    return failure?.applicationFailureInfo?.type === 'PostgresUnavailable';
  });
  expect(await slot.redis.get(OFFSET_KEY)).toBe(held);
  await outage.restore();

  await published(waiting);
  await published(held);
  const { rows } = await slot.db.query<{ attempt_count: number; last_error_at: Date | null }>(
    'SELECT attempt_count, last_error_at FROM notification.routes WHERE notification_id = ANY($1)',
    [[held, waiting]],
  );
  expect(rows).toEqual(Array.from({ length: 4 }, () => ({ attempt_count: 1, last_error_at: null })));
  expect(new Set(await outboundIds()).size).toBe((await outboundIds()).length);
  expect((await slot.db.query('SELECT 1 FROM notification.dead_letters')).rows).toEqual([]);
});

test('I32 a service without its dependencies says which are missing and why', async () => {
  const endpoints = {
    ...slot.endpoints,
    redis: { host: '127.0.0.1', port: 1 },
    postgresDsn: 'postgres://nobody@127.0.0.1:1/none',
  };
  Object.assign(slot.endpoints, endpoints);
  const failure = await slot.startService().catch((error: unknown) => error);
  expect(String(failure)).toMatch(
    /cannot reach Redis at 127\.0\.0\.1:1 \(NOTIFICATION_REDIS_MASTER_ADDR\): .*ECONNREFUSED/,
  );
  expect(String(failure)).toMatch(
    /cannot reach PostgreSQL at 127\.0\.0\.1:1 \(NOTIFICATION_POSTGRES_PRIMARY_DSN\): .*ECONNREFUSED/,
  );
});
