/**
 * From a stream entry to its row, and from the row to a workflow or, in mode `direct`, to its delivery: urgent ones first,
 * then each producer in turn.
 */
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import type { Pool, QueryConfig } from 'pg';
import { createDispatcher } from '../../activities/intent/dispatch.ts';
import { findIntents } from '../../activities/intent/decisions.ts';
import type { ReadEntry, StreamPosition } from '../../activities/intent/entries.ts';
import { OffsetMovedError, loadPosition, saveEntries } from '../../activities/intent/entries.ts';
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { writeOpenRows } from '../../dev/intent-rows.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { createLogger } from '../../workers/logger.ts';
import { eventually, operatorOf, slotOfEachTest } from '../harness.ts';
import { MAIL, allPublished, append, deliveriesTo, outboundIds } from '../service-process.ts';
import { accepted, entryOf, turn } from './entries.ts';
import { acceptRows, cancelOne, countOf, intentStatusOf, resultOf, usersUpTo } from './rows.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const STREAM = 'notification:intents';
const LIMIT_MS = 120_000;
const TURN = 'game.turn.ready';
const OF_ANOTHER: NotificationType = 'lobby.membership.approved';
const URGENT: NotificationType = 'runtime.image_pull_failed';

/** Lookups are held for longer than by default. */
const PATIENT = { NOTIFICATION_USER_SERVICE_TIMEOUT: '1m' };

const slot = slotOfEachTest();

let count = 0;
function intentOf(type: NotificationType = TURN, changes: Parameters<typeof entryOf>[1] = {}): Intent {
  count += 1;
  const entry = entryOf(type, { idempotency_key: `key-${count}`, ...changes });
  return { ...accepted(entry), notificationId: `${count}-0` };
}

const turnTo = (user: string, key: string) =>
  turn({ idempotency_key: key, recipient_user_ids_json: JSON.stringify([user]) });
/** Each to another user. */
const turns = (many: number, key: string) =>
  Array.from({ length: many }, (_, n) => turnTo(`user-${n + 1}`, `${key}-${n}`));

const statuses = async () => {
  const { rows } = await slot.db.query<{ id: string; status: string }>(
    'SELECT notification_id AS id, status FROM notification.intents ORDER BY read_number',
  );
  return rows.map(({ id, status }) => [id, status]);
};

describe('an entry gets a row', () => {
  const entry = (intent: Intent): ReadEntry => ({ id: intent.notificationId, ok: true, intent });
  const at = (offset: string, entriesPassed: number): StreamPosition => ({ offset, entriesPassed });
  const save = (entries: ReadEntry[], from: StreamPosition, to: StreamPosition) =>
    saveEntries(
      {
        ...{ db: slot.db, catalog: GALAXY },
        metrics: { intentMalformed: () => undefined },
        log: createLogger('fatal'),
      },
      STREAM,
      entries,
      from,
      to,
    );
  const malformed = async () =>
    (
      await slot.db.query<{ id: string; code: string }>(
        'SELECT stream_entry_id AS id, failure_code AS code FROM notification.malformed_intents ORDER BY 1',
      )
    ).rows;
  beforeEach(() => loadPosition(slot.db, STREAM, '0-0'));

  test('I2 I52 rows and offset are written together, by the reader that holds the offset and by no other', async () => {
    const [one, two] = [intentOf(), intentOf()];
    expect(await save([entry(one)], at('0-0', 0), at('8-0', 1))).toEqual({ taken: 1, malformed: 0 });
    await expect(save([entry(two)], at('0-0', 0), at('9-0', 1))).rejects.toThrow(OffsetMovedError);
    expect(await statuses()).toEqual([[one.notificationId, 'open']]);
    expect(await loadPosition(slot.db, STREAM, '0-0')).toEqual(at('8-0', 1));
  });

  test('I3 I53 an entry that comes again changes nothing, and one with other content is recorded', async () => {
    const one = intentOf();
    await save([entry(one)], at('0-0', 0), at('8-0', 1));
    await slot.db.query("UPDATE notification.intents SET status = 'duplicate', entry = NULL");
    expect(await save([entry(one)], at('8-0', 1), at('9-0', 2))).toEqual({ taken: 0, malformed: 0 });
    // With the same key.
    const other = { ...one, occurredAtMs: one.occurredAtMs + 1 };
    const next = intentOf();
    expect(await save([entry(other), entry(next)], at('9-0', 2), at('10-0', 4))).toEqual({
      ...{ taken: 1, malformed: 1 },
    });
    expect(await statuses()).toEqual([
      [one.notificationId, 'duplicate'],
      [next.notificationId, 'open'],
    ]);
    expect(await malformed()).toEqual([
      { id: expect.stringMatching(`^${one.notificationId}/`) as string, code: 'entry_id_reused' },
    ]);
  });

  test('I6 what PostgreSQL does not take is recorded, and the others get their rows', async () => {
    const [good, bad] = [intentOf(), { ...intentOf(), idempotencyKey: 'a\0b' }];
    expect(await save([entry(good), entry(bad)], at('0-0', 0), at('8-0', 2))).toEqual({
      taken: 1,
      malformed: 1,
    });
    expect(await statuses()).toEqual([[good.notificationId, 'open']]);
    expect(await malformed()).toEqual([{ id: bad.notificationId, code: 'unstorable' }]);
  });
});

describe('the order of dispatch', () => {
  /** Dispatches until `end`. `started` has the notifications in the order in which their workflows were asked for. */
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
      start: (_: string, { workflowId, requestEagerStart, priority }: WorkflowStartOptions) => {
        // This process may begin it, past Temporal's task queue.
        expect(requestEagerStart).toBe(true);
        priorities.push(priority);
        started.push(workflowId.replace('notification/', ''));
        return Promise.resolve();
      },
    } as unknown as WorkflowClient;
    const stop = new AbortController();
    const dispatcher = createDispatcher({
      ...{ db, workflows, log: createLogger('fatal'), bridge: { dispatch: 'child' } },
      deliverTogether: () => Promise.reject(new Error('not in this mode')),
    });
    const running = dispatcher.run(stop.signal);
    return {
      ...{ started, priorities, rests, dispatcher },
      until: (wanted: number) =>
        eventually(`${wanted} starts`, () => Promise.resolve(started.length >= wanted)),
      end: () => (stop.abort(), running),
    };
  }

  /** Dispatches what is there. */
  async function dispatched(wanted: number) {
    const { started, priorities, dispatcher, until, end } = dispatch();
    dispatcher.urgentOnly(false);
    await until(wanted);
    await end();
    return { started, priorities };
  }

  test('I86 I87 I88 urgent ones come first, then each producer has its turn, and its own share of the task queue', async () => {
    const flood = Array.from({ length: 30 }, () => intentOf());
    const others = [intentOf(OF_ANOTHER), intentOf(OF_ANOTHER)];
    const urgent = intentOf(URGENT);
    await writeOpenRows(slot.db, [...flood, ...others, urgent]);
    const { started, priorities } = await dispatched(33);
    expect(started).toHaveLength(33);
    expect(started[0]).toBe(urgent.notificationId);
    // Both are among the first twenty, though thirty were read before them.
    const positions = others.map(({ notificationId }) => started.indexOf(notificationId));
    expect(Math.max(...positions)).toBeLessThan(5);
    expect(priorities[0]).toEqual({ fairnessKey: urgent.producer, priorityKey: 2 });
    for (const position of positions)
      expect(priorities[position]).toEqual({ fairnessKey: others[0]!.producer });
    const { rows } = await slot.db.query('SELECT FROM notification.intents WHERE dispatched_at IS NULL');
    expect(rows).toEqual([]);
  });

  test('I88 a producer with thirty intents under way waits, others do not, and what is urgent does not either', async () => {
    // However slow the machine is: after ten seconds none of them counts.
    const clock = jest.spyOn(performance, 'now').mockReturnValue(0);
    const flood = Array.from({ length: 33 }, () => intentOf());
    await writeOpenRows(slot.db, flood);
    const ids = flood.map(({ notificationId }) => notificationId);
    const { started, dispatcher, until, end } = dispatch();
    dispatcher.urgentOnly(false);
    await until(30);
    const [other, urgent] = [intentOf(OF_ANOTHER), intentOf(URGENT)];
    await writeOpenRows(slot.db, [other, urgent]);
    dispatcher.wake();
    await until(32);
    expect(started.slice(30)).toEqual([urgent.notificationId, other.notificationId]);
    // Five seconds later there are as many places as before.
    clock.mockReturnValue(5_000);
    // One that was tried in vain waits by itself.
    await slot.db.query("UPDATE notification.intents SET reason = 'in vain' WHERE notification_id = $1", [
      ids[0],
    ]);
    await until(33);
    // One that is accepted is under way until its routes are tried, or paused.
    await acceptRows(slot, [flood[1]!]);
    const later = intentOf(OF_ANOTHER);
    await writeOpenRows(slot.db, [later]);
    dispatcher.wake();
    await until(34);
    await slot.db.query(
      `INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at)
       SELECT 'channel', name, true, 'test', now() FROM unnest(ARRAY['push', 'email']) AS name`,
    );
    await until(35);
    await end();
    clock.mockRestore();
    expect(started.slice(32)).toEqual([ids[30], later.notificationId, ids[31]]);
  });

  test('I88 after an urgent intent, others of a producer have twenty places for five seconds', async () => {
    const clock = jest.spyOn(performance, 'now').mockReturnValue(0);
    const urgent = intentOf(URGENT);
    await writeOpenRows(slot.db, [urgent]);
    const { started, rests, dispatcher, until, end } = dispatch();
    dispatcher.urgentOnly(false);
    await until(1);
    await writeOpenRows(
      slot.db,
      Array.from({ length: 25 }, () => intentOf()),
    );
    dispatcher.wake();
    await until(21);
    const looks = rests.length;
    await eventually('two more looks', () => Promise.resolve(rests.length > looks + 2));
    expect(started).toHaveLength(21);
    clock.mockReturnValue(5_000);
    await until(26);
    await end();
    clock.mockRestore();
  });

  test('I88 beside a producer with thirty intents under way, others get each place that is free immediately', async () => {
    const flood = Array.from({ length: 33 }, () => intentOf());
    await writeOpenRows(slot.db, flood);
    const { rests, dispatcher, until, end } = dispatch();
    dispatcher.urgentOnly(false);
    await until(30);
    await writeOpenRows(
      slot.db,
      Array.from({ length: 30 }, () => intentOf(OF_ANOTHER)),
    );
    rests.length = 0;
    dispatcher.wake();
    await until(60);
    await end();
    // Twenty are started together, and the others after them.
    expect(Math.min(...rests)).toBeLessThan(50);
  });

  test('I89 all intents for later go when their time has come, also more than one look releases', async () => {
    await writeOpenRows(
      slot.db,
      Array.from({ length: 1_100 }, () => intentOf()),
    );
    await slot.db.query('UPDATE notification.intents SET due_at = now()');
    await dispatched(100);
    expect(await countOf(slot, 'intents', 'due_at IS NOT NULL')).toBe(0);
  });

  test('intent-P4 what was once decided stands, whatever there is to decide by', async () => {
    const decisions = {
      duplicate: { outcome: 'duplicate', of: '9-9' },
      conflict: { outcome: 'idempotency_conflict', with: '9-9' },
      refused: { outcome: 'recipient_not_found' },
      cancelled: { outcome: 'cancelled' },
    };
    const intents = Object.keys(decisions).map(() => intentOf());
    await writeOpenRows(slot.db, intents);
    const ids = intents.map(({ notificationId }) => notificationId);
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
    const [earlier, later] = [
      intentOf(TURN, { idempotency_key: 'one' }),
      intentOf(TURN, { idempotency_key: 'one' }),
    ];
    await writeOpenRows(slot.db, [earlier, later]);
    const found = await findIntents(slot.db, [earlier.notificationId, later.notificationId]);
    expect(found.get(earlier.notificationId)?.decision).toBeUndefined();
    expect(found.get(later.notificationId)?.decision).toEqual({
      ...{ outcome: 'earlier_waits', notificationId: earlier.notificationId },
    });
  });
});

describe('what is delivered together', () => {
  /** Has five hundred intents delivered, none of which ends. @returns the deliveries, in their order. */
  async function deliver(wanted: number, isDue: boolean) {
    const rows = Array.from({ length: 500 }, () => intentOf());
    await writeOpenRows(slot.db, rows);
    if (isDue) await slot.db.query('UPDATE notification.intents SET due_at = now()');
    const deliveries: string[][] = [];
    const ended = Promise.withResolvers<Set<string>>();
    const dispatcher = createDispatcher({
      ...{ db: slot.db, workflows: {} as WorkflowClient, log: createLogger('fatal') },
      bridge: { dispatch: 'direct' },
      deliverTogether(ids) {
        deliveries.push([...ids]);
        return ended.promise;
      },
    });
    const stop = new AbortController();
    dispatcher.urgentOnly(false);
    const running = dispatcher.run(stop.signal);
    const until = (count: number) =>
      eventually(`${count} deliveries`, () => Promise.resolve(deliveries.length >= count));
    await until(wanted);
    return {
      ...{ deliveries, dispatcher, until },
      end() {
        stop.abort();
        ended.resolve(new Set());
        return running;
      },
    };
  }

  test('I89 of many intents whose time has come some are delivered at a time, and new ones beside them', async () => {
    const { deliveries, dispatcher, until, end } = await deliver(2, true);
    const fresh = intentOf();
    await writeOpenRows(slot.db, [fresh]);
    dispatcher.wake();
    await until(3);
    expect(deliveries.slice(2)).toEqual([[fresh.notificationId]]);
    await end();
  });

  test('I56 in mode direct four hundreds of one producer are delivered at a time', async () => {
    const { deliveries, end } = await deliver(4, false);
    await end();
    expect(deliveries.map(({ length }) => length)).toEqual([100, 100, 100, 100]);
  });
});

describe('in mode direct', () => {
  const DIRECT = { ...PATIENT, NOTIFICATION_ROUTE_DISPATCH: 'direct' };
  const workflowsOf = async () => (await slot.client.workflow.count("WorkflowType = 'notification'")).count;

  test('I56 I2 I3 300 intents that are read together are each delivered once, without a workflow', async () => {
    // To one user: an intent whose recipient is not looked up soon gets a workflow, as on a busy machine.
    const turnsOfOne = Array.from({ length: 300 }, (_, n) => turnTo('user-1', `direct-${n}`));
    const ids = await append(slot.redis, turnsOfOne);
    await slot.startService(DIRECT);
    await allPublished(slot, 600, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    expect(await workflowsOf()).toBe(0);
    expect(new Set((await statuses()).map(([, status]) => status))).toEqual(new Set(['accepted']));
  });

  test('I56 I16 I9 I11 each push event says what its own intent says, and repeats, conflicts and unknown recipients cost no other anything', async () => {
    const games = ['one', 'three'];
    const ofGame = (game: string, n: number) =>
      turn({
        ...{ idempotency_key: game, recipient_user_ids_json: `["user-${n}"]` },
        payload_json: JSON.stringify({ game_id: game, game_name: game, turn_number: 1 }),
      });
    const [first, repeat, conflict, unknown, last, large, behind] = await append(slot.redis, [
      ...[ofGame('one', 1), ofGame('one', 1), ofGame('one', 2), turnTo('nobody', 'two'), ofGame('three', 3)],
      // More recipients than are delivered together.
      turn({ idempotency_key: 'large', recipient_user_ids_json: JSON.stringify(usersUpTo(40)) }),
      turnTo('user-50', 'large'),
    ]);
    await slot.startService(DIRECT);
    await allPublished(slot, 84, LIMIT_MS);
    await eventually('all to be decided', async () =>
      (await statuses()).every(([, status]) => status !== 'open'),
    );
    expect(await statuses()).toEqual([
      [first, 'accepted'],
      [repeat, 'duplicate'],
      [conflict, 'conflict'],
      [unknown, 'refused'],
      [last, 'accepted'],
      [large, 'accepted'],
      [behind, 'conflict'],
    ]);
    // At most those of the large audience and of its key.
    expect(await workflowsOf()).toBeLessThanOrEqual(2);
    const entries = await slot.redis.xrangeBuffer('gateway:client-events', '-', '+');
    for (const [n, game] of games.entries()) {
      const [, fields] = entries.find(([, all]) => Buffer.concat(all).includes([first, last][n]!))!;
      expect([game, Buffer.concat(fields).includes(game)]).toEqual([game, true]);
    }
  });

  test('I56 I12 one whose lookups hang gets a workflow, and so does one behind it with its key', async () => {
    const lookups = holdAnswers();
    slot.userService.fail({ userId: 'user-9', failure: lookups.failure });
    const [hanging, good, behind] = await append(slot.redis, [
      turnTo('user-9', 'hangs'),
      turnTo('user-1', 'goes'),
      turnTo('user-1', 'hangs'),
    ]);
    await slot.startService(DIRECT);
    await allPublished(slot, 2, LIMIT_MS);
    expect((await outboundIds(slot.redis)).every((id) => id.startsWith(good!))).toBe(true);
    lookups.release();
    slot.userService.heal();
    await allPublished(slot, 4, LIMIT_MS);
    await eventually(
      'the later one to be refused',
      async () => (await intentStatusOf(slot, behind!)) === 'conflict',
    );
    expect((await outboundIds(slot.redis)).filter((id) => id.startsWith(hanging!))).toHaveLength(2);
    await eventually('two workflows', async () => (await workflowsOf()) === 2);
  });

  test('I56 I26 a paused channel: the others go, and those that waited go once it is resumed', async () => {
    const { channels } = operatorOf(slot);
    await slot.startService(DIRECT);
    await channels.pause('email', { requestedBy: 'test' });
    await append(slot.redis, [turnTo('user-1', 'one'), turnTo('user-2', 'two')]);
    await eventually('the push events', async () => (await outboundIds(slot.redis)).length === 2);
    await channels.resume('email', { requestedBy: 'test' });
    await allPublished(slot, 4, LIMIT_MS);
  });

  test('intent-6 intents that are cancelled while others are delivered together are not delivered', async () => {
    const lookups = holdAnswers();
    slot.userService.fail({ failure: lookups.failure });
    await slot.startService(DIRECT);
    const [first, ...others] = await append(slot.redis, turns(3, 'cancelled'));
    await lookups.arrived;
    await eventually(
      'three open rows',
      async () => (await countOf(slot, 'intents', "status = 'open'")) === 3,
    );
    for (const id of others) await cancelOne(operatorOf(slot), id);
    lookups.release();
    await allPublished(slot, 2, LIMIT_MS);
    await eventually('no open row', async () => (await countOf(slot, 'intents', "status = 'open'")) === 0);
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

describe('behind lookups that are not answered', () => {
  const ADMINISTRATOR = 'operator@example.com';
  const ENV = {
    ...PATIENT,
    NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: ADMINISTRATOR,
    NOTIFICATION_ADMIN_EMAILS_RUNTIME_IMAGE_PULL_FAILED: ADMINISTRATOR,
  };
  const MOST_UNDER_WAY = 30;
  const failed = (key: string, changes: Parameters<typeof entryOf>[1] = {}) =>
    entryOf('game.generation_failed', { idempotency_key: key, ...changes });
  /** Those of e-mails to the administrator, sorted. */
  const mailed = async () =>
    (await outboundIds(slot.redis)).flatMap((id) => {
      const [notificationId, route] = id.split('/') as [string, string];
      return route === `email:email:${ADMINISTRATOR}` ? [notificationId] : [];
    });
  let lookups: ReturnType<typeof holdAnswers>;
  beforeEach(() => {
    lookups = holdAnswers();
    slot.userService.fail({ failure: lookups.failure });
  });

  test('I87 an urgent intent goes before what the stream has before it', async () => {
    lookups.release();
    slot.userService.heal();
    await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: 'direct' });
    await append(slot.redis, [turnTo('user-1', 'first')]);
    await allPublished(slot, 2, LIMIT_MS);
    const before = Array.from({ length: 20_000 }, (_, n) => turnTo('user-1', `before-${n}`));
    const ids = await append(slot.redis, [...before, entryOf(URGENT, { idempotency_key: 'urgent' })]);
    const urgent = ids.at(-1)!;
    await eventually('the e-mail', async () => (await mailed()).includes(urgent));
    const entries = await slot.redis.xrange(MAIL, '-', '+');
    const position = entries.findIndex(([, fields]) => fields.some((field) => field.startsWith(urgent)));
    expect(position).toBeLessThan(500);
  });

  test.each(['child', 'direct'])('I87 an urgent intent goes before a backlog: %s', async (mode) => {
    await append(slot.redis, turns(MOST_UNDER_WAY + 20, 'other'));
    await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: mode });
    await lookups.arrived;
    const [id] = (await append(slot.redis, [entryOf(URGENT, { idempotency_key: 'urgent' })])) as [string];
    await eventually('the e-mail', async () => (await mailed()).includes(id));
    expect(await countOf(slot, 'records')).toBe(1);
    lookups.release();
    if (mode === 'direct') return;
    // It is a workflow as any other, which finds what was done.
    expect(await resultOf(slot, id)).toMatchObject({ published: 1, skipped: 1, deadLettered: 0 });
    expect(await mailed()).toEqual([id]);
  });

  test('I9 I87 of two intents with one key the earlier is decided first, and be the later one urgent', async () => {
    const [earlier] = await append(slot.redis, [turnTo('user-99', 'one'), ...turns(50, 'other')]);
    const [later, first, second, last] = await append(slot.redis, [
      failed('one'),
      failed('two'),
      failed('two', { occurred_at_ms: '1775121700001' }),
      failed('three'),
    ]);
    await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: 'direct' });
    await eventually('the others', async () => (await mailed()).length === 2);
    expect(await mailed()).toEqual([first, last]);
    lookups.release();
    const rows = await eventually('both to be refused', async () => {
      const found = await slot.db.query(
        `SELECT stream_entry_id AS id, conflicts_with AS with
           FROM notification.malformed_intents WHERE failure_code = 'idempotency_conflict' ORDER BY 1`,
      );
      return found.rows.length === 2 && found.rows;
    });
    expect(rows).toEqual([
      { id: later, with: earlier },
      { id: second, with: first },
    ]);
    expect(await mailed()).toEqual([first, last]);
  });
});
