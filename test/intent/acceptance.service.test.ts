/** Acceptance when lookups fail, for some or for one for ever: who gets what, who waits for whom, and who sees it. */
import { publishIntent } from '../../client/notificationintent.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { notificationWorkflowId, bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests, operatorOfTests } from '../harness.ts';
import { cancelOne, resultOf, routesOf, untilLogged, usersUpTo } from './rows.ts';
import { turnIntent } from './entries.ts';

const MOST_LOOKUPS = 8;
const STREAM_LENGTH = 100;
const USER = { email: 'someone@example.com', preferredLanguage: 'en' };

const slot = slotOfTests();
const operator = operatorOfTests(slot, 'http://ui.test');
beforeAll(() =>
  slot.startService({
    // What is delivered does not matter here; acceptance is the same.
    NOTIFICATION_ROUTE_DISPATCH: 'on_failure',
    NOTIFICATION_USER_SERVICE_MAX_LOOKUPS: String(MOST_LOOKUPS),
    // Longer than lookups are held.
    NOTIFICATION_USER_SERVICE_TIMEOUT: '1m',
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '2',
    NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: String(STREAM_LENGTH),
  }),
);
afterEach(() => slot.userService.heal());

const named = (prefix: string, count: number) => usersUpTo(count).map((user) => `${prefix}-${user}`);
function known(...ids: string[]): string[] {
  for (const id of ids) slot.userService.setUser(id, USER);
  return ids;
}

const publish = (idempotencyKey: string, recipientUserIds: string[], gameName = 'G'): Promise<string> =>
  publishIntent(slot.redis, turnIntent(idempotencyKey, recipientUserIds, { game_name: gameName }));

const deliveredTo = (recipients: number) => ({
  ...{ outcome: 'accepted', published: 2 * recipients, skipped: 0, deadLettered: 0 },
});

const lookupsOf = (prefix: string): string[] =>
  slot.userService.requests.map(({ userId }) => userId).filter((id) => id.startsWith(prefix));

const waitingIn = async (id: string) =>
  (await operator.intents.waiting()).items.find(({ notificationId }) => notificationId === id);

test('intent-D5 I11 who was found is not asked for again by the next attempt', async () => {
  const recipients = known(...named('kept', 40));
  slot.userService.fail({ userId: 'kept-user-7', failure: { kind: 'status', status: 503 }, times: 2 });
  const id = await publish('d5/kept', recipients);
  expect(await resultOf(slot, id)).toEqual(deliveredTo(40));
  expect(lookupsOf('kept').filter((user) => user !== 'kept-user-7')).toHaveLength(39);
});

test('intent-P5 a process makes no more lookups concurrently than it may, and small audiences pass large ones', async () => {
  const lookups = holdAnswers();
  const audiences = named('p5', 3).map((name) => known(...named(name, 40)));
  for (const userId of audiences.flat()) slot.userService.fail({ userId, failure: lookups.failure });
  const large = await Promise.all(audiences.map((audience, n) => publish(`p5/${n}`, audience)));
  await eventually('large ones to be asked about', async () => lookupsOf('p5-').length === MOST_LOOKUPS / 2);
  const small = await publish('p5/small', known('p5-small'));
  expect(await resultOf(slot, small)).toEqual(deliveredTo(1));
  expect(lookupsOf('p5-user-')).toHaveLength(MOST_LOOKUPS / 2);
  lookups.release();
  expect(await Promise.all(large.map((id) => resultOf(slot, id)))).toEqual(large.map(() => deliveredTo(40)));
  expect(slot.userService.mostConcurrent()).toBeLessThanOrEqual(MOST_LOOKUPS);
});

test.each([
  ['status 400', USER, 400, 'answered with status 400'],
  ['no address', { ...USER, email: '' }, undefined, 'gave an unusable answer: email'],
])(
  'intent-D6 bug-P6 one recipient with %s costs that one the e-mail, and the others nothing',
  async (what, user, status, problem) => {
    const bad = `bad-${what}`;
    slot.userService.setUser(bad, user);
    if (status !== undefined) slot.userService.fail({ userId: bad, failure: { kind: 'status', status } });
    const id = await publish(`d6/${what}`, [bad, ...known('d6-good')]);
    expect(await resultOf(slot, id)).toEqual({ ...deliveredTo(2), published: 3, skipped: 1 });
    expect(await routesOf(slot, id)).toMatchObject([
      {
        ...{ route_id: `email:user:${bad}`, status: 'skipped', resolved_email: null },
        last_error_classification: 'recipient_unusable',
        last_error_message: `User Service ${problem}`,
      },
      { route_id: 'email:user:d6-good', status: 'published' },
      { route_id: `push:user:${bad}`, status: 'published' },
      { route_id: 'push:user:d6-good', status: 'published' },
    ]);
    // An address stays as it is, so its user is not asked for again.
    expect(lookupsOf(bad).length > 1).toBe(status !== undefined);
    const msg = 'recipient without a usable address';
    await untilLogged(slot, { level: 'warn', msg, notification_id: id, user_id: bad });
    expect(await waitingIn(id)).toBeUndefined();
  },
);

test('intent-D6 I12 I40 an intent that waits is listed with its reason, and can be cancelled', async () => {
  slot.userService.setUser('alone', USER);
  slot.userService.fail({ userId: 'alone', failure: { kind: 'status', status: 503 } });
  const id = await publish('d6/waits', ['alone']);
  const link = expect.stringContaining(encodeURIComponent(notificationWorkflowId(id))) as string;
  const reason = 'User Service answered with status 503';
  await eventually('a second attempt', async () => ((await waitingIn(id))?.attempt ?? 0) > 1);
  expect(await waitingIn(id)).toMatchObject({
    ...{ type: 'game.turn.ready', producer: 'game_master', idempotencyKey: 'd6/waits', reason, link },
  });
  const { stage, live } = await operator.notifications.show(id);
  expect(stage).toBe('accepting');
  expect(live?.details).toContain('Acceptance failed');
  expect(live?.pendingActivities[0]).toMatchObject({ type: 'acceptIntent' });
  expect(await cancelOne(operator, id)).toMatchObject({ published: 0, open: 0 });
  expect(await waitingIn(id)).toBeUndefined();
  const ended = await eventually('its workflow to have ended', async () => {
    const view = await operator.notifications.show(id);
    return view.stage === 'ended' && view;
  });
  // A try that begins beside the cancellation finds it, and the workflow completes.
  expect(['CANCELLED', 'COMPLETED']).toContain(ended.live?.status);
});

test('intent-D13 an intent that an operator has terminated holds up no later one', async () => {
  slot.userService.fail({ userId: 'gone', failure: { kind: 'status', status: 503 } });
  const first = await publish('d13/gone', known('gone'), 'first');
  await eventually('the first to wait', async () => ((await waitingIn(first))?.attempt ?? 0) > 0);
  await slot.client.workflow.getHandle(notificationWorkflowId(first)).terminate();
  const second = await publish('d13/gone', known('present'), 'second');
  expect(await resultOf(slot, second)).toEqual(deliveredTo(1));
  await eventually('the first to be given up', async () => (await waitingIn(first)) === undefined);
});

test('intent-P9 an intent with more pushes than their stream keeps is said so at acceptance, and no other', async () => {
  const fits = await publish('fits', known(...named('fit', STREAM_LENGTH)));
  const exceeds = await publish('exceeds', known(...named('exceed', STREAM_LENGTH + 1)));
  expect(await resultOf(slot, fits)).toEqual(deliveredTo(STREAM_LENGTH));
  expect(await resultOf(slot, exceeds)).toEqual(deliveredTo(STREAM_LENGTH + 1));
  const warnings = slot.logs.filter(({ msg }) => msg.startsWith('more push events than their stream keeps'));
  expect(warnings).toMatchObject([
    { notification_id: exceeds, pushes: STREAM_LENGTH + 1, stream_max_len: STREAM_LENGTH },
  ]);
});

test('intent-P10 the reader comes before acceptances when both wait for a slot', async () => {
  const reader = slot.client.workflow.getHandle(bridgeWorkflowId('notification:intents'));
  const { events } = await reader.fetchHistory();
  const priorities = events!.flatMap(({ activityTaskScheduledEventAttributes: activity }) =>
    activity ? [activity.priority?.priorityKey] : [],
  );
  // What has none has the default, 3.
  expect(priorities).toEqual([1]);
});
