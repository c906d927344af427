/** `why`: each cause is planted, by the rows that the service would write, and found by its sentence. */
import type { Cause } from '../../client/places.ts';
import { createOperator } from '../../client/operator.ts';
import { plantCauses, plantedUser } from '../../dev/planted-causes.ts';
import { resourcesOf, slotOfTests, operatorOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';

const DAY_MS = 86_400_000;

const slot = slotOfTests();
const operator = operatorOfTests(slot, 'http://ui.test');

beforeAll(() => plantCauses(slot.db, 3));

/** What is said of rows that other tests plant, or of no row. */
type Elsewhere = 'forgotten' | 'never_seen';

const SENTENCES: Record<Exclude<Cause, Elsewhere>, RegExp> = {
  published: /^the e-mail of game\.turn\.ready was published at \S+Z as entry 1-1, by attempt 1$/,
  not_on_this_channel:
    /^the e-mail of game\.turn\.ready was skipped because its type does not use this channel$/,
  recipient_unusable: /was skipped: .* no usable e-mail address$/,
  throttled: /was skipped: at most 3 in 1h reach a recipient$/,
  expired:
    /skipped at \S+Z because it came too late: it was worth sending until \S+Z, and no attempt was counted$/,
  cancelled: /skipped because an operator cancelled it at \S+Z$/,
  collapsed: /was skipped: notification 1-1 carries the newest of its window$/,
  waiting_for_attempt: /was accepted at \S+Z and waits for its attempt$/,
  replayed:
    /waits for the attempt of its replay; it died at \S+Z because of mail_stream_publish_failed: OOM, and nina replayed it at \S+Z with the operation replay-1, the last of 2 replays$/,
  retrying: /has failed 2 of 7 times, .* because of mail_stream_publish_failed: OOM, and is tried again at/,
  overdue: /has been due since \S+Z and no worker publishes it/,
  producer_paused:
    /^the urgent e-mail of runtime\.start_config_invalid waits: nina has paused the producer runtime_manager since \S+Z: INC-8$/,
  channel_paused: /^the push of game\.turn\.ready waits: nina has paused push since \S+Z: INC-7$/,
  dead: /is dead since \S+Z, after 2 of 7 attempts, .*; galaxy-notify replay 9\d+-0 email:user:why\/dead\/1$/,
  waiting_for_acceptance: /waiting to be accepted since \S+Z: the User Service answered 503$/,
  refused: /refused because of invalid_payload: turn_number is missing$/,
  key_conflict: /refused because its key m\/9\d+-0 is that of 5-0, with other content$/,
  duplicate: /a second game\.turn\.ready with the key k\/9\d+-0 came, is a duplicate of 9\d+-0/,
  cancelled_before_acceptance: /cancelled the intent of game_master with the key k\/9\d+-0 at/,
  push_sent: /taken by FCM for 1 device at \S+Z; 1 token had ended$/,
  push_partly_sent:
    /taken by FCM for 1 of 2 devices; 1 device failed because of messaging\/internal-error; galaxy-notify mobile replay/,
  push_failed: /reached no device and was given up at/,
  push_without_device: /the user had no device at/,
  push_refused: /refused because of invalid_job: title is too long$/,
  push_given_up: /delivered five times to processes that did not take it/,
  push_waiting: /under way since \S+Z: 1 device tried again because of messaging\/server-unavailable$/,
  callback_told: /told 1 hourly callback, of periods up to \S+Z$/,
  callback_waiting: /^the hourly callback of \S+Z came at \S+Z and waits for the next alarm of shard 0$/,
  callback_retrying: /has failed 2 times, the last time because of HTTP 503, and is tried again at/,
  callback_given_up: /given up after 5 attempts because of HTTP 503/,
  account_untracked: /^the user takes no part in account callbacks since \S+Z$/,
  account_behind:
    /^the days of the account have come up to \S+; daily callbacks of shard 0 wait for the next one/,
};

/** What is said beside the cause itself. */
const BESIDE: Partial<Record<Cause, Cause[]>> = { duplicate: ['published'] };

test.each(Object.entries(SENTENCES))('U1 why says %s, and nothing else', async (name, sentence) => {
  const cause = name as Cause;
  const { answers, doubts } = await operator.why(plantedUser(cause, 1));
  expect(answers.map((answer) => answer.cause)).toEqual([cause, ...(BESIDE[cause] ?? [])]);
  expect(answers[0]!.sentence).toMatch(sentence);
  expect(doubts).toEqual([]);
});

/** Changes the rows of a notification that was planted, named `planted` in the statement. */
const change = (user: string, statement: string, values: unknown[] = []) =>
  slot.db.query(
    `WITH planted AS (SELECT * FROM notification.routes WHERE recipient_ref = 'user:' || $1) ${statement}`,
    [user, ...values],
  );
const sentenceOf = async (user: string) => (await operator.why(user)).answers[0]!.sentence;

test('U1 why says of what was published that it died, that it is late, and who replayed it', async () => {
  const user = plantedUser('published', 3);
  await change(
    user,
    `, died AS (
       INSERT INTO notification.dead_letters
       SELECT notification_id, route_id, channel, recipient_ref, 7, 7, 'mail_stream_publish_failed', 'OOM', 'hint', created_at
         FROM planted)
     UPDATE notification.routes SET published_at = planted.created_at + interval '3 hours' FROM planted
      WHERE routes.notification_id = planted.notification_id`,
  );
  const replays = [
    ['run/signal-1', 'nina', /and nina replayed it at \S+Z$/],
    [
      'operation/replay-7',
      'otto',
      /otto replayed it at \S+Z with the operation replay-7, the last of 2 replays$/,
    ],
    ['run/run', 'start', /start replayed it at \S+Z with Temporal's own tools, the last of 3 replays$/],
  ] as const;
  for (const [n, [replayId, by, ending]] of replays.entries()) {
    await change(
      user,
      'INSERT INTO notification.replays SELECT notification_id, route_id, $2, $3, $4, NULL, now() FROM planted',
      [n + 1, replayId, by],
    );
    const sentence = await sentenceOf(user);
    expect(sentence).toMatch(
      /by attempt 1, 3 h late; it died at \S+Z because of mail_stream_publish_failed: OOM, /,
    );
    expect(sentence).toMatch(ending);
  }
});

test.each([
  ['channel_paused', /has paused push since \S+Z: INC-7; it expired at \S+Z, and is skipped then$/],
  ['dead', /; it expired at \S+Z, so a replay does not send it$/],
] as const)('U1 I78 why says what becomes of what is %s and has expired', async (cause, sentence) => {
  const user = plantedUser(cause, 3);
  await change(
    user,
    `UPDATE notification.records SET expires_at = now() FROM planted
      WHERE records.notification_id = planted.notification_id`,
  );
  expect(await sentenceOf(user)).toMatch(sentence);
});

test('U1 why says when entries of the stream are not read yet', async () => {
  await publishTurn(slot.redis, 'unread', ['why/unread']);
  expect(await operator.why('why/unread')).toMatchObject({
    answers: [{ cause: 'never_seen' }],
    doubts: [expect.stringMatching(/^notification:intents has entries that are not read yet/)],
  });
  await slot.redis.del('notification:intents');
});

test('U1 why says that nothing was seen, or that it is forgotten', async () => {
  expect(await operator.why('unknown')).toMatchObject({
    answers: [
      { cause: 'never_seen', sentence: expect.stringMatching(/^nothing for unknown was seen since/) },
    ],
    hasMore: false,
  });
  const since = new Date(Date.now() - 40 * DAY_MS);
  const { answers } = await operator.why(plantedUser('published', 1), { since, retentionMs: 30 * DAY_MS });
  expect(answers.map(({ cause }) => cause)).toEqual(['published', 'forgotten']);
});

test('U1 why is asked of a type, of an administrator, and within a limit', async () => {
  const user = plantedUser('published', 2);
  const causesFor = async (type: string) =>
    (await operator.why(user, { type })).answers.map(({ cause }) => cause);
  expect(await causesFor('game.turn.ready')).toEqual(['published']);
  expect(await causesFor('game.finished')).toEqual(['never_seen']);
  const address = 'boss@example.com';
  await change(
    user,
    `UPDATE notification.routes SET recipient_ref = 'email:' || $2, route_id = 'email:email:' || $2 FROM planted
      WHERE routes.notification_id = planted.notification_id`,
    [address],
  );
  expect(await operator.why(address, { limit: 1 })).toMatchObject({
    ...{ answers: [{ cause: 'published' }], hasMore: false },
  });
  expect((await operator.notifications.list({ recipient: address })).items).toHaveLength(1);
  const both = await operator.why(plantedUser('duplicate', 1), { limit: 1 });
  expect(both).toMatchObject({ answers: [{ cause: 'duplicate' }], hasMore: true });
});

test('U1 a Redis that does not answer is a doubt', async () => {
  const redis = { get: () => Promise.reject(new Error('refused')) } as never;
  const { why } = createOperator({ ...resourcesOf(slot), redis });
  const { answers, doubts } = await why(plantedUser('published', 1));
  expect(answers).toMatchObject([{ cause: 'published' }]);
  expect(doubts).toEqual([
    'Redis did not say whether entries of notification:intents are still to be read: refused',
  ]);
});

test('U1 an entry that names its recipients in a broken list is found by them', async () => {
  const raw = { recipient_user_ids_json: '["broken/1", broken", "broken/2"' };
  await slot.db.query(
    `INSERT INTO notification.malformed_intents VALUES ('8-0', NULL, NULL, NULL, 'invalid_recipients', 'no JSON', $1, now()),
            ('8-1', NULL, NULL, NULL, 'invalid_recipients', 'too long', $2, now())`,
    [JSON.stringify(raw), JSON.stringify({ recipient_user_ids_json: JSON.stringify(['x'.repeat(100_000)]) })],
  );
  expect((await operator.why('broken/1')).answers).toMatchObject([{ cause: 'refused', id: '8-0' }]);
});
