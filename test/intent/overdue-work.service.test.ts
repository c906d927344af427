/** Which routes are overdue, without a service (activities/intent/reconciliation.ts). */
import { intentReconciliation } from '../../activities/intent/reconciliation.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());

/** As a process of the role looks for them. */
async function isWorkOverdue(): Promise<boolean> {
  const { db, redis } = slot;
  const [routes] = intentReconciliation({ db, redis } as Parameters<typeof intentReconciliation>[0]);
  return (await routes!.page(undefined, 1)).length > 0;
}

/** Routes of a producer that were due so many minutes ago. */
async function plantOverdue(producer: string, minutes: number, count: number): Promise<void> {
  await slot.db.query(
    `INSERT INTO notification.records (notification_id, notification_type, producer, audience_kind, recipient_user_ids,
       payload_json, idempotency_key, request_fingerprint, occurred_at, accepted_at, updated_at, idempotency_expires_at)
     SELECT $1 || n, 'game.turn.ready', $1, 'user', '["u"]', '{}', $1 || n, 'f', now(), now(), now(), now() + interval '1 day'
       FROM generate_series(1, $2::int) AS n`,
    [producer, count],
  );
  await slot.db.query(
    `INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
       created_at, updated_at, next_attempt_at)
     SELECT notification_id, 'push:user:u', 'push', 'user:u', 'pending', 3, now(), now(), now() - $2::int * interval '1 minute'
       FROM notification.records WHERE producer = $1`,
    [producer, minutes],
  );
}

test('intent-8 work is found behind more held routes than a page has', async () => {
  await slot.db.query(
    "INSERT INTO notification.holds (kind, name, is_paused, changed_by, changed_at) VALUES ('producer', 'game_master', true, 'test', now())",
  );
  await plantOverdue('game_master', 60, 600);
  expect(await isWorkOverdue()).toBe(false);
  await plantOverdue('lobby', 10, 1);
  expect(await isWorkOverdue()).toBe(true);
});
