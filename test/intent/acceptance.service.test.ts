/** Acceptance when lookups fail, for some or for one for ever: who gets what, who waits for whom, and who sees it. */
import type { Operator } from '../../client/operator.ts';
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';

const MOST_LOOKUPS = 8;
const STREAM_LENGTH = 400;
const USER = { email: 'someone@example.com', preferredLanguage: 'en' };

let slot: Slot;
let operator: Operator;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService({
    // What is delivered does not matter here; acceptance is the same.
    NOTIFICATION_ROUTE_DISPATCH: 'on_failure',
    NOTIFICATION_USER_SERVICE_MAX_LOOKUPS: String(MOST_LOOKUPS),
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '2',
    NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: String(STREAM_LENGTH),
  });
  operator = operatorOf(slot, 'http://ui.test');
});
afterEach(() => slot.userService.heal());
afterAll(() => slot.release());

const users = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

function known(...ids: string[]): string[] {
  for (const id of ids) slot.userService.setUser(id, USER);
  return ids;
}

const publish = (idempotencyKey: string, recipientUserIds: string[], gameName = 'G'): Promise<string> =>
  publishIntent(
    slot.redis,
    newGameTurnReady({
      idempotencyKey,
      recipientUserIds,
      occurredAt: 1_790_000_000_000,
      payload: { game_id: 'g', game_name: gameName, turn_number: 1 },
    }),
  );

const resultOf = (id: string): Promise<unknown> =>
  eventually(`${id} to be started`, async () => {
    const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
    await handle.describe();
    return handle;
  }).then((handle) => handle.result());

const deliveredTo = (recipients: number) => ({
  outcome: 'accepted',
  published: 2 * recipients,
  skipped: 0,
  deadLettered: 0,
});

const lookupsOf = (prefix: string): string[] =>
  slot.userService.requests.map(({ userId }) => userId).filter((id) => id.startsWith(prefix));

async function routesOf(id: string) {
  const { rows } = await slot.db.query<Record<string, string | null>>(
    `SELECT route_id, status, resolved_email, last_error_classification, last_error_message
       FROM notification.routes WHERE notification_id = $1 ORDER BY route_id`,
    [id],
  );
  return rows;
}

const waitingIn = async (id: string) =>
  (await operator.intents.waiting()).items.find(({ notificationId }) => notificationId === id);

test('intent-D5 I11 an audience of which each attempt loses some lookups is accepted', async () => {
  slot.userService.fail({ failure: { kind: 'status', status: 503 }, every: 20 });
  const id = await publish('d5/share', known(...users('share', 60)));
  expect(await resultOf(id)).toEqual(deliveredTo(60));
});

test('intent-D5 I11 who was found is not asked for again by the next attempt', async () => {
  const recipients = known(...users('kept', 40));
  slot.userService.fail({ userId: 'kept-7', failure: { kind: 'status', status: 503 }, times: 4 });
  const id = await publish('d5/kept', recipients);
  expect(await resultOf(id)).toEqual(deliveredTo(40));
  expect(lookupsOf('kept').filter((user) => user !== 'kept-7')).toHaveLength(39);
});

test('intent-P5 a process makes no more lookups concurrently than it may, and small audiences pass large ones', async () => {
  const lookups = holdAnswers();
  const audiences = users('p5', 3).map((name) => known(...users(name, 40)));
  for (const userId of audiences.flat()) slot.userService.fail({ userId, failure: lookups.failure });
  const large = await Promise.all(audiences.map((audience, n) => publish(`p5/${n}`, audience)));
  await eventually('all large ones to be asked about', async () =>
    users('p5', 3).every((name) => lookupsOf(name).length > 0),
  );
  const small = await publish('p5/small', known('p5-small'));
  expect(await resultOf(small)).toEqual(deliveredTo(1));
  expect(lookupsOf('p5-').length).toBeLessThanOrEqual(MOST_LOOKUPS);
  lookups.release();
  expect(await Promise.all(large.map(resultOf))).toEqual(large.map(() => deliveredTo(40)));
  expect(slot.userService.mostConcurrent()).toBeLessThanOrEqual(MOST_LOOKUPS);
});

test.each([
  ['', 'no address at all'],
  ['"a b"@example.org', 'a quoted one'],
  ['Bob <bob@example.com>', 'one with a name'],
  ['a@b.example,c@d.example', 'two'],
  ['bob\u200b@example.com', 'one with an invisible character'],
])(
  'bug-P6 bug-P7 the address %j (%s) costs that user the e-mail, and no other recipient waits',
  async (email) => {
    const bad = `bad-${Buffer.from(email).toString('hex')}`;
    slot.userService.setUser(bad, { ...USER, email });
    const id = await publish(`p6/${email}`, [bad, ...known('p6-good')]);
    expect(await resultOf(id)).toEqual({ outcome: 'accepted', published: 3, skipped: 1, deadLettered: 0 });
    expect(await routesOf(id)).toContainEqual(
      expect.objectContaining({
        route_id: `email:user:${bad}`,
        status: 'skipped',
        last_error_classification: 'recipient_unusable',
        last_error_message: 'User Service gave an unusable answer: email',
      }),
    );
    // Once: the intent was not tried again, and neither was the lookup.
    expect(lookupsOf(bad)).toHaveLength(1);
  },
);

test.each([
  ['status 400', USER, 400],
  ['status 422', USER, 422],
])(
  'intent-D6 one recipient with %s costs that one the e-mail, and the others nothing',
  async (what, user, status) => {
    const bad = `bad-${what}`;
    slot.userService.setUser(bad, user);
    if (status !== undefined) slot.userService.fail({ userId: bad, failure: { kind: 'status', status } });
    const id = await publish(`d6/${what}`, [bad, ...known('d6-good')]);
    expect(await resultOf(id)).toEqual({ outcome: 'accepted', published: 3, skipped: 1, deadLettered: 0 });
    expect(await routesOf(id)).toMatchObject([
      {
        route_id: `email:user:${bad}`,
        status: 'skipped',
        resolved_email: null,
        last_error_classification: 'recipient_unusable',
        last_error_message: expect.stringMatching(
          /^User Service (answered with status|gave an unusable answer)/,
        ),
      },
      { route_id: 'email:user:d6-good', status: 'published' },
      { route_id: `push:user:${bad}`, status: 'published' },
      { route_id: 'push:user:d6-good', status: 'published' },
    ]);
    expect(slot.logs).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        msg: 'recipient without a usable address',
        notification_id: id,
        user_id: bad,
      }),
    );
    expect(await waitingIn(id)).toBeUndefined();
  },
);

test('intent-D6 an intent that waits is listed with its reason, and can be cancelled', async () => {
  slot.userService.setUser('alone', USER);
  slot.userService.fail({ userId: 'alone', failure: { kind: 'status', status: 503 } });
  const id = await publish('d6/waits', ['alone']);
  const waiting = await eventually('a second attempt', async () => {
    const found = await waitingIn(id);
    return found && found.attempt > 1 && found;
  });
  expect(waiting).toMatchObject({
    type: 'game.turn.ready',
    producer: 'game_master',
    idempotencyKey: 'd6/waits',
    reason: 'User Service answered with status 503',
    link: expect.stringContaining(encodeURIComponent(notificationWorkflowId(id))),
  });
  const cancelled = await operator.notifications.cancel(id, { limitMs: 60_000 });
  expect(cancelled).toMatchObject({ published: 0, open: 0, withoutRecord: 1 });
  // A try that begins beside the cancellation finds it, and the workflow completes.
  expect(['CANCELLED', 'COMPLETED']).toContain(cancelled.status);
  expect(await waitingIn(id)).toBeUndefined();
  expect(await operator.notifications.show(id)).toMatchObject({
    stage: 'ended',
    live: { status: cancelled.status },
  });
});

test('intent-D13 of two intents with one key the earlier wins, though its lookups fail at first', async () => {
  slot.userService.fail({ userId: 'slow', failure: { kind: 'status', status: 503 } });
  const [first] = [await publish('d13', known('slow'), 'first')];
  await eventually('the first to wait', () => waitingIn(first));
  const [second, repeat] = [
    await publish('d13', ['slow'], 'second'),
    await publish('d13', ['slow'], 'first'),
  ];
  slot.userService.heal();
  expect(await resultOf(first)).toEqual(deliveredTo(1));
  expect(await resultOf(second)).toEqual({ outcome: 'idempotency_conflict', with: first });
  expect(await resultOf(repeat)).toEqual({ outcome: 'duplicate', of: first });
});

test('intent-D13 an intent that an operator has terminated holds up no later one', async () => {
  slot.userService.fail({ userId: 'gone', failure: { kind: 'status', status: 503 } });
  const first = await publish('d13/gone', known('gone'), 'first');
  await eventually('the first to wait', async () => ((await waitingIn(first))?.attempt ?? 0) > 0);
  await slot.client.workflow.getHandle(notificationWorkflowId(first)).terminate();
  const second = await publish('d13/gone', known('present'), 'second');
  expect(await resultOf(second)).toEqual(deliveredTo(1));
  await eventually('the first to be given up', async () => (await waitingIn(first)) === undefined);
});

test('intent-P4 what was decided once stands, also when the record that it was decided by is gone', async () => {
  const original = await publish('p4', known('p4-user'));
  expect(await resultOf(original)).toEqual(deliveredTo(1));
  const later = [
    await publish('p4', ['p4-user']),
    await publish('p4', ['p4-user'], 'other'),
    await publish('p4/stranger', ['p4-stranger']),
  ];
  const decided = [
    { outcome: 'duplicate', of: original },
    { outcome: 'idempotency_conflict', with: original },
    { outcome: 'recipient_not_found' },
  ];
  expect(await Promise.all(later.map(resultOf))).toEqual(decided);
  known('p4-stranger');
  await slot.db.query('DELETE FROM notification.records WHERE notification_id = $1', [original]);

  const inputs = await Promise.all(
    later.map(async (id) => {
      const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).fetchHistory();
      const [payload] = events![0]!.workflowExecutionStartedEventAttributes!.input!.payloads!;
      return JSON.parse(Buffer.from(payload!.data!).toString()) as { notificationId: string };
    }),
  );
  const again = await Promise.all(
    inputs.map((input) =>
      slot.client.workflow.execute('notification', {
        workflowId: `again/${input.notificationId}`,
        taskQueue: 'intent',
        args: [input],
      }),
    ),
  );
  expect(again).toEqual(decided);
});

test('I9 an intent is found a duplicate or a conflict, whatever the User Service says of its recipients', async () => {
  const original = await publish('known-once', known('known-once'));
  expect(await resultOf(original)).toEqual(deliveredTo(1));
  slot.userService.fail({ userId: 'known-once', failure: { kind: 'status', status: 503 } });
  expect(await resultOf(await publish('known-once', ['known-once']))).toEqual({
    outcome: 'duplicate',
    of: original,
  });
  slot.userService.heal();
  slot.userService.fail({ userId: 'known-once', failure: { kind: 'status', status: 404 } });
  expect(await resultOf(await publish('known-once', ['known-once'], 'other'))).toEqual({
    outcome: 'idempotency_conflict',
    with: original,
  });
  const waiting = await slot.db.query(
    "SELECT FROM notification.intents WHERE idempotency_key = 'known-once' AND status = 'open'",
  );
  expect(waiting.rows).toEqual([]);
});

test('intent-P9 an intent with more pushes than their stream keeps is said so at acceptance, and no other', async () => {
  const fits = await publish('fits', known(...users('fit', STREAM_LENGTH)));
  const exceeds = await publish('exceeds', known(...users('exceed', STREAM_LENGTH + 1)));
  expect(await resultOf(fits)).toEqual(deliveredTo(STREAM_LENGTH));
  expect(await resultOf(exceeds)).toEqual(deliveredTo(STREAM_LENGTH + 1));
  const warnings = slot.logs.filter(({ msg }) => msg.startsWith('more push events than their stream keeps'));
  expect(warnings).toMatchObject([
    { notification_id: exceeds, pushes: STREAM_LENGTH + 1, stream_max_len: STREAM_LENGTH },
  ]);
});

test('intent-P10 the reader comes before acceptances when both wait for a slot', async () => {
  const { events } = await slot.client.workflow
    .getHandle(bridgeWorkflowId('notification:intents'))
    .fetchHistory();
  const priorities = events!.flatMap(({ activityTaskScheduledEventAttributes: activity }) =>
    activity ? [activity.priority?.priorityKey] : [],
  );
  // What has none has the default, 3.
  expect(priorities).toEqual([1]);
});
