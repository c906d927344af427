/** The operator client on real servers: what it finds, what it changes, and what it says when it cannot. */
import { routeRefOf } from '../../api/ids.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { republishedKey } from '../../api/intent/stream.ts';
import { NotFoundError, OperationFailedError } from '../../client/errors.ts';
import { createOperator } from '../../client/operator.ts';
import { workflowLink } from '../../client/resources.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Service } from '../../workers/service.ts';
import { namespaceOf } from '../slots.ts';
import { eventually, slotOfTests, operatorOfTests, resourcesOf } from '../harness.ts';
import { GATEWAY, append } from '../service-process.ts';
import type { Changes } from './entries.ts';
import { publishTurn, turn, turnPayload } from './entries.ts';
import { EMAIL, PUSH, cancelOne, publishDead } from './rows.ts';

const INTENTS = 'notification:intents';
const UI = 'http://ui.test';

const slot = slotOfTests();
const operator = operatorOfTests(slot, UI);
let service: Service;

const startService = async () => {
  // Attempts follow each other quickly, so that routes die within a second.
  service = await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '50ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '100ms',
  });
};
beforeAll(startService);

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

const statusOf = async (id: string, route: string) =>
  (await operator.notifications.show(id)).routes.find(({ routeId }) => routeId === route)?.status;

describe('notifications', () => {
  test('I40 a list is filtered, newest first, and says when there is more', async () => {
    // One after the other: two concurrent ones may be accepted in either order, and that is the list's.
    const first = await publish('list/1');
    await eventually('the first', () => statusOf(first, PUSH));
    const second = await publish('list/2');
    await eventually('the second', () => statusOf(second, PUSH));

    expect(await operator.notifications.list({ idempotencyKey: 'list/1' })).toEqual({
      items: [
        expect.objectContaining({
          ...{ notificationId: first, type: 'game.turn.ready', producer: 'game_master', audience: 'user' },
          idempotencyKey: 'list/1',
          link: `${UI}/namespaces/${namespaceOf(slot.slot)}/workflows/notification%2F${first}`,
        }),
      ],
      hasMore: false,
    });
    expect(await operator.notifications.list({ limit: 1 })).toMatchObject({
      ...{ items: [{ notificationId: second }], hasMore: true },
    });
    for (const filter of [
      { type: 'game.finished' },
      { until: new Date(0) },
      { status: 'dead_letter' as const },
    ])
      expect((await operator.notifications.list(filter)).items).toEqual([]);
    const settled = await eventually('settled ones', async () => {
      const { items } = await operator.notifications.list({ status: 'settled' });
      return items.length >= 2 && items;
    });
    expect(settled[0]).toMatchObject({ notificationId: second, open: 0, published: 2, deadLettered: 0 });
  });

  test('I40 a notification shows its record, its routes and what Temporal says', async () => {
    const id = await publish('show');
    const view = await eventually('its end', async () => {
      const now = await operator.notifications.show(id);
      return now.live?.status === 'COMPLETED' && now;
    });
    expect(view).toMatchObject({
      stage: 'accepted',
      record: { idempotencyKey: 'show', recipientUserIds: ['user-1'], payload: { game_id: 'g' } },
      totals: { published: 2 },
      hasMoreRoutes: false,
      deadLetters: [],
      replays: [],
      live: { result: { outcome: 'accepted', published: 2, skipped: 0, deadLettered: 0 } },
    });
    expect(view.routes.map(({ routeId, status, attempts }) => [routeId, status, attempts])).toEqual([
      [EMAIL, 'published', 1],
      [PUSH, 'published', 1],
    ]);
    expect((await operator.notifications.show(id, 1)).hasMoreRoutes).toBe(true);
  });

  test('I6 I9 security-7 refused intents and unknown ids are told apart, and a refusal names no user', async () => {
    const refused = await publish('unknown-user', ['nobody']);
    const view = await eventually('the refusal', async () => {
      const now = await operator.notifications.show(refused);
      return now.stage === 'malformed' && now;
    });
    expect(view.malformed).toMatchObject({
      ...{ code: 'recipient_not_found', idempotencyKey: 'unknown-user' },
      message: 'recipient_user_ids_json names a user whom User Service does not know, at position 0',
    });
    await expect(operator.notifications.show('1-1')).rejects.toThrow(NotFoundError);
    await expect(cancelOne(operator, '1-1')).rejects.toThrow(NotFoundError);
  });

  test('intent-10 cancelling one whose workflow was terminated skips the routes that it left open', async () => {
    await operator.channels.pause('email', { reason: 'cancel test' });
    const id = await publish('terminated');
    await eventually('push', async () => (await statusOf(id, PUSH)) === 'published');
    expect(await operator.channels.list()).toMatchObject([
      { channel: 'push', status: 'open', openRoutes: 0 },
      { status: 'paused', reason: 'cancel test', since: expect.any(Date), openRoutes: 1 },
    ]);
    await slot.client.workflow.getHandle(notificationWorkflowId(id)).terminate();
    expect(await cancelOne(operator, id)).toMatchObject({ published: 1, skipped: 1, open: 0 });
    await expect(cancelOne(operator, id)).rejects.toThrow(NotFoundError);
    await operator.channels.resume('email');
    expect(await statusOf(id, EMAIL)).toBe('skipped');
  });
});

describe('a refused intent that is corrected', () => {
  const appendTurn = async (changes: Changes) => (await append(slot.redis, [turn(changes)]))[0]!;

  /** @returns the id of the entry that the operation has published. */
  async function republish(entryId: string, correction: Correction = {}): Promise<string> {
    const request = { requestedBy: 'test' };
    const { operationId } = await operator.operations.begin('republish', { entryId }, request, correction);
    expect(await operator.operations.follow(operationId, { limitMs: 20_000 })).toMatchObject({ ordered: 1 });
    return (await slot.redis.get(republishedKey(operationId, entryId)))!;
  }

  const refused = (id: string) =>
    eventually(`the row of ${id}`, () => operator.malformed.show(id).catch(() => undefined));
  const stageOf = (id: string, stage: string) =>
    eventually(`${id} to be ${stage}`, async () => {
      const view = await operator.notifications.show(id).catch(() => undefined);
      return view?.stage === stage && view;
    });

  test('U5 an entry with a wrong field is corrected and published, one whose key stands for other content gets its own, the same each time', async () => {
    const id = await appendTurn({ idempotency_key: 'wrong', producer: 'lobby', of_another_release: 'x' });
    await refused(id);
    await expect(operator.malformed.correct(id)).rejects.toThrow('refuse it again: invalid_envelope');
    const correction = { set: { producer: 'game_master' } };
    const fields = await operator.malformed.correct(id, correction);
    const right = turn({ idempotency_key: 'wrong' }).map((field) => field.map(String));
    expect(fields).toEqual(Object.fromEntries(right));
    const again = await republish(id, correction);
    expect(await stageOf(again, 'accepted')).toMatchObject({ record: { idempotencyKey: 'wrong' } });
    // An operator who is not sure of the first call repeats it.
    const twice = await republish(id, correction);
    expect(await stageOf(twice, 'ended')).toMatchObject({ duplicateOf: again });

    const other = await appendTurn({ idempotency_key: 'wrong', payload_json: turnPayload(',"x":1') });
    expect(await refused(other)).toMatchObject({ code: 'idempotency_conflict' });
    const key = `wrong/republished/${other}`;
    for (let times = 0; times < 2; times += 1) {
      const corrected = await operator.malformed.correct(other, { newKey: true });
      expect(corrected).toMatchObject({ idempotency_key: key });
    }
    const renamed = await republish(other, { newKey: true });
    expect(await stageOf(renamed, 'accepted')).toMatchObject({ record: { idempotencyKey: key } });
  });

  test('U5 what was not kept as it came is not published, unless it is given again', async () => {
    const many = JSON.stringify(Array.from({ length: 1_000 }, (_, index) => `nobody-${index}`));
    const long = await appendTurn({ producer: 'lobby', recipient_user_ids_json: many });
    const bytes = await appendTurn({ idempotency_key: Buffer.from([0x6b, 0xff]) });
    await refused(long);
    await refused(bytes);
    const set = { producer: 'game_master', request_id: '' };
    await expect(operator.malformed.correct(long, { set })).rejects.toThrow(
      'recipient_user_ids_json was not kept as it came: give it again with --set recipient_user_ids_json=…',
    );
    await expect(operator.malformed.correct(bytes)).rejects.toThrow(
      'idempotency_key was not kept as it came',
    );
    await expect(operator.malformed.correct(bytes, { newKey: true })).rejects.toThrow(OperationFailedError);
    const id = await republish(long, { set: { ...set, recipient_user_ids_json: '["user-1"]' } });
    await stageOf(id, 'accepted');
    await expect(republish('1-1')).rejects.toThrow(NotFoundError);
  });
});

test('I25 a route whose id is not plain is replayed by the name that Temporal has of it', async () => {
  const user = 'a user';
  slot.userService.setUser(user, { email: 'a.user@example.com', preferredLanguage: 'en' });
  const notificationId = await publishDead(slot, 'not-plain', [user]);
  await slot.redis.del(GATEWAY);
  const routeId = `push:user:${user}`;
  const routeRef = routeRefOf(routeId);
  expect(routeRef).not.toBe(routeId);
  await operator.operations.begin('replay', { notificationId, routeId: routeRef }, { requestedBy: 'test' });
  await eventually('the push', async () => (await statusOf(notificationId, routeId)) === 'published');
});

describe('channels and the reader', () => {
  test('I1 I40 the reader shows where it is; a pause stops intake and survives a restart', async () => {
    const status = await eventually('a heartbeat', async () => {
      const now = await operator.bridge.status();
      return now.progress && now;
    });
    expect(status).toMatchObject({ stream: INTENTS, state: 'reading', isPaused: false });
    expect(status.progress).toMatchObject({ stream: INTENTS, findings: [] });
    expect(status.worker).toContain(String(process.pid));

    const paused = await operator.bridge.pause({ reason: 'a test', requestedBy: 'tester' });
    expect(paused).toMatchObject({
      ...{ state: 'paused', isPaused: true, pause: { by: 'tester', reason: 'a test' } },
    });
    await service.stop();
    await startService();
    const id = await publish('while-not-reading');
    expect((await operator.notifications.show(id)).stage).toBe('unread');
    expect((await operator.bridge.status()).isPaused).toBe(true);

    expect((await operator.bridge.resume({ requestedBy: 'tester' })).isPaused).toBe(false);
    await eventually('push', async () => (await statusOf(id, PUSH)) === 'published');
  });

  test('I26 a workflow that is not there is named', async () => {
    const elsewhere = createOperator({ ...resourcesOf(slot), intentsStream: 'another:stream' });
    expect(await elsewhere.bridge.status()).toMatchObject({ state: 'not running', isPaused: false });
    await expect(elsewhere.bridge.pause({ reason: 'r', requestedBy: 't' })).rejects.toThrow(
      'stream-bridge/another:stream is not running',
    );
  });
});

test('I40 links name namespace, workflow and run in the form the Web UI understands', () => {
  const ui = { uiUrl: 'http://ui.test/', namespace: 'a b' };
  expect(workflowLink(ui, 'notification/1-0')).toBe(
    'http://ui.test/namespaces/a%20b/workflows/notification%2F1-0',
  );
  expect(workflowLink(ui, 'x', 'run')).toBe('http://ui.test/namespaces/a%20b/workflows/x/run/history');
});
