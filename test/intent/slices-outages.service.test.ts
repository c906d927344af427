/** Slices while a server is away: what keeps all of a slice's intents from going on is waited for as a slice. */
import { startSlice } from '../../activities/intent/start.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { SliceOutcome } from '../../workflows/intent/slice-contract.ts';
import { WAITING_SLICE_WORKFLOW, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { append, deliveriesTo, nothingLeftRunning, outboundIds } from '../service-process.ts';
import { accepted, entryOf, turn } from './entries.ts';

const LIMIT_MS = 90_000;
const TEST_LIMIT_MS = 240_000;
const IN_SLICES = {
  NOTIFICATION_INTENTS_PER_WORKFLOW: '20',
  NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
  NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
  // Of many lookups some could be answered in time for their slice, and others not.
  NOTIFICATION_USER_SERVICE_REUSE: '1m',
  // Nothing is taken up by itself.
  NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
};

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

const entryFor = (key: string, occurredAt = 1_790_000_000_000, userId = 'user-1') =>
  turn({
    idempotency_key: key,
    recipient_user_ids_json: JSON.stringify([userId]),
    occurred_at_ms: String(occurredAt),
  });

const keys = (count: number, prefix = 'key') =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

/** Starts a slice past the reader, its intents for these users in turn. @returns its notification ids. */
async function startedSlice(count: number, userIds = ['user-1']): Promise<string[]> {
  const now = Date.now();
  const intents = keys(count).map((key, index): Intent => ({
    ...accepted(entryFor(key, undefined, userIds[index % userIds.length])),
    notificationId: `${now}-${index}`,
  }));
  await startSlice(slot.client.workflow, intents);
  return intents.map(({ notificationId }) => notificationId);
}

const handleOf = (ids: readonly string[]) => slot.client.workflow.getHandle(sliceWorkflowId(ids[0]!));

const outcomeOf = (ids: readonly string[]): Promise<SliceOutcome> =>
  handleOf(ids).result() as Promise<SliceOutcome>;

/** Until an attempt of the slice has failed for this. @returns the type of its workflow. */
const waitsFor = (ids: readonly string[], failure: string): Promise<string> =>
  eventually(
    `${sliceWorkflowId(ids[0]!)} to wait for ${failure}`,
    async () => {
      const { type, raw } = await handleOf(ids).describe();
      const reasons = raw.pendingActivities?.map(
        ({ lastFailure }) => lastFailure?.applicationFailureInfo?.type,
      );
      return reasons?.includes(failure) && type;
    },
    LIMIT_MS,
  );

const delivered = (expected: readonly string[]): Promise<string[]> =>
  eventually(
    'all to be handed off',
    async () => {
      const found = await outboundIds(slot.redis);
      return found.length >= expected.length && found;
    },
    LIMIT_MS,
  );

/** Notifications that were ever started; visibility is a moment late, so ask when a slice has ended. */
const notifications = async (): Promise<number> =>
  (await slot.client.workflow.count("WorkflowType = 'notification'")).count;

/** PostgreSQL takes no change of a route, until the trigger `full_disk` is dropped. @param of which, in SQL. */
async function fillDisk(of: string): Promise<void> {
  await slot.db.query(
    `CREATE FUNCTION notification.refuse() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$`,
  );
  await slot.db.query(
    `CREATE TRIGGER full_disk BEFORE UPDATE ON notification.routes ${of} EXECUTE FUNCTION notification.refuse()`,
  );
}

async function expectNothingSpent(ids: readonly string[]): Promise<void> {
  const { rows } = await slot.db.query(
    'SELECT DISTINCT status, attempt_count, last_error_at IS NULL AS is_clean FROM notification.routes WHERE notification_id = ANY ($1)',
    [ids],
  );
  expect(rows).toEqual([{ status: 'published', attempt_count: 1, is_clean: true }]);
}

test(
  'I56 I24 without PostgreSQL a slice waits as one, and goes on as one',
  async () => {
    await slot.startService(IN_SLICES);
    const outage = await slot.cutOffDatabase();
    const ids = await startedSlice(20);
    await waitsFor(ids, 'PostgresUnavailable');
    await outage.restore();
    expect(await outcomeOf(ids)).toEqual({
      ...{ accepted: 20, duplicates: 0, rejected: 0 },
      ...{ handedOn: [], cancelled: [] },
    });
    expect(await delivered(deliveriesTo('user-1', ids))).toEqual(deliveriesTo('user-1', ids));
    await nothingLeftRunning(slot, LIMIT_MS);
    await expectNothingSpent(ids);
    expect(await notifications()).toBe(0);
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I24 PostgreSQL goes away between the hand-offs of a slice and their rows: it waits as one, and hands nothing off twice',
  async () => {
    await slot.startService(IN_SLICES);
    await fillDisk('');
    const ids = await startedSlice(20);
    await waitsFor(ids, 'PostgresUnusable');
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    await slot.db.query('DROP TRIGGER full_disk ON notification.routes');
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 20, handedOn: [] });
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    await expectNothingSpent(ids);
    expect(await notifications()).toBe(0);
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I9 a reader that begins anew is not held up by a slice that waits, but for intents with its keys',
  async () => {
    const service = await slot.startService(IN_SLICES);
    // For the recipient of the slice alone.
    await fillDisk("FOR EACH ROW WHEN (NEW.recipient_ref LIKE '%user-2')");
    const ids = await startedSlice(20, ['user-2']);
    await waitsFor(ids, 'PostgresUnusable');
    await service.stop();
    await slot.startService(IN_SLICES);
    const next = await append(
      slot.redis,
      keys(2, 'next').map((key) => entryFor(key)),
    );
    const others = [...deliveriesTo('user-2', ids), ...deliveriesTo('user-1', next)].sort();
    // Long before a slice counts as one that takes too long.
    await eventually(
      'the others to be delivered',
      async () => (await outboundIds(slot.redis)).length >= others.length,
      30_000,
    );
    const [repeat] = await append(slot.redis, [entryFor('key-0', undefined, 'user-2')]);
    expect((await handleOf(ids).describe()).status.name).toBe('RUNNING');
    await slot.db.query('DROP TRIGGER full_disk ON notification.routes');
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 20, handedOn: [] });
    const duplicates = await eventually('the repeat to be decided', async () => {
      const { rows } = await slot.db.query(
        'SELECT notification_id, duplicate_of FROM notification.duplicates',
      );
      return rows.length > 0 && rows;
    });
    expect(duplicates).toEqual([{ notification_id: repeat, duplicate_of: ids[0] }]);
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(others);
  },
  TEST_LIMIT_MS,
);

test.each([
  { what: 'refuses connections', mode: { kind: 'refuse' } as const },
  { what: 'has gone silent', mode: { kind: 'half-open', silent: 'both' } as const },
  { what: 'does not get its answers through', mode: { kind: 'half-open', silent: 'answers' } as const },
])(
  'I56 I21 Redis $what before a slice is published: it waits as one, no budget is spent, and nothing is handed off twice',
  async ({ mode }) => {
    const proxy = await startTcpProxy(slot.endpoints.redis);
    try {
      await slot.startService(IN_SLICES, { redis: { host: proxy.host, port: proxy.port } });
      // The slice has heard Redis' clock by the time that it writes its records, and hands off when they are written.
      const holder = await slot.db.connect();
      await holder.query('BEGIN');
      await holder.query('LOCK TABLE notification.records IN SHARE ROW EXCLUSIVE MODE');
      const ids = await startedSlice(20);
      await eventually('its records to be waited for', async () => {
        const { rows } = await slot.db.query(
          "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        );
        return rows.length > 0;
      });
      await proxy.set(mode);
      if (mode.kind === 'refuse') proxy.cut();
      await holder.query('COMMIT');
      holder.release();
      await waitsFor(ids, 'RedisUnavailable');
      await proxy.set({ kind: 'open' });
      expect(await outcomeOf(ids)).toMatchObject({ accepted: 20, handedOn: [] });
      await nothingLeftRunning(slot, LIMIT_MS);
      expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
      await expectNothingSpent(ids);
      expect(await notifications()).toBe(0);
    } finally {
      await slot.stopServices();
      await proxy.stop();
    }
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I12 without the User Service slices wait as slices, however many; administrators and later intents are not held up',
  async () => {
    const perSlice = 5;
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const early = await append(
      slot.redis,
      // More slices than a reader lets be under way, 50.
      keys(55 * perSlice).map((key) => entryFor(key)),
    );
    const forAdministrators = await append(
      slot.redis,
      keys(10, 'admin').map((key) => entryOf('game.generation_failed', { idempotency_key: key })),
    );
    const env = {
      ...IN_SLICES,
      NOTIFICATION_INTENTS_PER_WORKFLOW: String(perSlice),
      NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: 'one@example.com',
      NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '10000',
    };
    const service = await slot.startService(env);
    const toAdministrators = forAdministrators.map((id) => `${id}/email:email:one@example.com`).sort();
    expect(await delivered(toAdministrators)).toEqual(toAdministrators);
    const slices = early.filter((_, index) => index % perSlice === 0);
    await eventually(
      'all slices to wait',
      async () => {
        const waiting = await slot.client.workflow.count(
          `WorkflowType = '${WAITING_SLICE_WORKFLOW}' AND ExecutionStatus = 'Running'`,
        );
        return waiting.count === slices.length;
      },
      LIMIT_MS,
    );
    expect(await waitsFor(early, 'UserServiceUnavailable')).toBe(WAITING_SLICE_WORKFLOW);
    const { rows } = await slot.db.query<{ slices: number; intents: number }>(
      "SELECT count(DISTINCT intent ->> 'slice')::int AS slices, count(*)::int AS intents FROM notification.waiting_intents",
    );
    expect(rows).toEqual([{ slices: slices.length, intents: early.length }]);
    // The next process does not wait for them either.
    await service.stop();
    await slot.startService(env);
    const [late] = (await append(slot.redis, [
      entryOf('game.generation_failed', { idempotency_key: 'late' }),
    ])) as [string];
    const andLate = [...toAdministrators, `${late}/email:email:one@example.com`].sort();
    expect(await delivered(andLate)).toEqual(andLate);

    slot.userService.heal();
    const all = [...andLate, ...deliveriesTo('user-1', early)].sort();
    expect(await delivered(all)).toEqual(all);
    await nothingLeftRunning(slot, LIMIT_MS);
    const outcomes = await Promise.all(slices.map((id) => outcomeOf([id])));
    for (const outcome of outcomes) expect(outcome).toMatchObject({ accepted: perSlice, handedOn: [] });
    await expectNothingSpent(early);
    // Urgent ones may have gone ahead, each alone.
    expect(await notifications()).toBeLessThanOrEqual(forAdministrators.length + 1);
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I12 a single intent that is left of a slice waits, and is delivered',
  async () => {
    await slot.startService(IN_SLICES);
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const ids = await startedSlice(1);
    await waitsFor(ids, 'UserServiceUnavailable');
    slot.userService.heal();
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 1, handedOn: [] });
    expect(await delivered(deliveriesTo('user-1', ids))).toEqual(deliveriesTo('user-1', ids));
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I12 who was looked up before the User Service came back waits with the slice, although it came back within the attempt',
  async () => {
    await slot.startService({ ...IN_SLICES, NOTIFICATION_USER_SERVICE_TIMEOUT: '1m' });
    const lookups = holdAnswers();
    slot.userService.fail({ failure: lookups.failure, userId: 'user-1' });
    slot.userService.fail({ failure: { kind: 'status', status: 503 }, userId: 'user-2' });
    const ids = await startedSlice(2, ['user-1', 'user-2']);
    await eventually(
      'all lookups of the other to have failed',
      async () => slot.userService.requests.filter(({ userId }) => userId === 'user-2').length >= 3,
    );
    lookups.release();
    await waitsFor(ids, 'UserServiceUnavailable');
    slot.userService.heal();
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 2, handedOn: [] });
    const expected = [...deliveriesTo('user-1', [ids[0]!]), ...deliveriesTo('user-2', [ids[1]!])].sort();
    expect(await delivered(expected)).toEqual(expected);
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await notifications()).toBe(0);
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I9 I12 of two with one key in a slice that waited the earlier is delivered, and so it is across slices',
  async () => {
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const service = await slot.startService(IN_SLICES);
    await service.stop();
    const ids = await append(slot.redis, [
      ...keys(18).map((key) => entryFor(key)),
      ...['key-0', 'key-1'].map((key) => entryFor(key, 1_790_000_000_001)),
      ...keys(20, 'next').map((key) => entryFor(key)),
      entryFor('key-2', 1_790_000_000_001),
      entryFor('key-3'),
    ]);
    await slot.startService(IN_SLICES);
    await waitsFor(ids, 'UserServiceUnavailable');
    slot.userService.heal();
    const good = ids.filter((_, index) => ![18, 19, 40, 41].includes(index));
    expect(await delivered(deliveriesTo('user-1', good))).toEqual(deliveriesTo('user-1', good));
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 18, rejected: 2, handedOn: [] });
    const { rows: refused } = await slot.db.query<{ id: string; of: string }>(
      "SELECT stream_entry_id AS id, conflicts_with AS of FROM notification.malformed_intents WHERE failure_code = 'idempotency_conflict' ORDER BY conflicts_with",
    );
    expect(refused).toEqual([
      { id: ids[18], of: ids[0] },
      { id: ids[19], of: ids[1] },
      { id: ids[40], of: ids[2] },
    ]);
    const { rows: repeated } = await slot.db.query(
      'SELECT notification_id, duplicate_of FROM notification.duplicates',
    );
    expect(repeated).toEqual([{ notification_id: ids[41], duplicate_of: ids[3] }]);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', good));
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I26 I40 operators find an intent of a slice that waits, and take it out at once; the others go on',
  async () => {
    const operator = operatorOf(slot, 'http://ui.test');
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    await slot.startService(IN_SLICES);
    const ids = await startedSlice(10);
    await waitsFor(ids, 'UserServiceUnavailable');
    expect(await operator.notifications.show(ids[4]!)).toMatchObject({
      slice: { workflowId: sliceWorkflowId(ids[0]!), live: { status: 'RUNNING' } },
    });
    expect(await operator.notifications.cancel(ids[4]!, { limitMs: 60_000 })).toMatchObject({
      status: 'CANCELLED',
      ...{ published: 0, open: 0 },
    });
    expect(
      (await operator.intents.waiting()).items.map(({ notificationId }) => notificationId),
    ).not.toContain(ids[4]);
    slot.userService.heal();
    const others = ids.filter((id) => id !== ids[4]);
    expect(await outcomeOf(ids)).toMatchObject({ accepted: 9, handedOn: [], cancelled: [ids[4]] });
    expect(await delivered(deliveriesTo('user-1', others))).toEqual(deliveriesTo('user-1', others));
    await nothingLeftRunning(slot, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', others));
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I26 a slice that waits and is cancelled as a whole leaves nothing waiting',
  async () => {
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    await slot.startService(IN_SLICES);
    const ids = await startedSlice(10);
    await waitsFor(ids, 'UserServiceUnavailable');
    await handleOf(ids).cancel();
    await expect(outcomeOf(ids)).rejects.toThrow('cancelled');
    const { rows } = await slot.db.query('SELECT FROM notification.waiting_intents');
    expect(rows).toEqual([]);
  },
  TEST_LIMIT_MS,
);
