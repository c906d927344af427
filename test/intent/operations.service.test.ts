/** Operations on many items: chosen immediately, worked off by a workflow that outlives the command, paused, resumed, aborted. */
import type { PoolClient } from 'pg';
import type { NotificationType } from '../../api/intent/catalog.ts';
import { NothingToDoError } from '../../client/errors.ts';
import type { OperationRequest, OperationView } from '../../client/operations.ts';
import { writeOpenRows } from '../../dev/intent-rows.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { operationWorkflowId } from '../../workflows/operation-contract.ts';
import type { Changes } from './entries.ts';
import { accepted, entryOf, publishTurn, turn } from './entries.ts';
import { eventually, slotOfTests, operatorOfTests } from '../harness.ts';
import { GATEWAY, append } from '../service-process.ts';
import { countOf, publishDead, replayRoute, usersUpTo } from './rows.ts';

const BY = { requestedBy: 'nina' };

const slot = slotOfTests();
const operator = operatorOfTests(slot);

beforeAll(() => startService());

const startService = () =>
  slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
    NOTIFICATION_RECONCILIATION_INTERVAL: '500ms',
  });

const deadPushes = (key: string, users: number) => publishDead(slot, key, usersUpTo(users));

/** The connection that holds the items. */
let holder: PoolClient | undefined;

/** Statements that mark an item as done wait. @param from the first item that waits, counted from 1. */
async function holdItems(from: number): Promise<void> {
  holder = await slot.db.connect();
  await holder.query('SELECT pg_advisory_lock(1)');
  await slot.db.query(
    `CREATE FUNCTION notification.hold_item() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END $$;
     CREATE TRIGGER hold_item BEFORE UPDATE ON notification.operation_items
        FOR EACH ROW WHEN (NEW.position >= ${from}) EXECUTE FUNCTION notification.hold_item()`,
  );
}
async function releaseItems(): Promise<void> {
  if (!holder) return;
  await holder.query('SELECT pg_advisory_unlock(1)');
  holder.release();
  holder = undefined;
  await slot.db.query('DROP FUNCTION notification.hold_item() CASCADE');
}
// After a failed assertion, the next test must not wait for these items.
afterEach(async () => {
  await releaseItems();
  await slot.redis.del(GATEWAY);
});

const shown = (operationId: string, isSo: (view: OperationView) => boolean, what: string) =>
  eventually(what, async () => {
    const view = await operator.operations.show(operationId);
    return isSo(view) && view;
  });
const ended = (operationId: string) => shown(operationId, ({ endedAt }) => endedAt !== undefined, 'its end');

const replay = (notificationId: string, more: Partial<OperationRequest> = {}) =>
  operator.operations.begin('replay', { notificationId }, { ...BY, ...more });

/** Replays three dead routes of a notification, one a second, and waits until one is done; the others are held. */
async function beginReplay(key: string): Promise<{ id: string; operationId: string }> {
  const id = await deadPushes(key, 3);
  await holdItems(2);
  const { operationId } = await replay(id, { ratePerSecond: 1 });
  await shown(operationId, ({ done }) => done > 0, 'a beginning');
  return { id, operationId };
}

const replaysOf = async (id: string) => (await operator.notifications.show(id)).replays;

/** Until a resumed operation has ended, and each of the three routes was replayed once. */
async function eachReplayedOnce(id: string, operationId: string): Promise<void> {
  await operator.operations.resume(operationId, BY);
  await ended(operationId);
  await eventually('its routes', async () => (await operator.operations.outcome(operationId)).open === 0);
  const replays = await replaysOf(id);
  expect(replays.map(({ generation }) => generation)).toEqual([1, 1, 1]);
}

const workflowOf = (operationId: string) => slot.client.workflow.getHandle(operationWorkflowId(operationId));

test('U2 a replay of many goes on without the process that asked for it, and what came later is not touched', async () => {
  const id = await deadPushes('chosen', 3);
  await holdItems(1);
  const { operationId, total } = await replay(id, { reason: 'INC-7', ratePerSecond: 1 });
  expect(total).toBe(3);
  const paused = await operator.operations.pause(operationId, BY);
  expect(paused).toMatchObject({ status: 'paused', changedBy: 'nina', kind: 'replay', reason: 'INC-7' });
  const later = await deadPushes('later', 2);
  expect((await operator.operations.show(operationId)).done).toBe(0);
  await releaseItems();
  await slot.redis.del(GATEWAY);
  await slot.stopServices();
  await startService();
  const { done, ...still } = await shown(operationId, ({ status }) => status === 'paused', 'the pause');
  expect(still).toMatchObject({ total: 3, filter: { notificationId: id } });
  expect(done).toBeLessThan(3);

  await eachReplayedOnce(id, operationId);
  expect((await replaysOf(id))[0]).toMatchObject({ requestedBy: 'nina', reason: 'INC-7' });
  expect(await replaysOf(later)).toEqual([]);
  expect((await operator.operations.list()).items[0]).toMatchObject({
    ...{ operationId, status: 'done', done: 3, ordered: 3 },
  });
  await expect(operator.operations.pause(operationId)).rejects.toThrow(NothingToDoError);
});

test('U2 an operation that was terminated stays so until it is resumed, replays no route twice, or is aborted', async () => {
  const { id, operationId } = await beginReplay('resumed');
  await workflowOf(operationId).terminate('a test');
  await expect(operator.operations.pause(operationId)).rejects.toThrow('operations resume');
  // As a step leaves it that died before it could say what it did.
  await slot.db.query(
    'UPDATE notification.operation_items SET was_ordered = NULL WHERE operation_id = $1 AND position = 1',
    [operationId],
  );
  await releaseItems();
  await eachReplayedOnce(id, operationId);

  const other = await replay(await deadPushes('aborted', 3), { ratePerSecond: 1, limit: 2 });
  await workflowOf(other.operationId).terminate('a test');
  expect(await operator.operations.abort(other.operationId, BY)).toMatchObject({
    status: 'aborted',
    total: 2,
  });
  await expect(operator.operations.resume(other.operationId, BY)).rejects.toThrow(NothingToDoError);
  await expect(operator.operations.abort('no-such-operation', BY)).rejects.toThrow('there is no operation');
});

test('U2 an operation that Temporal has forgotten comes back by itself, as paused as it was, and does each item once', async () => {
  const { id, operationId } = await beginReplay('forgotten');
  await operator.operations.pause(operationId, BY);
  const isNoted = "operation_id = $1 AND paused_by = 'nina'";
  await eventually(
    'its row to say so',
    async () => (await countOf(slot, 'operations', isNoted, [operationId])) === 1,
  );
  const { done } = await operator.operations.show(operationId);
  const { runId } = await workflowOf(operationId).describe();

  // As an empty Temporal does, or one that was put back to before it began.
  const { connection, options } = slot.client;
  await connection.workflowService.deleteWorkflowExecution({
    namespace: options.namespace,
    workflowExecution: { workflowId: operationWorkflowId(operationId) },
  });
  await eventually('another run', async () => (await workflowOf(operationId).describe()).runId !== runId);
  expect(await operator.operations.show(operationId)).toMatchObject({
    status: 'paused',
    changedBy: 'nina',
    done,
  });
  await releaseItems();
  await eachReplayedOnce(id, operationId);
});

const routesIn = (id: string, status: 'pending' | 'published', count: number) =>
  eventually(`${count} routes of ${id} to be ${status}`, async () => {
    const { totals } = await operator.notifications.show(id);
    return totals[status] === count;
  });

test('U2 I26 many notifications are cancelled by filter, those that wait to be accepted too, others unharmed', async () => {
  const since = new Date();
  await operator.channels.pause('push');
  const accepted = await publishTurn(slot.redis, 'wrong/accepted', ['user-1']);
  await routesIn(accepted, 'pending', 1);
  slot.userService.fail({ failure: { kind: 'status', status: 503 } });
  const waiting = await publishTurn(slot.redis, 'wrong/waiting', ['user-2']);
  await eventually('one that waits, and says why', async () => {
    const { items } = await operator.intents.waiting();
    return items.length === 1 && items[0]!.reason !== null;
  });

  const filter = { type: 'game.turn.ready', since };
  expect(await operator.operations.preview('cancel', filter)).toMatchObject([
    { type: 'game.turn.ready', producer: 'game_master', notifications: 2 },
  ]);
  expect(await operator.operations.preview('cancel', { type: 'game.finished' })).toEqual([]);
  const { operationId, total } = await operator.operations.begin('cancel', filter, {
    ...BY,
    ratePerSecond: 100,
  });
  expect(total).toBe(2);
  expect(await ended(operationId)).toMatchObject({ kind: 'cancel', done: 2, ordered: 2 });
  await eventually('skipped routes', async () => (await operator.operations.outcome(operationId)).open === 0);
  expect((await operator.notifications.show(accepted)).totals).toMatchObject({ skipped: 1, published: 1 });
  await eventually('nothing that waits', async () => (await operator.intents.waiting()).items.length === 0);
  expect((await operator.why('user-2')).answers[0]).toMatchObject({
    cause: 'cancelled_before_acceptance',
    id: waiting,
  });

  slot.userService.heal();
  await operator.channels.resume('push');
  const after = await publishTurn(slot.redis, 'right', ['user-3']);
  await routesIn(after, 'published', 2);
});

test('U2 I26 newcomer-1 what has not begun is cancelled as well: no recipient gets it, its keys are free, and later ones go on', async () => {
  await eventually('the reader to run, and to be paused', async () => {
    await operator.bridge.pause({ ...BY, reason: 'to be looked into' });
    return true;
  });
  const since = new Date(Date.now() - 1_000);
  const filter = { producer: 'game_master', since };
  const now = Date.now();
  const intentTo = (n: number, type: NotificationType = 'game.turn.ready') => ({
    ...accepted(entryOf(type, { idempotency_key: `open-${n}`, recipient_user_ids_json: `["user-${n}"]` })),
    notificationId: `${now}-${n}`,
  });
  const chosen = [71, 72, 73].map((n) => intentTo(n));
  const other = intentTo(74, 'lobby.invite.expired');
  await writeOpenRows(slot.db, [...chosen, other]);
  const preview = await operator.operations.preview('cancel', filter);
  expect(preview).toMatchObject([
    { state: 'not_begun', type: 'game.turn.ready', producer: 'game_master', notifications: 3 },
  ]);
  expect(await operator.operations.preview('cancel', { ...filter, until: since })).toEqual([]);
  expect(await operator.operations.preview('cancel', { ...filter, type: 'game.finished' })).toEqual([]);

  const { operationId, total } = await operator.operations.begin('cancel', filter, { ...BY, limit: 10 });
  expect(total).toBe(3);
  const later = await publishTurn(slot.redis, 'open-71', ['user-71']);
  expect(await ended(operationId)).toMatchObject({ status: 'done', done: 3, ordered: 3 });
  await operator.bridge.resume(BY);
  await routesIn(later, 'published', 2);
  await routesIn(other.notificationId, 'published', 1);
  const ids = chosen.map(({ notificationId }) => notificationId);
  expect(await countOf(slot, 'records', 'notification_id = ANY ($1)', [ids])).toBe(0);
  const begun = ids.map((id) => slot.client.workflow.getHandle(notificationWorkflowId(id)).describe());
  expect((await Promise.allSettled(begun)).filter(({ status }) => status === 'fulfilled')).toEqual([]);
  expect((await operator.why('user-72')).answers).toMatchObject([
    { cause: 'cancelled_before_acceptance', id: ids[1] },
  ]);
  expect(await operator.operations.preview('cancel', filter)).toEqual([]);
  await expect(operator.operations.begin('cancel', filter, BY)).rejects.toThrow('has not begun');
});

/** As a step leaves it that died before it could say what it did, in an operation that has ended meanwhile. */
async function forgetSteps(operationId: string): Promise<void> {
  await workflowOf(operationId).result();
  await slot.db.query('UPDATE notification.operation_items SET was_ordered = NULL WHERE operation_id = $1', [
    operationId,
  ]);
  await slot.db.query(
    `UPDATE notification.operations SET done = 0, ordered = 0, ended_at = NULL, outcome = NULL
      WHERE operation_id = $1`,
    [operationId],
  );
}

test('U2 U5 refused entries are corrected and published once each, by filter, also when a step is made again', async () => {
  const refuse = async (changes: Changes) => {
    const [id] = (await append(slot.redis, [turn({ producer: 'lobby', ...changes })])) as [string];
    await eventually(`the row of ${id}`, () => operator.malformed.show(id).catch(() => undefined));
    return id;
  };
  for (const key of ['corrected-1', 'corrected-2']) await refuse({ idempotency_key: key });
  // What was not kept as it came cannot be published.
  await refuse({ idempotency_key: Buffer.from([0x6b, 0xff]) });
  const filter = { code: 'invalid_envelope', producer: 'lobby' };
  expect(await operator.operations.preview('republish', filter)).toMatchObject([
    { code: 'invalid_envelope', type: 'game.turn.ready', producer: 'lobby', entries: 3 },
  ]);
  await expect(
    operator.operations.begin('republish', filter, BY, { set: { recipients: 'user-1' } }),
  ).rejects.toThrow('recipients is no field of an intent');
  const correction = { set: { producer: 'game_master' } };
  const { operationId, total } = await operator.operations.begin('republish', filter, BY, correction);
  expect(total).toBe(3);
  await refuse({ idempotency_key: 'came-later' });
  const expected = { status: 'done', done: 3, ordered: 2, requestedBy: 'nina', options: correction };
  expect(await ended(operationId)).toMatchObject(expected);
  await forgetSteps(operationId);
  await operator.operations.resume(operationId, BY);
  expect(await ended(operationId)).toMatchObject(expected);
  const entries = await slot.redis.xrange('notification:intents', '-', '+');
  const keyOf = (fields: string[]) => fields[fields.indexOf('idempotency_key') + 1]!;
  const corrected = entries
    .filter(([, fields]) => fields.includes('game_master'))
    .map(([, fields]) => keyOf(fields))
    .filter((key) => /^corrected|^came/.test(key));
  expect(corrected.sort()).toEqual(['corrected-1', 'corrected-2']);
  const ofNobody = operator.operations.begin('republish', { producer: 'nobody' }, BY);
  await expect(ofNobody).rejects.toThrow('no refused entry matches');
});

test('newcomer-7 the list of actions tells of every pause, resume, cancel and replay, also after a resume', async () => {
  await slot.db.query('DELETE FROM notification.operator_actions');
  await operator.channels.pause('email', { ...BY, reason: 'INC-1' });
  await operator.channels.resume('email', BY);
  await operator.producers.pause('game_master', { ...BY, reason: 'INC-2' });
  const open = await publishTurn(slot.redis, 'acted/open', ['user-1']);
  await routesIn(open, 'pending', 2);
  const because = { ...BY, reason: 'INC-3' };
  const cancellation = await operator.operations.begin('cancel', { notificationId: open }, because);
  await ended(cancellation.operationId);
  await operator.producers.resume('game_master', { requestedBy: 'bert' });

  const dead = await deadPushes('acted/dead', 2);
  await slot.redis.del(GATEWAY);
  // As Temporal's own tools do it.
  await replayRoute(slot, dead, 'push:user:user-1', { ...BY, reason: 'INC-4' });
  await eventually('the replay of one', async () => (await replaysOf(dead)).length === 1);
  await holdItems(1);
  const { operationId } = await replay(dead, { reason: 'INC-5' });
  await operator.operations.pause(operationId, BY);
  await operator.operations.resume(operationId, BY);
  await operator.operations.abort(operationId, BY);
  await operator.bridge.pause({ ...BY, reason: 'INC-6' });
  await operator.bridge.resume(BY);

  const { items } = await operator.actions.list();
  const told = items.map(({ requestedBy, action, target, detail }) =>
    [requestedBy, action, target, detail].filter((part) => part !== undefined).join(' | '),
  );
  expect(told.sort()).toEqual(
    [
      'nina | channels pause | email | INC-1',
      'nina | channels resume | email',
      'nina | producers pause | game_master | INC-2',
      `nina | notifications cancel | ${cancellation.operationId} | 1 chosen: INC-3`,
      'bert | producers resume | game_master',
      `nina | replay | ${dead} | INC-4`,
      `nina | replay | ${operationId} | 1 chosen: INC-5`,
      `nina | operations pause | ${operationId}`,
      `nina | operations resume | ${operationId}`,
      `nina | operations abort | ${operationId}`,
      'nina | bridge pause | INC-6',
      'nina | bridge resume',
    ].sort(),
  );
});
