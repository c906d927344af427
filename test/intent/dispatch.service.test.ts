/**
 * From a stream entry to its row, and from the row to a workflow or, in mode `direct`, to its delivery: urgent ones first,
 * then each producer in turn.
 */
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import type { Pool, QueryConfig } from 'pg';
import type { DispatchResources } from '../../activities/intent/dispatch.ts';
import { createDispatcher } from '../../activities/intent/dispatch.ts';
import { findIntents } from '../../activities/intent/decisions.ts';
import type { ReadEntry } from '../../activities/intent/entries.ts';
import { OffsetMovedError, loadPosition, saveEntries } from '../../activities/intent/entries.ts';
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import { writeOpenRows } from '../../dev/intent-rows.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { createLogger } from '../../workers/logger.ts';
import { eventually, operatorOf, slotOfEachTest } from '../harness.ts';
import { MAIL, allPublished, append, deliveriesTo, outboundIds } from '../service-process.ts';
import type { Changes } from './entries.ts';
import { TURN, accepted, entryOf, turn } from './entries.ts';
import { acceptRows, cancelOne, countOf, makeDue, resultOf, untilIntent, usersUpTo } from './rows.ts';

const STREAM = 'notification:intents';
const LIMIT_MS = 120_000;
const OF_ANOTHER: NotificationType = 'lobby.membership.approved';
const URGENT: NotificationType = 'runtime.image_pull_failed';

/** Lookups are held for longer than by default. */
const PATIENT = { NOTIFICATION_USER_SERVICE_TIMEOUT: '1m' };

const slot = slotOfEachTest();

let count = 0;
function intentOf(type: NotificationType = TURN, changes: Changes = {}): Intent {
  count += 1;
  const entry = entryOf(type, { idempotency_key: `key-${count}`, ...changes });
  return { ...accepted(entry), notificationId: `${count}-0` };
}
/** Writes rows of intents, which a dispatcher takes. */
async function open(many: number, type?: NotificationType, changes?: Changes): Promise<Intent[]> {
  const intents = Array.from({ length: many }, () => intentOf(type, changes));
  await writeOpenRows(slot.db, intents);
  return intents;
}
const idsOf = (intents: readonly Intent[]) => intents.map(({ notificationId }) => notificationId);

const turnTo = (user: string, key: string) =>
  turn({ idempotency_key: key, recipient_user_ids_json: JSON.stringify([user]) });
/** Each to another user. */
const turns = (many: number, key: string) => usersUpTo(many).map((user, n) => turnTo(user, `${key}-${n}`));

/** Has lookups wait, of one user or of all, until they are released. */
function holdLookups(of: { userId?: string } = {}) {
  const lookups = holdAnswers();
  slot.userService.fail({ ...of, failure: lookups.failure });
  return lookups;
}

const statuses = async () => {
  const { rows } = await slot.db.query<{ id: string; status: string }>(
    'SELECT notification_id AS id, status FROM notification.intents ORDER BY read_number',
  );
  return rows.map(({ id, status }) => [id, status]);
};
const noneOpen = () =>
  eventually('no open row', async () => (await countOf(slot, 'intents', "status = 'open'")) === 0);

describe('an entry gets a row', () => {
  const START = { offset: '0-0', entriesPassed: 0 };
  let position = START;
  /** Writes rows, and moves the offset. @param from as the reader knows it. */
  const save = (offset: string, intents: readonly Intent[], from = position) => {
    const metrics = { intentMalformed: () => undefined };
    const resources = { db: slot.db, catalog: GALAXY, log: createLogger('fatal'), metrics };
    const entries = intents.map((intent): ReadEntry => ({ id: intent.notificationId, ok: true, intent }));
    position = { offset, entriesPassed: from.entriesPassed + entries.length };
    return saveEntries(resources, STREAM, entries, from, position);
  };
  const malformed = async () => {
    const statement =
      'SELECT stream_entry_id AS id, failure_code AS code FROM notification.malformed_intents';
    return (await slot.db.query<{ id: string; code: string }>(statement)).rows;
  };
  beforeEach(async () => {
    position = START;
    await loadPosition(slot.db, STREAM, START.offset);
  });

  test('I2 I52 rows and offset are written together, by the reader that holds the offset and by no other', async () => {
    const [one, two] = [intentOf(), intentOf()];
    const other = () => loadPosition(slot.db, 'another', '0-0');
    expect(await other()).toEqual(START);
    expect(await save('8-0', [one])).toEqual({ taken: 1, malformed: 0 });
    await expect(save('9-0', [two], START)).rejects.toThrow(OffsetMovedError);
    expect(await statuses()).toEqual([[one.notificationId, 'open']]);
    expect(await loadPosition(slot.db, STREAM, '0-0')).toEqual({ offset: '8-0', entriesPassed: 1 });
    expect(await other()).toEqual(START);
  });

  test('I3 I53 an entry that comes again changes nothing, and one with other content is recorded', async () => {
    const one = intentOf();
    await save('8-0', [one]);
    await slot.db.query("UPDATE notification.intents SET status = 'duplicate', entry = NULL");
    expect(await save('9-0', [one])).toEqual({ taken: 0, malformed: 0 });
    const next = intentOf();
    const [other, ...others] = [
      { ...one, occurredAtMs: one.occurredAtMs + 1 },
      { ...one, idempotencyKey: 'another' },
      { ...one, producer: 'another' },
    ];
    expect(await save('10-0', [other, next])).toEqual({ taken: 1, malformed: 1 });
    expect(await save('11-0', others)).toEqual({ taken: 0, malformed: 2 });
    expect(await statuses()).toEqual([
      [one.notificationId, 'duplicate'],
      [next.notificationId, 'open'],
    ]);
    const reused = [one.notificationId, 'entry_id_reused'];
    const recorded = (await malformed()).map(({ id, code }) => [id.split('/')[0], code]);
    expect(recorded).toEqual([reused, reused, reused]);

    // Of an intent whose row retention has removed, and whose record it keeps.
    await acceptRows(slot, [next]);
    await slot.db.query('DELETE FROM notification.intents WHERE notification_id = $1', [next.notificationId]);
    expect(await save('12-0', [next])).toEqual({ taken: 0, malformed: 0 });
  });

  test('I6 what PostgreSQL does not take is recorded, and the others get their rows', async () => {
    const [good, bad] = [intentOf(), { ...intentOf(), idempotencyKey: 'a\0b' }];
    expect(await save('8-0', [good, bad])).toEqual({ taken: 1, malformed: 1 });
    expect(await statuses()).toEqual([[good.notificationId, 'open']]);
    expect(await malformed()).toEqual([{ id: bad.notificationId, code: 'unstorable' }]);
  });
});

/** Runs a dispatcher until `end`. @param made what it makes, which `until` counts. */
function dispatching(resources: Omit<DispatchResources, 'log'>, made: readonly unknown[]) {
  const dispatcher = createDispatcher({ ...resources, log: createLogger('fatal') });
  const stop = new AbortController();
  dispatcher.urgentOnly(false);
  const running = dispatcher.run(stop.signal);
  return {
    wake: () => dispatcher.wake(),
    until: (wanted: number) => eventually(`${wanted} of them`, async () => made.length >= wanted),
    end: () => (stop.abort(), running),
  };
}

describe('the order of dispatch', () => {
  afterEach(() => jest.restoreAllMocks());

  /** `started` has the notifications in the order in which their workflows were asked for. */
  function dispatch() {
    const started: string[] = [];
    /** Between each look and the one before it, ms. */
    const rests: number[] = [];
    let lookedAt = 0;
    const db = {
      async query(look: QueryConfig) {
        rests.push(performance.now() - lookedAt);
        const result = await slot.db.query(look);
        lookedAt = performance.now();
        return result;
      },
    } as unknown as Pool;
    const priorities: WorkflowStartOptions['priority'][] = [];
    const workflows = {
      withDeadline: (_: number, call: () => Promise<unknown>) => call(),
      start: async (_: string, { workflowId, requestEagerStart, priority }: WorkflowStartOptions) => {
        // This process may begin it, past Temporal's task queue.
        expect(requestEagerStart).toBe(true);
        priorities.push(priority);
        started.push(workflowId.replace('notification/', ''));
      },
    } as unknown as WorkflowClient;
    const deliverTogether = () => Promise.reject(new Error('not in this mode'));
    const run = dispatching({ db, workflows, bridge: { dispatch: 'child' }, deliverTogether }, started);
    return { started, priorities, rests, ...run };
  }

  test('I86 I87 I88 urgent ones come first, then each producer has its turn, and its own share of the task queue', async () => {
    await open(30);
    const others = await open(2, OF_ANOTHER);
    const [urgent] = (await open(1, URGENT)) as [Intent];
    const { started, priorities, until, end } = dispatch();
    await until(33);
    await end();
    expect(started).toHaveLength(33);
    expect(started[0]).toBe(urgent.notificationId);
    // Both are among the first twenty, though thirty were read before them.
    const positions = idsOf(others).map((id) => started.indexOf(id));
    expect(Math.max(...positions)).toBeLessThan(5);
    expect(priorities[0]).toEqual({ fairnessKey: urgent.producer, priorityKey: 2 });
    for (const position of positions)
      expect(priorities[position]).toEqual({ fairnessKey: others[0]!.producer });
    expect(await countOf(slot, 'intents', 'dispatched_at IS NULL')).toBe(0);
  });

  test('I88 a producer with thirty intents under way waits, others do not, and what is urgent does not either', async () => {
    // However slow the machine is: after ten seconds none of them counts.
    const clock = jest.spyOn(performance, 'now').mockReturnValue(0);
    const flood = await open(33);
    const { started, wake, until, end } = dispatch();
    await until(30);
    const others = [intentOf(OF_ANOTHER), intentOf(URGENT)];
    await writeOpenRows(slot.db, others);
    wake();
    await until(32);
    expect(started.slice(30)).toEqual(idsOf(others).reverse());
    // Five seconds later there are as many places as before.
    clock.mockReturnValue(5_000);
    // One that was tried in vain waits by itself.
    await slot.db.query("UPDATE notification.intents SET reason = 'in vain' WHERE notification_id = $1", [
      flood[0]!.notificationId,
    ]);
    await until(33);
    // One that is accepted is under way until its routes are tried, or paused.
    await acceptRows(slot, [flood[1]!]);
    const later = await open(1, OF_ANOTHER);
    wake();
    await until(34);
    await slot.db.query(
      `INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at)
       SELECT 'channel', name, true, 'test', now() FROM unnest(ARRAY['push', 'email']) AS name`,
    );
    await until(35);
    await end();
    expect(started.slice(32)).toEqual(idsOf([flood[30]!, ...later, flood[31]!]));
  });

  test('I88 after an urgent intent, others of a producer have twenty places for five seconds', async () => {
    const clock = jest.spyOn(performance, 'now').mockReturnValue(0);
    await open(1, URGENT);
    const { started, rests, wake, until, end } = dispatch();
    await until(1);
    await open(25);
    wake();
    await until(21);
    const looks = rests.length;
    await eventually('two more looks', async () => rests.length > looks + 2);
    expect(started).toHaveLength(21);
    clock.mockReturnValue(5_000);
    await until(26);
    await end();
  });

  test('I88 beside a producer with thirty intents under way, others get each place that is free immediately', async () => {
    await open(33);
    const { rests, wake, until, end } = dispatch();
    await until(30);
    await open(30, OF_ANOTHER);
    rests.length = 0;
    wake();
    await until(60);
    await end();
    // Twenty are started together, and the others after them.
    expect(Math.min(...rests)).toBeLessThan(50);
  });

  test('I89 all intents for later go when their time has come, also more than one look releases', async () => {
    await makeDue(slot, ...idsOf(await open(1_100)));
    const { until, end } = dispatch();
    await until(100);
    await end();
    expect(await countOf(slot, 'intents', 'due_at IS NOT NULL')).toBe(0);
  });

  test('intent-P4 what was once decided stands, whatever there is to decide by', async () => {
    const decisions = {
      duplicate: { outcome: 'duplicate', of: '9-9' },
      conflict: { outcome: 'idempotency_conflict', with: '9-9' },
      refused: { outcome: 'recipient_not_found' },
      cancelled: { outcome: 'cancelled' },
    };
    const ids = idsOf(await open(4));
    await slot.db.query(
      `UPDATE notification.intents
          SET status = decided.status, other = '9-9', entry = NULL,
              reason = CASE decided.status WHEN 'refused' THEN 'recipient_not_found' END
         FROM unnest($1::text[], $2::text[]) AS decided (id, status)
        WHERE notification_id = decided.id`,
      [ids, Object.keys(decisions)],
    );
    const found = await findIntents(slot.db, ids);
    expect(ids.map((id) => found.get(id)?.decision)).toEqual(Object.values(decisions));
  });

  test('I9 of two open intents with one key the later one waits for the earlier', async () => {
    const key = { idempotency_key: 'one' };
    const [decided] = await open(2, OF_ANOTHER, key);
    const ids = idsOf(await open(2, TURN, key));
    await acceptRows(slot, [decided!]);
    const found = await findIntents(slot.db, ids);
    expect(found.size).toBe(2);
    expect(ids.map((id) => found.get(id)?.decision)).toEqual([
      undefined,
      { outcome: 'earlier_waits', notificationId: ids[0] },
    ]);

    const cancelled =
      "UPDATE notification.intents SET status = 'cancelled', entry = NULL WHERE notification_id = $1";
    await slot.db.query(cancelled, [ids[0]]);
    expect((await findIntents(slot.db, ids)).get(ids[1]!)?.decision).toBeUndefined();
  });
});

describe('what is delivered together', () => {
  /** Has intents delivered, none of which ends. `deliveries` has them in their order. */
  function deliver() {
    const deliveries: string[][] = [];
    const ended = Promise.withResolvers<Set<string>>();
    const deliverTogether = (ids: readonly string[]) => {
      deliveries.push([...ids]);
      return ended.promise;
    };
    const bridge = { dispatch: 'direct' } as const;
    const workflows = {} as WorkflowClient;
    const run = dispatching({ db: slot.db, workflows, bridge, deliverTogether }, deliveries);
    const end = () => {
      const stopped = run.end();
      ended.resolve(new Set());
      return stopped;
    };
    return { deliveries, ...run, end };
  }

  test('I89 of many intents whose time has come some are delivered at a time, and new ones beside them', async () => {
    await makeDue(slot, ...idsOf(await open(500)));
    const { deliveries, wake, until, end } = deliver();
    await until(2);
    const fresh = await open(1);
    wake();
    await until(3);
    expect(deliveries.slice(2)).toEqual([idsOf(fresh)]);
    await end();
  });

  test('I56 in mode direct four hundreds of one producer are delivered at a time', async () => {
    await open(500);
    const { deliveries, until, end } = deliver();
    await until(4);
    await end();
    expect(deliveries.map(({ length }) => length)).toEqual([100, 100, 100, 100]);
  });
});

describe('in mode direct', () => {
  const DIRECT = { ...PATIENT, NOTIFICATION_ROUTE_DISPATCH: 'direct' };
  const workflowsOf = async () => (await slot.client.workflow.count("WorkflowType = 'notification'")).count;

  test('I56 I2 I3 300 intents that are read together are each delivered once, and not by a workflow each', async () => {
    // To one user: an intent whose recipient is not looked up soon gets a workflow, as some do on a busy machine.
    const turnsOfOne = Array.from({ length: 300 }, (_, n) => turnTo('user-1', `direct-${n}`));
    const ids = await append(slot.redis, turnsOfOne);
    await slot.startService(DIRECT);
    await allPublished(slot, 600, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    expect(await workflowsOf()).toBeLessThan(ids.length);
    expect(new Set((await statuses()).map(([, status]) => status))).toEqual(new Set(['accepted']));
  });

  test('I56 I16 I9 I11 each push event says what its own intent says, and repeats, conflicts and unknown recipients cost no other anything', async () => {
    const ofGame = (game: string, n: number) =>
      turn({
        ...{ idempotency_key: game, recipient_user_ids_json: `["user-${n}"]` },
        payload_json: JSON.stringify({ game_id: game, game_name: game, turn_number: 1 }),
      });
    const ids = await append(slot.redis, [
      ...[ofGame('one', 1), ofGame('one', 1), ofGame('one', 2), turnTo('nobody', 'two'), ofGame('three', 3)],
      // More recipients than are delivered together.
      turn({ idempotency_key: 'large', recipient_user_ids_json: JSON.stringify(usersUpTo(40)) }),
      turnTo('user-50', 'large'),
    ]);
    await slot.startService(DIRECT);
    await allPublished(slot, 84, LIMIT_MS);
    await noneOpen();
    expect((await statuses()).map(([, status]) => status)).toEqual([
      ...['accepted', 'duplicate', 'conflict', 'refused', 'accepted', 'accepted', 'conflict'],
    ]);
    // At most those of the large audience and of its key.
    expect(await workflowsOf()).toBeLessThanOrEqual(2);
    const entries = await slot.redis.xrangeBuffer('gateway:client-events', '-', '+');
    const sentFor = (id: string) =>
      String(Buffer.concat(entries.find(([, fields]) => Buffer.concat(fields).includes(id))![1]));
    expect(sentFor(ids[0]!)).toContain('one');
    expect(sentFor(ids[4]!)).toContain('three');
  });

  test('I56 I12 one whose lookups hang gets a workflow, and so does one behind it with its key', async () => {
    const { release } = holdLookups({ userId: 'user-9' });
    const [hanging, good, behind] = await append(slot.redis, [
      turnTo('user-9', 'hangs'),
      turnTo('user-1', 'goes'),
      turnTo('user-1', 'hangs'),
    ]);
    await slot.startService(DIRECT);
    await allPublished(slot, 2, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [good!]));
    release();
    await allPublished(slot, 4, LIMIT_MS);
    await untilIntent(slot, behind!, 'conflict');
    expect((await outboundIds(slot.redis)).filter((id) => id.startsWith(hanging!))).toHaveLength(2);
    await eventually('two workflows', async () => (await workflowsOf()) === 2);
  });

  test('I56 I26 a paused channel: the others go, and those that waited go once it is resumed', async () => {
    const { channels } = operatorOf(slot);
    await slot.startService(DIRECT);
    await channels.pause('email', { requestedBy: 'test' });
    await append(slot.redis, turns(2, 'paused'));
    await eventually('the push events', async () => (await outboundIds(slot.redis)).length === 2);
    await channels.resume('email', { requestedBy: 'test' });
    await allPublished(slot, 4, LIMIT_MS);
  });

  test('intent-6 intents that are cancelled while others are delivered together are not delivered', async () => {
    const { arrived, release } = holdLookups();
    await slot.startService(DIRECT);
    const [first, ...others] = await append(slot.redis, turns(3, 'cancelled'));
    await arrived;
    for (const id of [first!, ...others]) await untilIntent(slot, id, 'open');
    for (const id of others) await cancelOne(operatorOf(slot), id);
    release();
    await allPublished(slot, 2, LIMIT_MS);
    await noneOpen();
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', [first!]));
  });
});

test('I35 I55 a service that has waited for replicas of Redis leaves no connection to it when it stops', async () => {
  const connections = async () =>
    String(await slot.redis.client('LIST'))
      .split('\n')
      .filter((line) => line.includes(` db=${slot.slot} `)).length;
  const before = await connections();
  const service = await slot.startService({ NOTIFICATION_REDIS_MIN_REPLICAS: '1' });
  await append(slot.redis, [turnTo('user-1', 'waits')]);
  await eventually('the hand-offs', async () => (await outboundIds(slot.redis)).length === 2);
  expect(await countOf(slot, 'routes', "status = 'published'")).toBe(0);
  await service.stop();
  await eventually('no other connection', async () => (await connections()) === before);
});

describe('beside others', () => {
  const ADMINISTRATOR = 'operator@example.com';
  const ENV = {
    ...PATIENT,
    NOTIFICATION_ROUTE_DISPATCH: 'direct',
    NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: ADMINISTRATOR,
    NOTIFICATION_ADMIN_EMAILS_RUNTIME_IMAGE_PULL_FAILED: ADMINISTRATOR,
  };
  const failed = (key: string, changes: Changes = {}) =>
    entryOf('game.generation_failed', { idempotency_key: key, ...changes });
  const urgent = entryOf(URGENT, { idempotency_key: 'urgent' });
  /** Those of e-mails to the administrator, sorted. */
  const mailed = async () => {
    const route = `/email:email:${ADMINISTRATOR}`;
    const ids = (await outboundIds(slot.redis)).filter((id) => id.endsWith(route));
    return ids.map((id) => id.slice(0, -route.length));
  };
  const untilMailed = (id: string) => eventually('the e-mail', async () => (await mailed()).includes(id));

  test('I87 an urgent intent goes before what the stream has before it', async () => {
    await slot.startService(ENV);
    await append(slot.redis, [turnTo('user-1', 'first')]);
    await allPublished(slot, 2, LIMIT_MS);
    const before = Array.from({ length: 20_000 }, (_, n) => turnTo('user-1', `before-${n}`));
    const id = (await append(slot.redis, [...before, urgent])).at(-1)!;
    await untilMailed(id);
    const entries = await slot.redis.xrange(MAIL, '-', '+');
    const position = entries.findIndex(([, fields]) => fields.some((field) => field.startsWith(id)));
    expect(position).toBeLessThan(500);
  });

  test.each(['child', 'direct'])('I87 an urgent intent goes before a backlog: %s', async (mode) => {
    const { arrived, release } = holdLookups();
    // More than may be under way.
    await append(slot.redis, turns(50, 'other'));
    await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: mode });
    await arrived;
    const [id] = (await append(slot.redis, [urgent])) as [string];
    await untilMailed(id);
    expect(await countOf(slot, 'records')).toBe(1);
    release();
    if (mode === 'direct') return;
    // It is a workflow as any other, which finds what was done.
    expect(await resultOf(slot, id)).toMatchObject({ published: 1, skipped: 1, deadLettered: 0 });
    expect(await mailed()).toEqual([id]);
  });

  test('I9 I87 of two intents with one key the earlier is decided first, and be the later one urgent', async () => {
    const { release } = holdLookups();
    const [earlier] = await append(slot.redis, [turnTo('user-99', 'one'), ...turns(50, 'other')]);
    const [later, first, second, last] = await append(slot.redis, [
      failed('one'),
      failed('two'),
      failed('two', { occurred_at_ms: '1775121700001' }),
      failed('three'),
    ]);
    await slot.startService(ENV);
    await eventually('the others', async () => (await mailed()).length === 2);
    expect(await mailed()).toEqual([first, last]);
    release();
    for (const id of [later!, second!]) await untilIntent(slot, id, 'conflict');
    const { rows } = await slot.db.query(
      `SELECT stream_entry_id AS id, conflicts_with AS with
         FROM notification.malformed_intents WHERE failure_code = 'idempotency_conflict' ORDER BY 1`,
    );
    expect(rows).toEqual([
      { id: later, with: earlier },
      { id: second, with: first },
    ]);
    expect(await mailed()).toEqual([first, last]);
  });
});
