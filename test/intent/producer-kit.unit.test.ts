/** The stream in memory for the tests of producers. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { createMemoryStream, expectPublished } from '../../client/testing.ts';

const turn = (idempotencyKey = 'one', turnNumber = 54) =>
  newGameTurnReady({
    idempotencyKey,
    occurredAt: 1_790_000_000_000,
    recipientUserIds: ['user-2', 'user-1'],
    payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: turnNumber },
  });

test('I71 what was published is found, and repeats are left aside', async () => {
  const stream = createMemoryStream();
  for (const key of ['one', 'two', 'one']) await publishIntent(stream, turn(key));
  const found = expectPublished(stream, {
    type: 'game.turn.ready',
    idempotencyKey: 'one',
    recipientUserIds: ['user-1', 'user-2'],
    payload: { turn_number: 54, game_name: 'Andromeda', game_id: 'game-7' },
  });
  expect(found).toEqual(turn('one'));
  expect(stream.published.map(({ notificationId, isDuplicate }) => [notificationId, isDuplicate])).toEqual([
    ['1-0', false],
    ['2-0', false],
    ['3-0', true],
  ]);
});

test('I71 what was not published fails, with a list of what was', async () => {
  const stream = createMemoryStream();
  for (const key of ['one', 'two']) await publishIntent(stream, turn(key));
  for (const expected of [
    { type: 'game.finished' as const },
    { idempotencyKey: 'three' },
    { recipientUserIds: ['user-1'] },
    { payload: { game_id: 'game-7' } },
    {}, // two are as expected, and it should be one
  ]) {
    expect(() => expectPublished(stream, expected)).toThrow(
      /^expected one intent .* among 2 published:\n {2}1-0 .*"one".*\n {2}2-0 .*"two"/,
    );
  }
});

test('newcomer-3 a conflict names the fields that differ, and not what they hold', async () => {
  const stream = createMemoryStream();
  const first = turn();
  await publishIntent(stream, first);
  const others = { occurredAtMs: first.occurredAtMs + 1, recipientUserIds: ['somebody-else'] };
  await expect(publishIntent(stream, { ...first, ...others })).rejects.toThrow(
    'came before, as 1-0, with other content (recipient_user_ids_json, occurred_at_ms)',
  );
  await expect(publishIntent(stream, turn('one', 55))).rejects.toThrow('with other content (payload_json)');
});

test('I71 it refuses what the service refuses', async () => {
  const stream = createMemoryStream();
  await publishIntent(stream, turn());
  await expect(publishIntent(stream, turn('one', 55))).rejects.toMatchObject({
    name: 'InvalidIntentError',
    code: 'idempotency_conflict',
    field: 'idempotency_key',
  });
  await expect(publishIntent(stream, turn('one', 55), { stream: 'other' })).resolves.toBe('2-0');
  await expect(stream.xadd('s', '*', 'notification_type', 'game.turn.ready')).rejects.toMatchObject({
    code: 'invalid_envelope',
    field: 'producer',
  });
  await expect(
    stream.xadd('s', '*', 'notification_type', 'a', 'notification_type', 'b'),
  ).rejects.toMatchObject({
    field: 'notification_type',
  });
  for (const command of [
    ['MAXLEN', '~', '10', '*', 'a', 'b'],
    ['*', 'a'],
    ['1-0', 'a', 'b'],
  ]) {
    const xadd = stream.xadd as (stream: string, ...given: string[]) => Promise<unknown>;
    await expect(xadd('s', ...command)).rejects.toThrow('producers use a plain XADD');
  }
  expect(stream.published).toHaveLength(2);
});

test('I71 a failure of Redis is the callers', async () => {
  const stream = createMemoryStream();
  stream.failNext(new Error('connection refused'));
  await expect(publishIntent(stream, turn())).rejects.toThrow('connection refused');
  await expect(publishIntent(stream, turn())).resolves.toBe('1-0');
});
