/** The statement that accepts: what it leaves alone, and which routes it names for first attempts. */
import type { Audience } from '../../activities/intent/audience.ts';
import { insertRecords } from '../../activities/intent/decisions.ts';
import { loadSlice, nameOf } from '../../activities/intent/route-rows.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { writeRows } from '../../dev/intent-rows.ts';
import { slotOfTests } from '../harness.ts';
import { accepted, entryOf } from './entries.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';

const SETTINGS = { catalog: GALAXY, budgets: { push: 3, email: 7 }, idempotencyTtlMs: 3_600_000 };

const slot = slotOfTests();

let made = 0;
function intentOf(fields: Parameters<typeof entryOf>[1], type: Parameters<typeof entryOf>[0]): Intent {
  made += 1;
  const entry = entryOf(type, { idempotency_key: `fresh-${made}`, ...fields });
  return { ...accepted(entry), notificationId: `${made}-0` };
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
  ['users', 'game.turn.ready', toUsers, USERS, 3],
  ['administrators', 'geo.review_recommended', {}, ADMINISTRATORS, 2],
  ['nobody', 'game.generation_failed', {}, { kind: 'admin_email', emails: [] }, 0],
] as const)(
  'I20 I21 acceptance names the routes to %s that are to be published',
  async (_, type, fields, audience, count) => {
    const intent = intentOf(fields, type);
    await writeRows(slot.db, [intent]);
    const items = [{ intent, audience: audience as Audience }];
    const { toPublish } = (await insertRecords(slot.db, items, { ...SETTINGS, redis: slot.redis })).get(
      intent.notificationId,
    )!;
    const slice = { notificationId: intent.notificationId, offset: 0, limit: 99 };
    const pending = (await loadSlice(slot.db, slice)).filter(({ status }) => status === 'pending');
    expect(pending).toHaveLength(count);
    expect(toPublish.map(nameOf).sort()).toEqual(pending.map(nameOf).sort());
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
