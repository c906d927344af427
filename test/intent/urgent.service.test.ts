/** Urgent types behind a backlog, in each way of working intents off. */
import type { NotificationType } from '../../api/intent/catalog.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, operatorOf, takeSlot } from '../harness.ts';
import { MAIL, append } from '../service-process.ts';
import type { Changes } from './entries.ts';
import { entryOf, turn } from './entries.ts';

const ADMINISTRATOR = 'operator@example.com';
const ENV = {
  NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: ADMINISTRATOR,
  NOTIFICATION_ADMIN_EMAILS_RUNTIME_IMAGE_PULL_FAILED: ADMINISTRATOR,
  // Lookups are held for longer than by default.
  NOTIFICATION_USER_SERVICE_TIMEOUT: '1m',
};
/** More than are begun while no lookup is answered. */
const BACKLOG = 200;
const WAYS = [
  { way: 'child', env: { NOTIFICATION_ROUTE_DISPATCH: 'child' } },
  { way: 'on_failure', env: { NOTIFICATION_ROUTE_DISPATCH: 'on_failure' } },
  { way: 'direct', env: { NOTIFICATION_ROUTE_DISPATCH: 'direct' } },
];

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

const failed = (key: string, type: NotificationType = 'game.generation_failed', changes: Changes = {}) =>
  entryOf(type, { idempotency_key: key, ...changes });

const fill = (count: number): Promise<string[]> =>
  append(
    slot.redis,
    Array.from({ length: count }, (_, n) =>
      turn({ idempotency_key: `other-${n}`, recipient_user_ids_json: `["user-${1 + n}"]` }),
    ),
  );

const recordsOf = async (where = 'true', values: unknown[] = []): Promise<number> =>
  (
    await slot.db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM notification.records WHERE ${where}`,
      values,
    )
  ).rows[0]!.count;

/** Those of e-mails to the administrator. */
async function mailed(): Promise<string[]> {
  const entries = await slot.redis.xrange(MAIL, '-', '+');
  return entries.flatMap(([, fields]) => {
    const [id, route] = fields[fields.indexOf('delivery_id') + 1]!.split('/') as [string, string];
    return route === `email:email:${ADMINISTRATOR}` ? [id] : [];
  });
}

const isMailed = (id: string | undefined) => async () => (await mailed()).includes(id!);

test.each(WAYS)('I87 an urgent intent goes before a backlog: $way', async ({ way, env }) => {
  const lookups = holdAnswers();
  slot.userService.fail({ failure: lookups.failure });
  await fill(BACKLOG);
  await slot.startService({ ...ENV, ...env });
  await lookups.arrived;
  const [id] = await append(slot.redis, [failed('urgent', 'runtime.image_pull_failed')]);

  await eventually('the e-mail', isMailed(id));
  expect(await recordsOf()).toBe(1);
  lookups.release();
  if (way === 'direct') return;
  // It is a workflow as any other, which finds what was done.
  const workflow = slot.client.workflow.getHandle(notificationWorkflowId(id!));
  const outcome = await eventually('its workflow to end', () => workflow.result());
  expect(outcome).toEqual({ outcome: 'accepted', published: 1, skipped: 1, deadLettered: 0 });
  expect(await mailed()).toEqual([id]);
});

test.each(WAYS)(
  'I9 I87 of two intents with one key the earlier is decided first, and be the later one urgent: $way',
  async ({ env }) => {
    const lookups = holdAnswers();
    slot.userService.fail({ failure: lookups.failure });
    const [earlier] = await append(slot.redis, [turn({ idempotency_key: 'one' })]);
    await fill(50);
    const [later, first, second, last] = await append(slot.redis, [
      failed('one'),
      failed('two'),
      failed('two', 'game.generation_failed', { occurred_at_ms: '1775121700001' }),
      failed('three'),
    ]);
    await slot.startService({ ...ENV, ...env });

    await eventually('the others', async () => (await mailed()).length === 2);
    expect((await mailed()).sort()).toEqual([first, last]);
    lookups.release();
    await eventually('both to be refused', async () => {
      const { rows } = await slot.db.query<{ id: string; with: string }>(
        `SELECT stream_entry_id AS id, conflicts_with AS with
           FROM notification.malformed_intents WHERE failure_code = 'idempotency_conflict' ORDER BY 1`,
      );
      return JSON.stringify(rows) ===
        JSON.stringify([
          { id: later, with: earlier },
          { id: second, with: first },
        ])
        ? rows
        : undefined;
    });
    expect((await mailed()).sort()).toEqual([first, last]);
  },
);

test('I6 I87 a malformed urgent entry is recorded in its turn, and holds up none behind it', async () => {
  const lookups = holdAnswers();
  slot.userService.fail({ failure: lookups.failure });
  await fill(50);
  const [bad, good] = await append(slot.redis, [
    failed('bad', 'game.generation_failed', { payload_json: '{' }),
    failed('good'),
  ]);
  await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
  await eventually('the e-mail', isMailed(good));
  lookups.release();
  await eventually('the row', async () => {
    const { rows } = await slot.db.query<{ id: string }>(
      'SELECT stream_entry_id AS id FROM notification.malformed_intents',
    );
    return rows[0]?.id === bad;
  });
});

test('I85 I87 what an urgent type publishes waits as well while its producer is paused', async () => {
  await slot.startService(ENV);
  const operator = operatorOf(slot);
  await operator.producers.pause('runtime_manager', { requestedBy: 'nina' });
  await fill(10);
  const [id] = await append(slot.redis, [failed('urgent', 'runtime.image_pull_failed')]);
  await eventually('it to be accepted', async () => (await recordsOf('notification_id = $1', [id])) === 1);
  await eventually('its route to wait', async () => {
    const producers = await operator.producers.list();
    return producers.some(({ producer, openRoutes }) => producer === 'runtime_manager' && openRoutes === 1);
  });
  expect(await mailed()).toEqual([]);
  await operator.producers.resume('runtime_manager', { requestedBy: 'nina', ratePerSecond: 100 });
  await eventually('the e-mail', isMailed(id));
});

test('I14 I87 an urgent intent without administrators leaves a skipped route', async () => {
  await slot.startService();
  const [id] = await append(slot.redis, [failed('urgent')]);
  await eventually('its record', async () => (await recordsOf('notification_id = $1', [id])) === 1);
  const { rows } = await slot.db.query('SELECT status FROM notification.routes WHERE notification_id = $1', [
    id,
  ]);
  expect(rows).toEqual([{ status: 'skipped' }]);
});
