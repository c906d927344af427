/** Mode `on_failure`: a notification makes first attempts in the step that accepts it, and otherwise in a separate step. */
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { publishTurn } from './entries.ts';

let slot: Slot;

beforeAll(async () => {
  slot = await takeSlot();
  await slot.startService({ NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
});
afterAll(() => slot.release());

const DELIVERED = { outcome: 'accepted', published: 2, skipped: 0, deadLettered: 0 };

async function notificationOf(id: string) {
  const handle = slot.client.workflow.getHandle(notificationWorkflowId(id));
  await eventually(`${id} to be started`, () => handle.describe());
  return handle;
}

async function historyOf(id: string) {
  const { events } = await (await notificationOf(id)).fetchHistory();
  return events ?? [];
}

async function statusesOf(id: string): Promise<string[]> {
  const { rows } = await slot.db.query<{ status: string }>(
    'SELECT status FROM notification.routes WHERE notification_id = $1',
    [id],
  );
  return rows.map(({ status }) => status);
}

test('I21 the first attempts of a new intent are part of its acceptance: one local activity', async () => {
  const id = await publishTurn(slot.redis, 'at-once');
  expect(await (await notificationOf(id)).result()).toEqual(DELIVERED);
  const markers = (await historyOf(id)).filter((event) => event.markerRecordedEventAttributes);
  expect(markers).toHaveLength(1);
});

test('I21 intents that are read together are begun by the process that has read them', async () => {
  const ids = await Promise.all(
    Array.from({ length: 60 }, (_, index) => publishTurn(slot.redis, `together-${index}`)),
  );
  for (const id of ids) expect(await (await notificationOf(id)).result()).toEqual(DELIVERED);
  const started = await Promise.all(ids.map(async (id) => (await historyOf(id))[0]));
  const eager = started.map(
    (event) => event?.workflowExecutionStartedEventAttributes?.eagerExecutionAccepted,
  );
  expect(eager).toEqual(ids.map(() => true));
});

test('I21 what is accepted and whose attempts could not be written down is delivered when that can be done, once', async () => {
  await slot.db.query(`
    CREATE FUNCTION notification.refuse_change() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available'; END $$;
    CREATE TRIGGER not_now BEFORE UPDATE ON notification.routes
      FOR EACH ROW EXECUTE FUNCTION notification.refuse_change()`);
  const id = await publishTurn(slot.redis, 'later');
  // The routes of such a notification get their own workflows.
  const push = slot.client.workflow.getHandle(routeWorkflowId(id, 'push:user:user-1'));
  await eventually('the routes to wait', () => push.describe());
  expect(await statusesOf(id)).toEqual(['pending', 'pending']);
  await slot.db.query('DROP FUNCTION notification.refuse_change() CASCADE');
  expect(await (await notificationOf(id)).result()).toEqual(DELIVERED);
  const entries = await slot.redis.xrange('gateway:client-events', '-', '+');
  expect(entries.filter(([, fields]) => fields.join(' ').includes(id))).toHaveLength(1);
});
