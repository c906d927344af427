/** `users forget`: what is kept of a user goes from every kind of work, and no other user is touched. */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { findIntents } from '../../activities/intent/decisions.ts';
import { giveUp } from '../../activities/intent/entries.ts';
import type { NotificationType } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { OUTCOMES_STREAM, isTerminal } from '../../api/intent/outcome.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { newGeoReviewRecommended, publishIntent } from '../../client/notificationintent.ts';
import { createOperator } from '../../client/operator.ts';
import type { Forgotten } from '../../client/forget.ts';
import { readEntries } from '../../client/places.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import { PLANTS, plantCauses, plantedUser } from '../../dev/planted-causes.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import {
  HOUR,
  NOON_YESTERDAY,
  benchOfTests,
  hour,
  inputsTaken,
  track,
} from '../account-callback/callbacks.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOfTests, resourcesOf, slotOfTests } from '../harness.ts';
import { TURN, accepted, entryOf, turnIntent } from '../intent/entries.ts';
import { acceptRows, endOf, toldOf } from '../intent/rows.ts';
import { forgottenKeyOf, placesWith, rowsOfAll } from '../kept.ts';
import { mobileOfTests } from '../mobile-push/jobs.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';

const INTENTS = 'notification:intents';
const REQUEST = { requestedBy: 'nina', reason: 'request 4711' };

/** What keeps a user from being forgotten. */
const UNDER_WAY = new Set([
  'waiting_for_attempt',
  'replayed',
  'retrying',
  'overdue',
  'channel_paused',
  'producer_paused',
  'waiting_for_acceptance',
  'push_waiting',
]);

describe('rows', () => {
  const slot = slotOfTests();
  const cli = cliOfTests(slot);
  const operator = operatorOfTests(slot);
  beforeAll(async () => {
    await createDeviceTokens(slot.ownerDsn, { samples: false });
    await plantCauses(slot.db, 2);
  });

  const rowsWith = async (text: string) => (await rowsOfAll(slot.db)).filter(({ row }) => row.includes(text));

  test.each(PLANTS.map(({ cause }) => cause).filter((cause) => !UNDER_WAY.has(cause)))(
    'I79 %s is forgotten of one user, and stays of another',
    async (cause) => {
      const [one, other] = [plantedUser(cause, 1), plantedUser(cause, 2)];
      const before = await rowsWith(other);
      const preview = await operator.users.preview({ userId: one });
      expect(preview.underWay).toEqual([]);
      const forgotten = await operator.users.forget({ userId: one }, REQUEST);
      expect(forgotten.removed.length).toBeGreaterThan(0);
      expect(forgotten.removed).toEqual(preview.removed);
      expect(await rowsWith(one)).toEqual([]);
      expect(await rowsWith(other)).toEqual(before);
      expect((await operator.users.forget({ userId: one }, REQUEST)).removed).toEqual([]);
      // Until its retention, a hash of the id says that it was forgotten, and who asked for that.
      const { rows } = await slot.db.query(
        `SELECT requested_by, reason, removed FROM notification.forgotten_users
          WHERE user_sha256 = encode(sha256(convert_to($1, 'UTF8')), 'hex')`,
        [one],
      );
      const removed = Object.fromEntries(forgotten.removed.map(({ what, count }) => [what, count]));
      expect(rows).toMatchObject([{ requested_by: 'nina', reason: 'request 4711', removed }]);
    },
  );

  test.each([...UNDER_WAY])('I79 nothing is done while there is %s', async (cause) => {
    const one = plantedUser(cause as never, 1);
    const before = await rowsOfAll(slot.db);
    expect((await operator.users.preview({ userId: one })).underWay).toHaveLength(1);
    await expect(operator.users.forget({ userId: one }, REQUEST)).rejects.toThrow(/^nothing was done/);
    expect(await rowsOfAll(slot.db)).toEqual(before);
  });

  test('I79 the command refuses what is under way, asks before, and changes nothing with --read-only', async () => {
    const forget = (userId: string, ...more: string[]) => cli.cli(['users', 'forget', userId, ...more]);
    const waits = plantedUser('retrying', 1);
    const refused = await forget(waits, '--yes');
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toMatch(/notification \S+ has routes that will still be tried/);
    expect((await forget(waits, '--dry-run')).code).toBe(1);
    const other = plantedUser('published', 2);
    expect((await forget(other)).stderr).toContain('add --yes, or --dry-run to look');
    expect((await forget(other, '--yes', '--read-only')).code).toBe(2);
    expect(await rowsWith(other)).not.toEqual([]);
    const unknown = await forget('user-unknown', '--yes');
    expect(unknown).toMatchObject({ code: 3, stdout: expect.stringContaining('What stays') as string });
  });

  const intentTo = (
    users: string[],
    notificationId: string,
    type: NotificationType,
    payload: object,
  ): Intent => ({
    ...accepted(
      entryOf(type, {
        ...{ recipient_user_ids_json: JSON.stringify(users), payload_json: JSON.stringify(payload) },
        ...{ idempotency_key: `${users[0]}/42/${notificationId}`, request_id: 'turn-42' },
      }),
    ),
    notificationId,
  });

  /** Accepts an intent, all of whose routes stand as `status` says. */
  async function plantIntent(intent: Intent, status: 'pending' | 'published' | 'dead_letter'): Promise<void> {
    await writeRows(slot.db, [intent]);
    await acceptRows(slot, [intent]);
    await slot.db.query(
      `UPDATE notification.routes
          SET status = $2, next_attempt_at = CASE $2 WHEN 'pending' THEN now() END,
              published_at = CASE $2 WHEN 'published' THEN now() END,
              dead_lettered_at = CASE $2 WHEN 'dead_letter' THEN now() END
        WHERE notification_id = $1`,
      [intent.notificationId, status],
    );
  }

  test('intent-3 a message that another user still waits for, or may get by a replay, keeps its text', async () => {
    const invitation = { game_id: '42', game_name: 'Vega', inviter_name: 'Bob', inviter_user_id: '42' };
    const ofStranger = { game_id: '42', game_name: 'Bob', turn_number: 7 };
    for (const [n, [type, payload, status]] of (
      [
        ['lobby.invite.created', invitation, 'pending'],
        ['lobby.invite.created', invitation, 'dead_letter'],
        ['lobby.invite.created', invitation, 'published'],
        [TURN, ofStranger, 'pending'],
        [TURN, { ...ofStranger, game_name: 'Orion' }, 'published'],
      ] as const
    ).entries())
      await plantIntent(intentTo(['carol'], `4242-${n}`, type, payload), status);
    const records = async () => {
      const { rows } = await slot.db.query<{ id: string; payload: string; key: string; request: string }>(
        `SELECT notification_id AS id, payload_json AS payload, idempotency_key AS key, request_id AS request
           FROM notification.records WHERE notification_id LIKE '4242-%' ORDER BY 1`,
      );
      return rows;
    };
    const before = await records();
    const bob = { userId: '42', also: ['Bob'] };
    expect((await operator.users.preview(bob)).underWay).toEqual([
      expect.stringMatching(/^notification 4242-0 has routes that will still be tried/),
    ]);
    await slot.db.query("DELETE FROM notification.records WHERE notification_id = '4242-0'");

    const { removed, remains } = await operator.users.forget(bob, REQUEST);
    expect(removed).toEqual([
      { what: 'notification.records', count: 1 },
      { what: 'notification.intents', count: 1 },
    ]);
    expect(remains.map(({ what }) => what)).toContain(
      '1 records of messages to others that name the user and are dead-lettered',
    );
    const [, dead, published, ...ofStrangers] = before;
    const forgotten = { ...invitation, inviter_name: 'forgotten', inviter_user_id: 'forgotten' };
    const payload = JSON.stringify(forgotten);
    const emptied = { id: '4242-2', payload, key: forgottenKeyOf(published!.key), request: null };
    expect(await records()).toEqual([dead, emptied, ...ofStrangers]);
  });

  test('intent-11 an entry for several people, read again after one of them was forgotten, is known', async () => {
    const all = ['4343-0', '4343-1', '4343-2'].map((id) =>
      intentTo(['gone', 'stays'], id, TURN, { game_id: 'g', game_name: 'n', turn_number: 1 }),
    );
    const [delivered, refused, cancelled] = all as [Intent, Intent, Intent];
    await plantIntent(delivered, 'published');
    await writeRows(slot.db, [refused, cancelled]);
    await slot.db.query(
      `INSERT INTO notification.malformed_intents (stream_entry_id, notification_type, producer, idempotency_key,
              failure_code, failure_message, raw_fields, recorded_at)
       VALUES ($1, $2, $3, $4, 'recipient_not_found', 'unknown',
               jsonb_build_object('recipient_user_ids_json', '["gone","stays"]', 'idempotency_key', $4::text), now())`,
      [refused.notificationId, refused.notificationType, refused.producer, refused.idempotencyKey],
    );
    for (const [status, intent] of Object.entries({ refused, cancelled }))
      await slot.db.query(
        `UPDATE notification.intents
            SET status = $2, recipient_user_ids = CASE $2 WHEN 'cancelled' THEN entry -> 'recipientUserIds' END,
                reason = CASE $2 WHEN 'refused' THEN 'recipient_not_found' END, entry = NULL
          WHERE notification_id = $1`,
        [intent.notificationId, status],
      );
    await operator.users.forget({ userId: 'gone' }, REQUEST);

    // The same entries, read again.
    await writeRows(slot.db, all);
    const ids = all.map(({ notificationId }) => notificationId);
    const found = await findIntents(slot.db, ids);
    expect(ids.map((id) => found.get(id)?.decision?.outcome)).toEqual([
      ...['accepted', 'recipient_not_found', 'cancelled'],
    ]);
    expect((await rowsWith('gone')).filter(({ table }) => table === 'notification.intents')).toEqual([]);
    // A refused intent is not cancelled.
    expect(await giveUp(slot.db, refused.notificationId)).toBe(false);
  });

  test('security-5 large entries are looked at a few at a time, and the last possible id ends the look', async () => {
    const stream = 'hostile';
    for (let n = 1; n <= 10; n += 1)
      await slot.redis.xadd(stream, `${n}-0`, 'user_id', 'carol', 'text', 'x'.repeat(1 << 20));
    await slot.redis.xadd(stream, '18446744073709551615-18446744073709551615', 'user_id', 'carol');
    const steps: string[][] = [];
    const read = (after: string) => readEntries(slot.redis, stream, after, 'carol', ['user_id', 'text']);
    for (let after: string | undefined = '0-0'; after !== undefined;) {
      const { last, entries }: Awaited<ReturnType<typeof read>> = await read(after);
      steps.push(entries.map(({ id }) => id));
      // A value that is too long is left out.
      expect(new Set(entries.map(({ fields }) => JSON.stringify(fields)))).toEqual(
        new Set(['{"user_id":"carol"}']),
      );
      after = last;
    }
    expect(steps).toEqual([
      ['1-0', '2-0', '3-0', '4-0'],
      ['5-0', '6-0', '7-0', '8-0'],
      ['9-0', '10-0', '18446744073709551615-18446744073709551615'],
    ]);
    await slot.redis.del(stream);
  });

  test('I79 an id that is part of others, or has characters with a meaning, touches none of them', async () => {
    await slot.db.query(`
      INSERT INTO notification.callback_trackings
      SELECT id, 0, '1-0', NULL, false, '2026-01-01', '2026-01-01', now()
        FROM unnest(ARRAY['a.c', 'abc', 'a.c.d', '%']) AS id;
      INSERT INTO notification.malformed_account_inputs
      SELECT id || '-0', 'c', 'm', jsonb_build_object('payload', jsonb_build_object('user_id', id)::text), now()
        FROM unnest(ARRAY['a.c', 'abc', 'a.c.d', 'x"(y\\']) AS id`);
    const left = async () =>
      (
        await slot.db.query<{ id: string }>(
          `SELECT user_id AS id FROM notification.callback_trackings WHERE user_id ~ '^(a|%)' UNION ALL
           SELECT stream_entry_id FROM notification.malformed_account_inputs ORDER BY 1`,
        )
      ).rows.map(({ id }) => id);
    await operator.users.forget({ userId: 'a.c' }, REQUEST);
    await operator.users.forget({ userId: '%' }, REQUEST);
    await operator.users.forget({ userId: 'x"(y\\' }, REQUEST);
    expect(await left()).toEqual(['a.c.d', 'a.c.d-0', 'abc', 'abc-0']);
    await expect(operator.users.forget({ userId: ' ' }, REQUEST)).rejects.toThrow('must not be empty');
  });
});

describe('a running service', () => {
  const planted = (id: string) => {
    const own = { id, address: `${id}@example.com`, token: `token of ${id}`, name: `Name of ${id}` };
    return { ...own, texts: Object.values(own) };
  };
  type Planted = ReturnType<typeof planted>;
  const [ONE, ANOTHER] = [planted('planted-user'), planted('second-user')];
  /** What is for others, too, or tells administrators about the user. */
  const OF_OTHERS = [MAIL, INTENTS];
  const STAYS = 'other-user';

  const slot = slotOfTests();
  const cli = cliOfTests(slot);
  const operator = operatorOfTests(slot);
  const mobile = mobileOfTests(slot);
  const bench = benchOfTests(slot);
  beforeAll(async () => {
    for (const { id, address } of [ONE, ANOTHER])
      slot.userService.setUser(id, { email: address, preferredLanguage: 'en' });
    slot.userService.setUser(STAYS, { email: 'other@example.com', preferredLanguage: 'en' });
    await bench.startService({
      NOTIFICATION_ROLES: 'intent,mobile-push,account-callback',
      NOTIFICATION_OUTCOMES: 'all',
      NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED: 'boss@example.com',
    });
  });

  const turnFor = (key: string, name: string, ...users: string[]) =>
    publishIntent(slot.redis, {
      ...turnIntent(key, users, { game_name: name }),
      requestId: `request/${key}`,
    });

  /** Something of each kind, for this user and another one. */
  async function plant({ id: gone, address, token: ownToken, name }: Planted) {
    const own = await turnFor(`turn/${gone}/1`, name, gone);
    const shared = await turnFor(`shared/${randomUUID()}`, 'G', gone, STAYS);
    const review = await publishIntent(
      slot.redis,
      newGeoReviewRecommended({
        ...{ idempotencyKey: `review/${randomUUID()}`, occurredAt: Date.now() },
        payload: {
          ...{ user_id: gone, user_email: address, observed_country: 'DE' },
          ...{ usual_connection_country: 'FR', review_reason: 'far away' },
        },
      }),
    );
    // Refused, with the user named by it.
    await slot.redis.xadd(INTENTS, '*', 'recipient_user_ids_json', `["${gone}"]`, 'idempotency_key', gone);
    await slot.redis.xadd(INTENTS, '*', 'recipient_user_ids_json', `["${STAYS}","${gone}"]`);
    const tokens = 'INSERT INTO public.device_token ("userId", token) VALUES ($1, $2), ($3, $4)';
    await slot.db.query(tokens, [gone, ownToken, STAYS, 'other-token']);
    const jobs: string[] = [];
    for (const userId of [gone, STAYS]) {
      jobs.push(await mobile.publishTo(userId));
      jobs.push(await mobile.publish({ payload: JSON.stringify({ userId, title: 't' }) }));
    }
    const fromMs = NOON_YESTERDAY - 2 * HOUR;
    await appendInputs(
      slot.redis,
      [gone, STAYS].flatMap((user) => [track(user, fromMs), hour(user, fromMs)]),
    );
    const malformed = JSON.stringify({ kind: 'x', user_id: gone });
    await slot.redis.xadd('stream.account.extremes', '*', 'payload', malformed);
    for (const id of [own, shared, review]) await endOf(slot, id);
    for (const id of jobs) await mobile.settled(id);
    await inputsTaken(slot.redis);
    await bench.runNow();
    await bench.settled();
    await eventually('jobs to be acknowledged', async () => (await mobile.pending()) === 0);
    await eventually(
      'the offset to pass all',
      async () => (await operator.users.preview({ userId: gone })).underWay.length === 0,
    );
    return { own, shared, review };
  }

  /** What anybody but the user has. */
  async function othersHave() {
    const rows = (await rowsOfAll(slot.db)).filter(
      ({ row }) => row.includes(STAYS) || row.includes('other-token'),
    );
    const routes = rows.filter(({ table }) => !/records|malformed|outcomes/.test(table));
    const entries = await Promise.all([GATEWAY, MAIL].map((stream) => slot.redis.xrange(stream, '-', '+')));
    return {
      routes,
      entries: entries.flat().filter(([, fields]) => fields.some((field) => field.includes(STAYS))),
    };
  }

  test('I79 everything that PostgreSQL and Redis have of a user goes; others keep theirs, and a key stays reserved', async () => {
    const { id: gone, texts, name } = ONE;
    const { own, shared, review } = await plant(ONE);
    expect(await placesWith(slot, texts)).toEqual(
      expect.arrayContaining([
        ...['records', 'routes', 'malformed_intents', 'outcomes'].map((name) => `notification.${name}`),
        ...['callback_snapshots', 'callback_trackings'].map((name) => `notification.${name}`),
        ...['notification.malformed_account_inputs', 'notifications.notification_log', 'public.device_token'],
        ...[INTENTS, GATEWAY, MAIL, OUTCOMES_STREAM, 'stream.notifications.jobs', 'stream.account.extremes'],
      ]),
    );
    const before = await othersHave();

    const forget = ['users', 'forget', gone, '--also', name];
    const dry = await cli.json<Forgotten>([...forget, '--dry-run']);
    expect(dry.code).toBe(0);
    expect(await othersHave()).toEqual(before);
    expect(await placesWith(slot, texts)).toContain(GATEWAY);
    const done = await cli.json<Forgotten>([...forget, '--yes', '--requested-by', 'nina']);
    expect(done.code).toBe(0);
    expect(done.value.removed.map(({ what }) => what).sort()).toEqual(
      dry.value.removed.map(({ what }) => what).sort(),
    );
    expect(done.value.remains.map(({ what }) => what)).toEqual(
      expect.arrayContaining([
        expect.stringContaining(`Temporal's namespace ${namespaceOf(slot.slot)}`),
        expect.stringMatching(/^3 entries of notification:intents/),
        expect.stringMatching(/^1 entries of mail:delivery_commands/),
      ]),
    );

    expect(await placesWith(slot, texts)).toEqual(OF_OTHERS);
    expect(await othersHave()).toEqual(before);
    expect((await toldOf(slot, shared)).filter(isTerminal)).toHaveLength(1);
    expect(await operator.notifications.show(shared)).toMatchObject({
      record: { recipientUserIds: [STAYS], payload: { game_id: 'g', game_name: 'G', turn_number: 1 } },
      totals: { published: 2 },
    });
    expect((await operator.notifications.show(own)).record?.payload).toEqual({});
    expect((await operator.notifications.show(review)).record?.payload).toMatchObject({
      ...{ user_id: 'forgotten', user_email: 'forgotten', observed_country: 'DE' },
    });

    const again = await cli.cli([...forget, '--yes']);
    expect(again).toMatchObject({ code: 3 });
    expect(again.stderr).toContain(`nothing that can go is kept of ${gone}`);

    // It names the user again, and sends nothing.
    const repeat = await turnFor(`turn/${gone}/1`, name, gone);
    await endOf(slot, repeat);
    expect((await operator.notifications.show(repeat)).duplicateOf).toBe(own);
    expect(await othersHave()).toEqual(before);
    await operator.users.forget({ userId: gone }, REQUEST);
    expect(await placesWith(slot, texts)).toEqual(OF_OTHERS);
  }, 120_000);

  test('I79 a forgetting that is cut off at any of its statements ends with the next one', async () => {
    await plant(ANOTHER);
    for (let statements = 1; ; statements += 3) {
      let left = statements;
      const db = {
        query: (...args: unknown[]) => {
          if ((left -= 1) < 0) throw new Error('cut off');
          return (slot.db.query as (...given: unknown[]) => unknown)(...args);
        },
      } as unknown as Pool;
      const isDone = await createOperator({ ...resourcesOf(slot), db })
        .users.forget({ userId: ANOTHER.id, also: [ANOTHER.name, ANOTHER.address] }, REQUEST)
        .catch((error: Error) => error.message !== 'cut off' && Promise.reject(error));
      if (isDone) break;
      expect(statements).toBeLessThan(500);
    }
    expect(await placesWith(slot, ANOTHER.texts)).toEqual(OF_OTHERS);
  }, 180_000);
});
