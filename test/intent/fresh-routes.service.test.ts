/** The statement that accepts: what it leaves alone, and what it hands to first attempts against what is read from the rows. */
import type { Audience } from '../../activities/intent/audience.ts';
import { insertRecords } from '../../activities/intent/decisions.ts';
import { loadSlice } from '../../activities/intent/route-rows.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import { holdKeyOf } from '../../workflows/intent/channel-contract.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { entryOf } from './entries.ts';
import { parseIntent } from './galaxy.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const SETTINGS = { catalog: GALAXY, budgets: { push: 3, email: 7 }, idempotencyTtlMs: 3_600_000 };

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());
afterEach(() => slot.db.query('DELETE FROM notification.holds'));

let count = 0;
function intentOf(fields: Parameters<typeof entryOf>[1], type: Parameters<typeof entryOf>[0]): Intent {
  count += 1;
  const parsed = parseIntent(`${count}-0`, entryOf(type, { idempotency_key: `fresh-${count}`, ...fields }));
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  return parsed.intent;
}

const USERS: Audience = {
  kind: 'user',
  recipients: [
    { userId: 'user-1', email: 'one@example.com', locale: 'en' },
    { userId: 'user-2', problem: 'its address is empty' },
  ],
};
const ADMINISTRATORS: Audience = { kind: 'admin_email', emails: ['one@example.com', 'two@example.com'] };
const toUsers = { recipient_user_ids_json: '["user-1","user-2"]' };

test.each([
  ['users', 'game.turn.ready', toUsers, USERS, []],
  [
    'users, with all that an intent may have',
    'game.turn.ready',
    {
      ...toUsers,
      request_id: 'request',
      trace_id: 'trace',
      traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      expires_at_ms: '1790000000001',
    },
    USERS,
    [],
  ],
  [
    'users, until the end of time',
    'lobby.invite.created',
    { ...toUsers, expires_at_ms: '253402300799999' },
    USERS,
    [],
  ],
  ['administrators', 'geo.review_recommended', {}, ADMINISTRATORS, []],
  ['nobody', 'game.generation_failed', {}, { kind: 'admin_email', emails: [] }, []],
  ['users, by a channel that is paused', 'game.turn.ready', toUsers, USERS, ['push']],
  ['users, of a producer that is paused', 'game.turn.ready', toUsers, USERS, ['producer:game_master']],
  ['users, while another producer is paused', 'game.turn.ready', toUsers, USERS, ['producer:game_lobby']],
] as const)(
  'I20 I21 first attempts know of routes to %s what their rows say',
  async (_, type, fields, audience, paused) => {
    for (const { kind, name } of paused.map(holdKeyOf))
      await slot.db.query(
        `INSERT INTO notification.holds (kind, name, is_paused, changed_at, changed_by, reason)
         VALUES ($1, $2, true, now(), 'nina', 'to be looked into')`,
        [kind, name],
      );
    const intent = intentOf(fields, type);
    await writeRows(slot.db, [intent]);
    const items = [{ intent, audience: audience as Audience }];
    const accepted = await insertRecords(slot.db, items, { ...SETTINGS, redis: slot.redis });

    const { fresh } = accepted.get(intent.notificationId)!;
    const loaded = await loadSlice(slot.db, { notificationId: intent.notificationId, offset: 0, limit: 99 });
    expect(loaded.length).toBeGreaterThan(0);
    // Rounded in another way, and counted from another moment.
    const withoutMoments = (rows: typeof loaded) =>
      rows
        .map((row) => ({
          ...row,
          next_attempt_at_ms: row.next_attempt_at_ms !== null,
          retry_in_ms: row.retry_in_ms !== null,
        }))
        .sort((a, b) => (a.route_id < b.route_id ? -1 : 1));
    expect(withoutMoments(fresh!())).toEqual(withoutMoments(loaded));
  },
);

test.each(['accepted', 'refused', 'duplicate', 'conflict', 'cancelled'])(
  'I9 I11 an intent that is decided as %s is not accepted by an attempt that has not looked',
  async (status) => {
    const intent = intentOf(toUsers, 'game.turn.ready');
    await writeRows(slot.db, [intent]);
    await slot.db.query(
      'UPDATE notification.intents SET status = $2, entry = NULL WHERE notification_id = $1',
      [...[intent.notificationId, status]],
    );
    const items = [{ intent, audience: USERS }];
    expect(await insertRecords(slot.db, items, { ...SETTINGS, redis: slot.redis })).toEqual(new Map());
  },
);
