/** A notification with more routes than one parent should have: in every mode only what is in trouble has workflows. */
import { MAX_CHILDREN_PER_PARENT, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { GATEWAY, deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { countOf, resultOf, usersUpTo } from './rows.ts';

const RECIPIENTS = 150;

const slot = slotOfTests();

test('I41 I22 routes of a large notification that are in trouble get workflows, the others none, and its own history stays short', async () => {
  expect(2 * RECIPIENTS).toBeGreaterThan(MAX_CHILDREN_PER_PARENT);
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '3s',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '6s',
    // None is given up before a busy machine has made workflows for all of them.
    NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '20',
  });
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, 'large', usersUpTo(RECIPIENTS));
  const workflowsOfRoutes = async () => {
    const query = `NotificationId = '${id}' AND WorkflowType = 'notificationRoute'`;
    return (await slot.client.workflow.count(query)).count;
  };
  await eventually('all pushes to have workflows', async () => (await workflowsOfRoutes()) === RECIPIENTS);
  await slot.redis.del(GATEWAY);
  expect(await resultOf(slot, id)).toEqual({
    ...{ outcome: 'accepted', published: 2 * RECIPIENTS, skipped: 0, deadLettered: 0 },
  });
  const wanted = usersUpTo(RECIPIENTS).flatMap((user) => deliveriesTo(user, [id]));
  expect(await outboundIds(slot.redis)).toEqual(wanted.sort());
  expect(await workflowsOfRoutes()).toBe(RECIPIENTS);
  // What was published at first was not tried again.
  expect(await countOf(slot, 'routes', "channel = 'email' AND attempt_count = 1")).toBe(RECIPIENTS);
  const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).fetchHistory();
  expect(events!.length).toBeLessThan(40);
}, 300_000);
