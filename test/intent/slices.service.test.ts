/** Slices: what becomes of intents that are read together, of those in trouble, and how operators find and stop them. */
import { startSlice } from '../../activities/intent/start.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { decodePushPayload } from '../../api/intent/push-event.ts';
import type { Operator } from '../../client/operator.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import {
  INTENT_TASK_QUEUE,
  RECONCILIATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { SliceOutcome } from '../../workflows/intent/slice-contract.ts';
import { SLICE_WORKFLOW, sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import {
  GATEWAY,
  MAIL,
  OFFSET_KEY,
  append,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
} from '../service-process.ts';
import { accepted, turn } from './entries.ts';

const SLICE = 50;
const IN_SLICES = {
  NOTIFICATION_INTENTS_PER_WORKFLOW: String(SLICE),
  NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
  NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
  // As many lookups as intents would take longer than a slice waits for them.
  NOTIFICATION_USER_SERVICE_REUSE: '1m',
  // Nothing is taken up by itself.
  NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
};

let slot: Slot;
let operator: Operator;
beforeEach(async () => {
  slot = await takeSlot();
  operator = operatorOf(slot, 'http://ui.test');
});
afterEach(() => slot.release());

interface Wish {
  key: string;
  to?: string[];
  occurredAt?: number;
}

const entryFor = ({ key, to = ['user-1'], occurredAt = 1_790_000_000_000 }: Wish) =>
  turn({
    idempotency_key: key,
    recipient_user_ids_json: JSON.stringify(to),
    occurred_at_ms: String(occurredAt),
  });

/** While no service runs, so that they are read together. */
const gather = (wishes: readonly Wish[]): Promise<string[]> => append(slot.redis, wishes.map(entryFor));

const wishes = (count: number, of: Omit<Wish, 'key'> = {}): Wish[] =>
  Array.from({ length: count }, (_, index) => ({ key: `key-${index}`, ...of }));

const statusOf = (workflowId: string): Promise<string | undefined> =>
  slot.client.workflow
    .getHandle(workflowId)
    .describe()
    .then(
      ({ status }) => status.name,
      () => undefined,
    );

const outcomeOf = async (slice: string): Promise<SliceOutcome> => {
  const handle = slot.client.workflow.getHandle(sliceWorkflowId(slice));
  await eventually(`${slice} to be started`, () => handle.describe());
  return (await handle.result()) as SliceOutcome;
};

const delivered = (expected: string[]) =>
  eventually('all to be handed off', async () => {
    const found = await outboundIds(slot.redis);
    return found.length >= expected.length && found;
  });

/** Intents for which somebody has started a slice that nobody works on yet. */
async function startedSlice(count: number): Promise<string[]> {
  const now = Date.now();
  const intents = wishes(count).map((wish, index): Intent => ({
    ...accepted(entryFor(wish)),
    notificationId: `${now}-${index}`,
  }));
  await startSlice(slot.client.workflow, intents);
  return intents.map(({ notificationId }) => notificationId);
}

test('I56 I2 I3 300 intents that are read together are each delivered once, by a few workflows', async () => {
  const ids = await gather(wishes(300));
  await slot.startService(IN_SLICES);
  expect(await delivered(deliveriesTo('user-1', ids))).toEqual(deliveriesTo('user-1', ids));
  await nothingLeftRunning(slot, 30_000);

  const slices = ids.filter((_, index) => index % SLICE === 0);
  expect(await Promise.all(slices.map(outcomeOf))).toEqual(
    slices.map(() => ({ accepted: SLICE, duplicates: 0, rejected: 0, handedOn: [], cancelled: [] })),
  );
  expect(await Promise.all(ids.map((id) => statusOf(notificationWorkflowId(id))))).toEqual(
    ids.map(() => undefined),
  );
  expect(await slot.redis.get(OFFSET_KEY)).toBe(ids.at(-1));
  const { rows } = await slot.db.query<{ slice_id: string; intents: number; published: number }>(
    `SELECT slice_id, count(DISTINCT notification_id)::int AS intents,
            count(*) FILTER (WHERE routes.status = 'published' AND attempt_count = 1)::int AS published
       FROM notification.records JOIN notification.routes USING (notification_id)
      GROUP BY slice_id ORDER BY min(records.accepted_at), slice_id`,
  );
  expect(rows.map(({ slice_id }) => slice_id).sort()).toEqual([...slices].sort());
  expect(new Set(rows.map(({ intents, published }) => `${intents} ${published}`))).toEqual(
    new Set([`${SLICE} ${2 * SLICE}`]),
  );
});

test('I56 I16 I18 each intent of a slice says its own', async () => {
  const ids = await append(
    slot.redis,
    [1, 2, 3].map((number) =>
      turn({
        idempotency_key: `key-${number}`,
        payload_json: JSON.stringify({ game_id: 'g', game_name: `Game ${number}`, turn_number: number }),
      }),
    ),
  );
  await slot.startService(IN_SLICES);
  await delivered(['user-1', 'user-2'].flatMap((user) => deliveriesTo(user, ids)));
  const turnsIn = async (stream: string, read: (fields: Buffer[]) => unknown) =>
    new Set(
      (await slot.redis.xrangeBuffer(stream, '-', '+')).map(([, fields]) => {
        const id = fields[fields.findIndex((field) => /^(event|delivery)_id$/.test(field.toString())) + 1]!;
        return `${ids.indexOf(id.toString().split('/')[0]!) + 1} ${String(read(fields))}`;
      }),
    );
  const valueOf = (fields: Buffer[], name: string) =>
    fields[fields.findIndex((field) => field.toString() === name) + 1]!;
  const own = new Set(['1 1', '2 2', '3 3']);
  expect(
    await turnsIn(
      GATEWAY,
      (fields) => decodePushPayload('game.turn.ready', valueOf(fields, 'payload_bytes'))['turn_number'],
    ),
  ).toEqual(own);
  expect(
    await turnsIn(
      MAIL,
      (fields) => /"turn_number":(\d)/.exec(valueOf(fields, 'payload_json').toString())?.[1],
    ),
  ).toEqual(own);
});

test('I56 an intent that is read alone has a workflow of its own', async () => {
  await slot.startService(IN_SLICES);
  const [id] = (await gather(wishes(1))) as [string];
  await delivered(deliveriesTo('user-1', [id]));
  await eventually(
    'its workflow to end',
    async () => (await statusOf(notificationWorkflowId(id))) === 'COMPLETED',
  );
  expect(await statusOf(sliceWorkflowId(id))).toBeUndefined();
});

test('I56 I9 repeats and conflicts within a slice and across slices: the first in the stream has the key', async () => {
  const repeated = wishes(SLICE).map((wish, index) => (index % 10 === 9 ? { ...wish, key: 'key-0' } : wish));
  const first = await gather(repeated);
  const second = await gather([
    { key: 'key-1' },
    { key: 'key-2', occurredAt: 1_790_000_000_001 },
    { key: 'new', occurredAt: 1_790_000_000_001 },
    { key: 'new', occurredAt: 1_790_000_000_002 },
    { key: 'new', occurredAt: 1_790_000_000_001 },
  ]);
  const lookups = holdAnswers();
  slot.userService.fail({ failure: lookups.failure });
  await slot.startService(IN_SLICES);
  await lookups.arrived;
  expect(await statusOf(sliceWorkflowId(second[0]!))).toBeUndefined();
  lookups.release();
  const taken = [...first.filter((_, index) => index % 10 !== 9), second[2]!];
  expect(await delivered(deliveriesTo('user-1', taken))).toEqual(deliveriesTo('user-1', taken));
  await nothingLeftRunning(slot, 30_000);
  // The second waits for the first, which has its keys.
  const [one, other] = await Promise.all(
    [first, second].map(([id]) => slot.client.workflow.getHandle(sliceWorkflowId(id!)).describe()),
  );
  expect(other!.startTime.getTime()).toBeGreaterThanOrEqual(one!.closeTime!.getTime());
  expect(await outcomeOf(first[0]!)).toMatchObject({
    accepted: 45,
    duplicates: 5,
    rejected: 0,
    handedOn: [],
  });
  expect(await outcomeOf(second[0]!)).toMatchObject({
    accepted: 1,
    duplicates: 2,
    rejected: 2,
    handedOn: [],
  });
  const { rows: duplicates } = await slot.db.query<{ id: string; of: string }>(
    'SELECT notification_id AS id, duplicate_of AS of FROM notification.duplicates',
  );
  expect(new Map(duplicates.map(({ id, of }) => [id, of]))).toEqual(
    new Map([
      ...[9, 19, 29, 39, 49].map((index): [string, string] => [first[index]!, first[0]!]),
      [second[0]!, first[1]!],
      [second[4]!, second[2]!],
    ]),
  );
  const { rows: refused } = await slot.db.query<{ id: string; code: string; of: string }>(
    'SELECT stream_entry_id AS id, failure_code AS code, conflicts_with AS of FROM notification.malformed_intents ORDER BY 1',
  );
  expect(refused).toEqual([
    { id: second[1], code: 'idempotency_conflict', of: first[2] },
    { id: second[3], code: 'idempotency_conflict', of: second[2] },
  ]);
  expect(await operator.notifications.show(second[0]!)).toMatchObject({
    stage: 'ended',
    duplicateOf: first[1],
  });
});

test('I56 I11 who does not exist, and what PostgreSQL refuses, costs nobody else of the slice anything', async () => {
  await slot.db.query("ALTER TABLE notification.records ADD CHECK (idempotency_key <> 'key-3')");
  const ids = await gather(
    wishes(10).map((wish, index) => (index === 5 ? { ...wish, to: ['nobody'] } : wish)),
  );
  await slot.startService(IN_SLICES);
  const good = ids.filter((_, index) => index !== 3 && index !== 5);
  expect(await delivered(deliveriesTo('user-1', good))).toEqual(deliveriesTo('user-1', good));
  expect(await outcomeOf(ids[0]!)).toMatchObject({ accepted: 8, rejected: 2, handedOn: [] });
  const { rows } = await slot.db.query<{ id: string; code: string }>(
    'SELECT stream_entry_id AS id, failure_code AS code FROM notification.malformed_intents ORDER BY 1',
  );
  expect(rows).toEqual([
    { id: ids[3], code: 'unstorable' },
    { id: ids[5], code: 'recipient_not_found' },
  ]);
});

test('I56 I12 a recipient whose lookups fail or hang: that intent waits by itself, a later one with its key after it', async () => {
  const kinds: Wish[] = wishes(20);
  kinds[4] = { key: 'away', to: ['user-9'] };
  kinds[5] = { key: 'hangs', to: ['user-8'] };
  kinds[12] = { key: 'away', to: ['user-9'], occurredAt: 1_790_000_000_001 };
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const lookups = holdAnswers();
  slot.userService.fail({ userId: 'user-8', failure: lookups.failure });
  const ids = await gather(kinds);
  await slot.startService({ ...IN_SLICES, NOTIFICATION_USER_SERVICE_TIMEOUT: '30s' });
  const inTrouble = [4, 5, 12];
  const well = ids.filter((_, index) => !inTrouble.includes(index));
  expect(await delivered(deliveriesTo('user-1', well))).toEqual(deliveriesTo('user-1', well));
  const { handedOn } = await outcomeOf(ids[0]!);
  expect(handedOn).toEqual(inTrouble.map((index) => ids[index]));
  expect((await operator.intents.waiting()).items.map(({ notificationId }) => notificationId)).toEqual(
    expect.arrayContaining([ids[4], ids[5]]),
  );
  slot.userService.heal();
  lookups.release();
  const all = [...deliveriesTo('user-1', well), ...deliveriesTo('user-9', [ids[4]!])];
  await eventually('the earlier one to be delivered', async () =>
    (await outboundIds(slot.redis)).includes(`${ids[4]}/push:user:user-9`),
  );
  await eventually('the later one to be refused', async () => {
    const { rows } = await slot.db.query(
      "SELECT FROM notification.malformed_intents WHERE stream_entry_id = $1 AND failure_code = 'idempotency_conflict'",
      [ids[12]],
    );
    return rows.length === 1;
  });
  expect(await outboundIds(slot.redis)).toEqual(expect.arrayContaining(all));
});

test('I56 I9 of two with one key the earlier wins, though a slice with the same beginning was started before without them', async () => {
  // The earlier ones are decided last: the lookup of their recipient is held.
  const lookups = holdAnswers();
  slot.userService.fail({ userId: 'user-7', failure: lookups.failure });
  const pairs = wishes(5).flatMap((wish) => [{ ...wish, to: ['user-7'] }, wish]);
  const [first, ...ids] = (await gather([{ key: 'first' }, ...pairs])) as [string, ...string[]];
  // By a reader that died before it could save its offset, when the others were not there yet.
  await startSlice(slot.client.workflow, [
    { ...accepted(entryFor({ key: 'first' })), notificationId: first },
  ]);
  await slot.startService({ ...IN_SLICES, NOTIFICATION_USER_SERVICE_TIMEOUT: '30s' });

  const earlier = ids.filter((_, index) => index % 2 === 0);
  const later = ids.filter((_, index) => index % 2 === 1);
  await eventually('the later ones to be begun', async () => {
    const found = await Promise.all(later.map((id) => statusOf(notificationWorkflowId(id))));
    return found.every((status) => status !== undefined);
  });
  lookups.release();
  await eventually('the later ones to be refused', async () => {
    const { rows } = await slot.db.query<{ id: string }>(
      `SELECT stream_entry_id AS id FROM notification.malformed_intents WHERE failure_code = 'idempotency_conflict'`,
    );
    const refused = rows.map(({ id }) => id);
    expect(refused.filter((id) => !later.includes(id))).toEqual([]);
    return refused.length === later.length;
  });
  await eventually('the earlier ones to be delivered', async () => {
    const found = await outboundIds(slot.redis);
    return deliveriesTo('user-7', earlier).every((id) => found.includes(id));
  });
});

test('I56 I9 of two with one key the earlier wins, though PostgreSQL did not write down that it waits', async () => {
  const kinds = wishes(10);
  kinds[4] = { key: 'away', to: ['user-9'] };
  kinds[7] = { key: 'away', to: ['user-1'] };
  slot.userService.fail({ userId: 'user-9', failure: { kind: 'status', status: 503 } });
  const ids = await gather(kinds);
  // As on a full disk, on which some tables have room left.
  await slot.db.query(
    `CREATE FUNCTION notification.no_room() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
     CREATE TRIGGER no_room BEFORE INSERT ON notification.waiting_intents EXECUTE FUNCTION notification.no_room()`,
  );
  await slot.startService(IN_SLICES);
  await eventually('the slice to be tried again', async () => {
    const { raw } = await slot.client.workflow.getHandle(sliceWorkflowId(ids[0]!)).describe();
    return (raw.pendingActivities?.[0]?.attempt ?? 0) > 1;
  });
  await slot.db.query('DROP FUNCTION notification.no_room() CASCADE');
  slot.userService.heal();
  await eventually('the later one to be refused', async () => {
    const { rows } = await slot.db.query<{ id: string; code: string }>(
      'SELECT stream_entry_id AS id, failure_code AS code FROM notification.malformed_intents',
    );
    expect(rows.filter(({ id }) => id !== ids[7])).toEqual([]);
    return rows[0]?.code === 'idempotency_conflict';
  });
});

test('I56 I26 a paused channel: the others go, and those that waited go once it is resumed', async () => {
  const service = await slot.startService(IN_SLICES);
  await operator.channels.pause('email', { requestedBy: 'test' });
  await service.stop();
  const ids = await gather(wishes(20));
  await slot.startService(IN_SLICES);
  expect((await outcomeOf(ids[0]!)).handedOn).toEqual(ids);
  expect(await slot.redis.xlen(GATEWAY)).toBe(20);
  expect(await slot.redis.exists(MAIL)).toBe(0);
  await operator.channels.resume('email', { requestedBy: 'test' });
  expect(await delivered(deliveriesTo('user-1', ids))).toEqual(deliveriesTo('user-1', ids));
  await nothingLeftRunning(slot, 30_000);
});

test('I56 I21 I22 a stream that takes nothing: each route has its budget exactly, and is dead after it', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const ids = await gather(wishes(10));
  await slot.startService(IN_SLICES);
  expect((await outcomeOf(ids[0]!)).handedOn).toEqual(ids);
  const states = async () =>
    (
      await slot.db.query<object>(
        'SELECT DISTINCT channel, status, attempt_count FROM notification.routes ORDER BY channel, status',
      )
    ).rows;
  await eventually('the pushes to be dead', async () => !JSON.stringify(await states()).includes('failed'));
  expect(await states()).toEqual([
    { channel: 'email', status: 'published', attempt_count: 1 },
    { channel: 'push', status: 'dead_letter', attempt_count: 3 },
  ]);
  await slot.redis.del(GATEWAY);
  for (const id of ids) await operator.replays.route(id, 'push:user:user-1', { requestedBy: 'test' });
  expect(await delivered(deliveriesTo('user-1', ids))).toEqual(deliveriesTo('user-1', ids));
});

test('I56 I41 a large audience among small ones has a workflow of its own', async () => {
  const large = Array.from({ length: 40 }, (_, index) => `user-${index + 1}`);
  const kinds = wishes(10);
  kinds[3] = { key: 'large', to: large };
  const ids = await gather(kinds);
  await slot.startService(IN_SLICES);
  const small = ids.filter((_, index) => index !== 3);
  const expected = [
    ...deliveriesTo('user-1', small),
    ...large.flatMap((user) => deliveriesTo(user, [ids[3]!])),
  ].sort();
  expect(await delivered(expected)).toEqual(expected);
  // What its producer sends after it begins after it.
  expect(await outcomeOf(ids[0]!)).toMatchObject({ accepted: 3 });
  expect(await outcomeOf(ids[4]!)).toMatchObject({ accepted: 6 });
  expect(await statusOf(notificationWorkflowId(ids[3]!))).not.toBeUndefined();
});

test('I56 I3 entries that are read again after their slice was started: nothing is done twice', async () => {
  const ids = await gather(wishes(30));
  const service = await slot.startService(IN_SLICES);
  await delivered(deliveriesTo('user-1', ids));
  await service.stop();
  // As if the reader had died before it could save its offset, and more had come meanwhile.
  await slot.redis.del(OFFSET_KEY);
  await slot.db.query('DELETE FROM notification.inbound_streams');
  const more = await gather(wishes(5).map(({ key }) => ({ key: `more-${key}` })));
  await slot.startService(IN_SLICES);
  const all = deliveriesTo('user-1', [...ids, ...more]);
  expect(await delivered(all)).toEqual(all);
  await nothingLeftRunning(slot, 30_000);
  expect(await outboundIds(slot.redis)).toEqual(all);
  expect(await slot.redis.get(OFFSET_KEY)).toBe(more.at(-1));
});

test('I56 I40 operators find an intent in its slice, before it is accepted and after', async () => {
  const ids = await startedSlice(10);
  const workflowId = sliceWorkflowId(ids[0]!);
  await eventually('the slice to be found', async () => {
    const view = await operator.notifications.show(ids[7]!);
    return view.stage === 'accepting' && view.slice?.workflowId === workflowId;
  });
  const { raw } = await slot.client.workflow.getHandle(workflowId).describe();
  expect(raw.executionConfig?.userMetadata?.summary?.data?.toString()).toContain(
    `10 intents from ${ids[0]} to ${ids[9]}`,
  );
  await slot.startService(IN_SLICES);
  await delivered(deliveriesTo('user-1', ids));
  await outcomeOf(ids[0]!);
  const view = await operator.notifications.show(ids[7]!);
  expect(view).toMatchObject({
    stage: 'accepted',
    totals: { published: 2 },
    slice: { workflowId, live: { status: 'COMPLETED' }, link: expect.stringContaining('http://ui.test') },
  });
  expect(view.live).toBeUndefined();
  // Its entry is in no stream.
  await expect(operator.notifications.cancel(ids[7]!, { limitMs: 60_000 })).rejects.toThrow(
    'nothing to cancel',
  );
});

test('I56 I26 an intent that is cancelled in its slice reaches nobody, and the others are delivered', async () => {
  const { failure, arrived, release } = holdAnswers();
  slot.userService.fail({ failure });
  const ids = await gather(wishes(10));
  await slot.startService(IN_SLICES);
  await arrived;
  expect(await operator.notifications.cancel(ids[4]!, { limitMs: 60_000 })).toMatchObject({
    ...{ status: 'CANCELLED', published: 0, open: 0 },
  });
  release();
  const others = ids.filter((id) => id !== ids[4]);
  expect(await delivered(deliveriesTo('user-1', others))).toEqual(deliveriesTo('user-1', others));
  expect(await outcomeOf(ids[0]!)).toMatchObject({ accepted: 9 });
});

test('I56 I26 a slice that is cancelled as a whole leaves no route open', async () => {
  const ids = await startedSlice(5);
  const handle = slot.client.workflow.getHandle(sliceWorkflowId(ids[0]!));
  await handle.cancel();
  await slot.startService(IN_SLICES);
  await eventually(
    'the slice to be cancelled',
    async () => (await statusOf(handle.workflowId)) === 'CANCELLED',
  );
  const { rows } = await slot.db.query(
    "SELECT FROM notification.routes WHERE status IN ('pending', 'failed') AND notification_id = ANY ($1)",
    [ids],
  );
  expect(rows).toEqual([]);
});

test('I56 I49 intent-4 routes whose workflows have ended are taken up, though their slice runs', async () => {
  const service = await slot.startService(IN_SLICES);
  await operator.channels.pause('email', { requestedBy: 'test' });
  await service.stop();
  const ids = await gather(wishes(4));
  await slot.startService(IN_SLICES);
  await outcomeOf(ids[0]!);
  for (const id of ids) {
    const route = slot.client.workflow.getHandle(`${notificationWorkflowId(id)}/email:user:user-1`);
    // One whose first attempt is still to come, or begins later, would be published when its channel is open again.
    await eventually('the route to wait', async () => {
      const { events } = await route.fetchHistory();
      return events?.some((event) => event.upsertWorkflowSearchAttributesEventAttributes);
    });
    await route.terminate();
    await slot.client.workflow.getHandle(notificationWorkflowId(id)).terminate();
  }
  await slot.db.query("UPDATE notification.records SET slice_id = 'nobody'");
  await slot.db.query(
    "UPDATE notification.routes SET next_attempt_at = next_attempt_at - interval '10 minutes' WHERE next_attempt_at IS NOT NULL",
  );
  const slice = await slot.client.workflow.start(SLICE_WORKFLOW, {
    workflowId: sliceWorkflowId('nobody'),
    taskQueue: 'of nobody',
  });
  await slot.db.query("UPDATE notification.channels SET is_paused = false WHERE channel = 'email'");
  const reconcile = () =>
    slot.client.workflow.execute(RECONCILIATION_WORKFLOW, {
      workflowId: `reconciliation-${Date.now()}`,
      taskQueue: INTENT_TASK_QUEUE,
    });
  expect(await reconcile()).toMatchObject({ overdue: 4, published: 4, restarted: 0 });
  await slice.terminate();
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
});
