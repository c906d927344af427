/** An urgent type while the service works on a backlog with all that it has; urgent.service.test.ts holds the backlog. */
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { append } from '../service-process.ts';
import { entryOf, turn } from './entries.ts';

const BACKLOG = 2_000;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterAll(() => slot.release());

test('I87 an urgent intent goes before a backlog that keeps all workers busy', async () => {
  await append(
    slot.redis,
    Array.from({ length: BACKLOG }, (_, n) =>
      turn({ idempotency_key: `other-${n}`, recipient_user_ids_json: `["user-${1 + n}"]` }),
    ),
  );
  await slot.startService({ NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: 'operator@example.com' });
  const records = async () =>
    (await slot.db.query<{ count: number }>('SELECT count(*)::int AS count FROM notification.records'))
      .rows[0]!.count;
  await eventually('the backlog to be worked on', async () => (await records()) > 0);
  const [id] = (await append(slot.redis, [
    entryOf('game.generation_failed', { idempotency_key: 'urgent' }),
  ])) as [string];
  await eventually('its e-mail', async () => {
    const { totals } = await operatorOf(slot).notifications.show(id);
    return totals['published'] === 1;
  });
  expect(await records()).toBeLessThan(BACKLOG);
});
