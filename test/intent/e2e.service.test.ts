/** The whole pipeline on real servers: what goes in with XADD, what comes out, and what stays in PostgreSQL. */
import { given } from '../../api/given.ts';
import { channelOf, routeRefOf } from '../../api/ids.ts';
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { EntryFields } from '../../api/intent/entry.ts';
import { publishIntent } from '../../client/notificationintent.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { cliOfTests } from '../command-line.ts';
import { dispatch, eventually, operatorOfTests, slotOfTests } from '../harness.ts';
import { keptByTemporal } from '../kept.ts';
import { GATEWAY, MAIL, OFFSET_KEY, append, deliveriesTo, outboundIds } from '../service-process.ts';
import type { Changes } from './entries.ts';
import { TURN, entryOf, turnIntent } from './entries.ts';
import {
  EMAIL,
  PUSH,
  bothPublished,
  countOf,
  entriesOf,
  intentStatusOf,
  makeDue,
  refusalOf,
  resultOf,
  routesOf,
  settledRoutes,
  untilIntent,
  untilLogged,
} from './rows.ts';
import {
  ADMIN_NOTIFICATION_TYPES,
  NOTIFICATION_TYPES,
  audiencesOf,
  channelsOf,
  samplePayload,
} from './galaxy.ts';

const STREAM = 'notification:intents';
const WITHOUT_ADMINISTRATORS = 'game.generation_failed';

const slot = slotOfTests();
const operator = operatorOfTests(slot);
const bench = cliOfTests(slot);

beforeAll(async () => {
  const admins = ADMIN_NOTIFICATION_TYPES.filter((type) => type !== WITHOUT_ADMINISTRATORS).map((type) => [
    `NOTIFICATION_ADMIN_EMAILS_${type.replace(/\./g, '_').toUpperCase()}`,
    ' Ops@Example.com,oncall@example.com, ops@example.com',
  ]);
  await slot.startService(Object.fromEntries(admins) as Record<string, string>);
});

/** Appends an entry as redis-cli would: nothing of the producer module in between. */
const xadd = async (entry: EntryFields): Promise<string> => (await append(slot.redis, [entry]))[0]!;

let keys = 0;
/** With a separate key, and to `user-1` if it is to users. */
const envelope = (type: NotificationType, changes: Changes = {}) =>
  entryOf(type, {
    idempotency_key: `key-${(keys += 1)}`,
    ...(audiencesOf(type)[0] === 'user' ? { recipient_user_ids_json: '["user-1"]' } : {}),
    ...changes,
  });
const turnReady = (changes?: Changes) => envelope(TURN, changes);

const pushEvents = (id: string) => entriesOf(slot, GATEWAY, `${id}/`);
const mailCommands = (id: string) => entriesOf(slot, MAIL, `${id}/`);

test('I5 I7 I14 I15 I16 I17 I18 each type ends on exactly the streams that the catalog names, without administrators on none', async () => {
  const published = await Promise.all(
    NOTIFICATION_TYPES.map(async (type) => ({ type, id: await xadd(envelope(type)) })),
  );
  for (const { type, id } of published) {
    const routes = await settledRoutes(slot, id);
    const wanted = routes.filter(({ status }) => status !== 'skipped').map(({ route_id }) => route_id);
    const delivered = [...(await pushEvents(id)), ...(await mailCommands(id))].map((entry) =>
      (entry['event_id'] ?? entry['delivery_id'])!.toString().slice(id.length + 1),
    );
    expect({ type, delivered: delivered.sort() }).toEqual({ type, delivered: wanted.sort() });
    const channels = type === WITHOUT_ADMINISTRATORS ? [] : channelsOf(type, audiencesOf(type)[0]!);
    expect([type, new Set(wanted.map(channelOf))]).toEqual([type, new Set(channels)]);
    if (type !== WITHOUT_ADMINISTRATORS) continue;
    const skipReason = 'the service has no administrators for its type';
    expect(await operator.notifications.show(id)).toMatchObject({
      routes: [{ routeId: `email:config:${type}`, status: 'skipped', skipReason }],
    });
  }
});

test('I7 I20 I27 I18 the record and its routes hold the frozen columns, and mail commands the time of acceptance', async () => {
  const id = await xadd(turnReady({ recipient_user_ids_json: '["user-2","user-1"]', request_id: 'req-9' }));
  const routes = await settledRoutes(slot, id);
  const { rows } = await slot.db.query<Record<string, Date>>(
    'SELECT * FROM notification.records WHERE notification_id = $1',
    [id],
  );
  expect(rows[0]).toMatchObject({
    notification_type: 'game.turn.ready',
    producer: 'game_master',
    audience_kind: 'user',
    recipient_user_ids: ['user-2', 'user-1'],
    payload_json: '{"game_id":"game-42","game_name":"Andromeda","turn_number":54}',
    request_id: 'req-9',
    trace_id: null,
    occurred_at: new Date(1775121700000),
  });
  const { accepted_at: acceptedAt, idempotency_expires_at: expiresAt } = rows[0]!;
  expect(expiresAt!.getTime() - acceptedAt!.getTime()).toBe(168 * 3_600_000);
  const maxAttempts = {
    ...{ 'email:user:user-1': 7, 'email:user:user-2': 7 },
    ...{ 'push:user:user-1': 3, 'push:user:user-2': 3 },
  };
  expect(routes).toMatchObject(
    Object.entries(maxAttempts).map(([route_id, max_attempts]) => ({
      ...{ route_id, status: 'published', attempt_count: 1, max_attempts },
      ...{ next_attempt_at: null, created_at: acceptedAt, last_error_classification: null },
    })),
  );
  for (const { published_at: publishedAt } of routes)
    expect(publishedAt!.getTime()).toBeGreaterThanOrEqual(acceptedAt!.getTime());
  const [mail] = await mailCommands(id);
  expect(String(mail!['requested_at_ms'])).toBe(String(acceptedAt!.getTime()));
  expect(JSON.parse(String(mail!['payload_json']))).toMatchObject({
    ...{ locale: 'en', variables: samplePayload(TURN) },
  });
  expect(mail).not.toHaveProperty('trace_id');
});

describe('what is refused', () => {
  test('I6 intent-D4 a malformed entry leaves one row and a log line, as one that is too large does, and the stream goes on', async () => {
    const incomplete = turnReady({ payload_json: undefined });
    const rawFields = Object.fromEntries(incomplete.map(([name, value]) => [String(name), String(value)]));
    const bad = await xadd(incomplete);
    const large = await xadd(turnReady({ payload_json: 'x'.repeat(2_000_000) }));
    const good = await xadd(turnReady());
    await settledRoutes(slot, good);
    expect(await refusalOf(slot, large)).toMatchObject({ failure_code: 'entry_too_large' });
    expect(await refusalOf(slot, bad)).toMatchObject({
      notification_type: 'game.turn.ready',
      producer: 'game_master',
      idempotency_key: rawFields['idempotency_key'],
      failure_code: 'invalid_envelope',
      failure_message: 'payload_json is missing',
      raw_fields: rawFields,
    });
    expect(await routesOf(slot, bad)).toEqual([]);
    const failure = { failure_code: 'invalid_envelope', outcome: 'malformed' };
    await untilLogged(slot, { notification_id: bad, ...failure });
  });

  test('I9 a duplicate has no effect, a conflict leaves a malformed row, whatever the User Service says of its recipients', async () => {
    const key = { idempotency_key: 'twice' };
    const original = await xadd(turnReady(key));
    await settledRoutes(slot, original);
    slot.userService.fail({ failure: { kind: 'status', status: 503 } });
    const written = JSON.stringify(samplePayload(TURN));
    const duplicate = await xadd(turnReady({ ...key, payload_json: ` ${written} `, request_id: 'other' }));
    const conflict = await xadd(turnReady({ ...key, occurred_at_ms: '1775121700001' }));
    expect(await resultOf(slot, duplicate)).toEqual({ outcome: 'duplicate', of: original });
    expect(await resultOf(slot, conflict)).toEqual({ outcome: 'idempotency_conflict', with: original });
    slot.userService.heal();
    const { rows } = await slot.db.query(
      'SELECT stream_entry_id, failure_code FROM notification.malformed_intents WHERE stream_entry_id = ANY($1)',
      [[duplicate, conflict]],
    );
    expect(rows).toEqual([{ stream_entry_id: conflict, failure_code: 'idempotency_conflict' }]);
    expect(await pushEvents(duplicate)).toEqual([]);
    expect(await pushEvents(conflict)).toEqual([]);
  });

  test('I9 of identical and conflicting intents that come concurrently one is accepted', async () => {
    const intent = (turn: number) => turnIntent('at-once', undefined, { turn_number: turn });
    const ids = await Promise.all(
      Array.from({ length: 40 }, (_, index) => publishIntent(slot.redis, intent(index % 2))),
    );
    const results = (await Promise.all(ids.map((id) => resultOf(slot, id)))) as { outcome: string }[];
    const outcomes = results.map(({ outcome }) => outcome);
    const winner = outcomes.indexOf('accepted');
    const expected = ids.map((_, index) => {
      if (index === winner) return 'accepted';
      return index % 2 === winner % 2 ? 'duplicate' : 'idempotency_conflict';
    });
    expect(outcomes).toEqual(expected);
    expect(await countOf(slot, 'records', "idempotency_key = 'at-once'")).toBe(1);
    await bothPublished(slot, [ids[winner]!]);
    const sent = await outboundIds(slot.redis);
    expect(sent.filter((id) => ids.includes(id.split('/')[0]!))).toEqual(
      deliveriesTo('user-1', [ids[winner]!]),
    );
  });

  test('I11 one unknown recipient refuses the whole intent', async () => {
    const id = await xadd(turnReady({ recipient_user_ids_json: '["user-1","nobody"]' }));
    expect(await resultOf(slot, id)).toEqual({ outcome: 'recipient_not_found' });
    expect(await refusalOf(slot, id)).toMatchObject({
      failure_code: 'recipient_not_found',
      failure_message: expect.stringContaining('at position 1'),
      raw_fields: expect.objectContaining({ recipient_user_ids_json: '["user-1","nobody"]' }),
    });
    expect(await routesOf(slot, id)).toEqual([]);
  });
});

describe('what an operator sees', () => {
  test('I40 a notification is found by each search attribute and says what it is', async () => {
    const id = await xadd(
      turnReady({ idempotency_key: 'find-me', recipient_user_ids_json: '["user-1","user-2"]' }),
    );
    await settledRoutes(slot, id);
    const all = `NotificationId = '${id}'`;
    const key =
      "IdempotencyKey = 'find-me' AND Producer = 'game_master' AND NotificationType = 'game.turn.ready'";
    for (const [query, workflows] of [
      [`${all} AND WorkflowType = 'notification'`, 1],
      [`${key} AND WorkflowType = 'notification'`, 1],
      [`${all} AND RouteChannel = 'push'`, dispatch() === 'child' ? 2 : 0],
    ] as const)
      await eventually(
        `${workflows} with ${query}`,
        async () => (await slot.client.workflow.count(query)).count === workflows,
      );
    const description = await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe();
    expect(await description.staticSummary()).toBe('game.turn.ready to 2 recipients');
  });

  test('I40 the histories are short and hold no address', async () => {
    const id = await xadd(turnReady());
    await settledRoutes(slot, id);
    await resultOf(slot, id);
    const routes = dispatch() === 'child' ? [PUSH, EMAIL] : [];
    const workflowIds = [notificationWorkflowId(id), ...routes.map((route) => routeWorkflowId(id, route))];
    let transitions = 0;
    for (const [index, workflowId] of workflowIds.entries()) {
      const run = slot.client.workflow.getHandle(workflowId);
      const { historyLength, raw } = await run.describe();
      expect(historyLength).toBeLessThanOrEqual(index === 0 ? 25 : 8);
      transitions += Number(raw.workflowExecutionInfo?.stateTransitionCount);
      expect(await keptByTemporal(run)).not.toMatch(/Andromeda|@example\.com/);
    }
    // What an intent costs the server.
    expect(transitions).toBeLessThanOrEqual(dispatch() === 'child' ? 21 : 3);
    const notification = slot.client.workflow.getHandle(workflowIds[0]!);
    expect(await keptByTemporal(notification)).toContain('game.turn.ready to 1 recipient');
  });

  test('I34 I40 a route to an administrator is reachable by a workflow id without the address, and no log has it', async () => {
    // Urgent ones have no workflow of a route unless it fails.
    const id = await xadd(envelope('geo.review_recommended'));
    await settledRoutes(slot, id);
    const handle = slot.client.workflow.getHandle(
      routeWorkflowId(id, routeRefOf('email:email:Ops@example.com')),
    );
    expect(handle.workflowId).not.toContain('@');
    if (dispatch() === 'child') expect(await handle.result()).toEqual({ status: 'published' });
    expect(JSON.stringify(slot.logs)).not.toContain('@example.com');
  });

  test('I1 I2 the reader reports its offset, and the offset is saved and never expires', async () => {
    const id = await xadd(turnReady());
    await settledRoutes(slot, id);
    await eventually(
      'the offset to reach the last entry',
      async () => (await slot.redis.get(OFFSET_KEY)) === id,
    );
    expect(await slot.redis.ttl(OFFSET_KEY)).toBe(-1);
    await eventually('a heartbeat with the offset', async () => {
      const { progress } = await operator.bridge.status();
      // The lag may have been looked at a moment before the offset was.
      return progress?.stream === STREAM && progress.offset === id && progress.lagMs === 0;
    });
  });

  test('I86 an operator sets the weight of a producer in the task queue, or learns that this Temporal has none', async () => {
    const weigh = (...args: string[]) => bench.cli(['producers', 'weight', 'game_lobby', ...args]);
    const untilWeight = (wanted: number) =>
      eventually(`the weight ${wanted} to be shown`, async () => {
        const producers = await operator.producers.list();
        return producers.find(({ producer }) => producer === 'game_lobby')?.weight === wanted;
      });
    const actions = async () =>
      (await operator.actions.list({ action: 'producers weight' })).items.map(({ detail }) => detail);
    expect(await weigh('0')).toMatchObject({ code: 2, stdout: '' });
    await untilWeight(1);
    const { serverVersion } = await slot.client.workflowService.getSystemInfo({});
    const hasWeights = !/^1\.(\d|[12]\d)\./.test(serverVersion);
    expect(await weigh('0.25', '--requested-by', 'nina')).toMatchObject(
      hasWeights
        ? { code: 0, stdout: 'game_lobby has the weight 0.25\n' }
        : { code: 1, stdout: '', stderr: expect.stringContaining('Temporal took no weight') },
    );
    await untilWeight(hasWeights ? 0.25 : 1);
    if (hasWeights) expect(await weigh('1')).toMatchObject({ code: 0 });
    await untilWeight(1);
    expect(await actions()).toEqual(hasWeights ? ['1', '0.25'] : []);
  });
});

describe('for later', () => {
  const DAY_MS = 86_400_000;
  const occurredAt = Date.now();
  const publish = (idempotencyKey: string, deliverAtMs?: number, turn_number = 1): Promise<string> =>
    publishIntent(slot.redis, {
      ...turnIntent(idempotencyKey, undefined, { turn_number }),
      ...{ occurredAtMs: occurredAt, ...given({ deliverAtMs }) },
    });

  test('I89 an intent for later waits, says so, and is delivered when its time has come', async () => {
    const later = await publish('later', occurredAt + 300 * DAY_MS);
    await untilIntent(slot, later, 'open');
    const asked = slot.userService.requests.length;
    // One that comes behind it passes it.
    const now = await publish('now');
    await bothPublished(slot, [now]);
    expect(await intentStatusOf(slot, later)).toBe('open');
    expect(slot.userService.requests).toHaveLength(asked + 1);
    const reason = `it waits until ${new Date(occurredAt + 300 * DAY_MS).toISOString().replace(/\.\d+Z/, 'Z')}`;
    const { intents, why } = operator;
    expect((await intents.waiting()).items).toMatchObject([{ notificationId: later, reason }]);
    const { answers } = await why('user-1');
    expect(answers.map(({ sentence }) => sentence)).toContainEqual(expect.stringContaining(reason));

    await makeDue(slot, later);
    await bothPublished(slot, [later]);
    expect((await intents.waiting()).items).toEqual([]);
  });

  test('I89 its key is taken while it waits', async () => {
    const later = await publish('key', occurredAt + DAY_MS);
    const repeat = await publish('key');
    const conflict = await publish('key', undefined, 2);
    await untilIntent(slot, repeat, 'duplicate');
    await untilIntent(slot, conflict, 'conflict');
    expect(await intentStatusOf(slot, later)).toBe('open');
    await makeDue(slot, later);
    await bothPublished(slot, [later]);
  });

  test('I89 a time that has passed is now', async () => {
    await bothPublished(slot, [await publish('passed', occurredAt - DAY_MS)]);
  });
});
