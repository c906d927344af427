/** A notification with more routes than one parent should have: in every mode only what is in trouble has workflows. */
import { MAX_CHILDREN_PER_PARENT, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { publishTurn } from './entries.ts';
import { eventually, slotOfTests } from '../harness.ts';

const RECIPIENTS = 150;
const USERS = Array.from({ length: RECIPIENTS }, (_, index) => `user-${index + 1}`);
const GATEWAY = 'gateway:client-events';
const MAIL = 'mail:delivery_commands';
const ALL_PUBLISHED = { outcome: 'accepted', published: 2 * RECIPIENTS, skipped: 0, deadLettered: 0 };

const slot = slotOfTests();
beforeAll(async () => {
  expect(2 * RECIPIENTS).toBeGreaterThan(MAX_CHILDREN_PER_PARENT);
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '3s',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '6s',
    // None is given up before a busy machine has made workflows for all of them.
    NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '20',
  });
});

async function publishLarge(idempotencyKey: string) {
  const id = await publishTurn(slot.redis, idempotencyKey, USERS);
  const handle = await eventually('the notification to be started', async () => {
    const started = slot.client.workflow.getHandle(notificationWorkflowId(id));
    return (await started.describe()) && started;
  });
  return { id, handle };
}

/** The streams stay: entries that are gone would be handed off again. */
async function expectEachOnce(id: string): Promise<void> {
  const delivered = async (stream: string, field: string) =>
    (await slot.redis.xrange(stream, '-', '+'))
      .map(([, fields]) => fields[fields.indexOf(field) + 1]!)
      .filter((key) => key.startsWith(`${id}/`));
  const pushes = await delivered(GATEWAY, 'event_id');
  const mails = await delivered(MAIL, 'delivery_id');
  expect(new Set([...pushes, ...mails]).size).toBe(2 * RECIPIENTS);
  expect(pushes).toHaveLength(RECIPIENTS);
  expect(mails).toHaveLength(RECIPIENTS);
}

const countOf = (id: string, type: string) => async () =>
  (await slot.client.workflow.count(`NotificationId = '${id}' AND WorkflowType = '${type}'`)).count;

test('I41 a large notification is published by itself, each route once, and its own history stays short', async () => {
  const { id, handle } = await publishLarge('large');
  expect(await handle.result()).toEqual(ALL_PUBLISHED);
  await expectEachOnce(id);
  expect((await handle.fetchHistory()).events!.length).toBeLessThan(40);
  expect(await countOf(id, 'notificationRoute')()).toBe(0);
});

test('I41 I22 routes of a large notification that are in trouble get workflows, and the others none', async () => {
  await slot.redis.set(GATEWAY, 'not a stream');
  const { id, handle } = await publishLarge('large-in-trouble');
  await eventually('all pushes to have workflows', async () => {
    return (await countOf(id, 'notificationRoute')()) === RECIPIENTS;
  });
  await slot.redis.del(GATEWAY);
  expect(await handle.result()).toEqual(ALL_PUBLISHED);
  await expectEachOnce(id);
  expect(await countOf(id, 'notificationRoute')()).toBe(RECIPIENTS);
  const { rows } = await slot.db.query<{ attempts: number }>(
    `SELECT DISTINCT attempt_count AS attempts FROM notification.routes
      WHERE notification_id = $1 AND route_id LIKE 'email:%'`,
    [id],
  );
  // What was published at first was not tried again.
  expect(rows).toEqual([{ attempts: 1 }]);
}, 300_000);
