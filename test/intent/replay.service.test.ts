/** Dead-lettered routes published again: by signal, by reset, by a new start; never one that was published. */
import { WorkflowNotFoundError } from '@temporalio/client';
import {
  DEAD_LETTER_WORKFLOW,
  LOOK_SIGNAL,
  deadLetterWorkflowId,
  notificationWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import { eventually, operatorOf, stackOfRun, slotOfTests } from '../harness.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { PUSH, publishDead, routeIn } from './rows.ts';

const slot = slotOfTests();
beforeAll(() =>
  slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: '20ms',
    NOTIFICATION_ROUTE_BACKOFF_MAX: '40ms',
  }),
);
afterEach(async () => {
  // Otherwise what their streams have lost would be handed off again.
  await slot.db.query('DELETE FROM notification.records');
  await slot.redis.del(GATEWAY, MAIL);
});

const healGateway = () => slot.redis.del(GATEWAY);

const routeInStatus = (id: string, status: string) => routeIn(slot, id, PUSH, status);

const replaysOf = async (id: string) =>
  (
    await slot.db.query<{ generation: number; requested_by: string; reason: string | null }>(
      'SELECT generation, requested_by, reason FROM notification.replays WHERE notification_id = $1 ORDER BY generation',
      [id],
    )
  ).rows;

/** A push route that has spent its budget, and its ended workflow. */
async function deadLetter(key: string): Promise<string> {
  const id = await publishDead(slot, key);
  await eventually('the route workflow to have failed', async () => {
    const { status } = await slot.client.workflow.getHandle(routeWorkflowId(id, PUSH)).describe();
    return status.name === 'FAILED';
  });
  return id;
}

/** The request of `temporal workflow signal-with-start`, as docs/operate/replay-and-cancel.md has it. */
const signalWithStart = (id: string, ...signalArgs: object[]) =>
  slot.client.workflow.signalWithStart('notificationRoute', {
    ...{ workflowId: routeWorkflowId(id, PUSH), taskQueue: 'intent' },
    ...{
      args: [{ notificationId: id, routeRef: PUSH }],
      workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    },
    ...{ signal: 'replay', signalArgs },
  });

const eventIds = async () =>
  (await slot.redis.xrange(GATEWAY, '-', '+')).map(([, fields]) => fields[fields.indexOf('event_id') + 1]);

/** What the Web UI does when an operator presses Reset: the same request to the same server. */
async function resetInWebUi(workflowId: string, eventId: string): Promise<void> {
  const { namespace } = slot.client.options;
  const { runId } = await slot.client.workflow.getHandle(workflowId).describe();
  const { uiUrl } = stackOfRun();
  const page = await fetch(uiUrl);
  const cookie = page.headers
    .getSetCookie()
    .find((text) => text.startsWith('_csrf='))!
    .split(';')[0]!;
  const url = `${uiUrl}/api/v1/namespaces/${namespace}/workflows/${encodeURIComponent(workflowId)}/reset`;
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'caller-type': 'operator',
      'x-csrf-token': cookie.slice('_csrf='.length),
      cookie,
    },
    body: JSON.stringify({
      workflowExecution: { workflowId, runId },
      workflowTaskFinishEventId: eventId,
      reason: 'the gateway is back',
      requestId: crypto.randomUUID(),
    }),
  });
  if (!response.ok)
    throw new Error(`the Web UI's server answered ${response.status}: ${await response.text()}`);
}

/** Ids of the events at which a workflow can be reset. */
async function resetPoints(workflowId: string): Promise<string[]> {
  const { events } = await slot.client.workflow.getHandle(workflowId).fetchHistory();
  return (events ?? [])
    .filter(({ workflowTaskCompletedEventAttributes: attributes }) => attributes)
    .map(({ eventId }) => String(eventId));
}

test('I25 resetting a notification replays its dead-lettered route and leaves the published one alone', async () => {
  const id = await deadLetter('reset-notification');
  const workflowId = notificationWorkflowId(id);
  await slot.client.workflow.getHandle(workflowId).result();
  await healGateway();
  await resetInWebUi(workflowId, (await resetPoints(workflowId))[0]!);
  await routeInStatus(id, 'published');
  expect(await slot.client.workflow.getHandle(workflowId).result()).toEqual({
    outcome: 'accepted',
    published: 2,
    skipped: 0,
    deadLettered: 0,
  });
  expect(await eventIds()).toEqual([`${id}/${PUSH}`]);
  expect(await slot.redis.xlen(MAIL)).toBe(1);
});

const FAILURE = 'gateway_stream_publish_failed';
const deadLetterQuery = (): string =>
  operatorOf(slot)
    .views()
    .find(({ name }) => name === 'Dead letters')!.query;
const idsOf = async (query: string): Promise<string[]> => {
  const found: string[] = [];
  for await (const { workflowId } of slot.client.workflow.list({ query })) found.push(workflowId);
  return found;
};
const deadLettersInTemporal = async (): Promise<string[]> =>
  (await idsOf(deadLetterQuery())).map((workflowId) => workflowId.split('/')[1]!).sort();
const untilListed = (ids: string[]) =>
  eventually(
    `the dead letters ${ids.join(', ')} alone to be listed`,
    async () => {
      const listed = await deadLettersInTemporal();
      if (listed.join() === ids.toSorted().join()) return true;
      throw new Error(`these are: ${listed.join(', ')}`);
    },
    30_000,
  );

describe('newcomer-2 the list of dead letters in the Web UI', () => {
  // The rows of other tests are gone, of which nothing tells.
  beforeEach(async () => {
    for await (const { workflowId } of slot.client.workflow.list({
      query: `WorkflowType = '${DEAD_LETTER_WORKFLOW}' AND ExecutionStatus = 'Running'`,
    })) {
      const isOver = (error: unknown) => expect(error).toBeInstanceOf(WorkflowNotFoundError);
      await slot.client.workflow.getHandle(workflowId).signal(LOOK_SIGNAL).catch(isOver);
    }
    await untilListed([]);
  });

  test('I25 newcomer-2 loses a route that is replayed by a request to Temporal alone, by command, by filter or by a reset, and no other', async () => {
    const ids: Record<string, string> = {};
    for (const way of ['signal', 'command', 'filter', 'reset', 'none']) ids[way] = await deadLetter(way);
    await untilListed(Object.values(ids));
    // One that dies again stays.
    await signalWithStart(ids['none']!);
    await eventually('the second death', async () => {
      const isOpened = (await replaysOf(ids['none']!)).length === 1;
      return isOpened && (await routeInStatus(ids['none']!, 'dead_letter'));
    });
    await untilListed(Object.values(ids));
    await healGateway();

    const order = { requestedBy: 'nina', reason: 'gateway is back' };
    await signalWithStart(ids['signal']!, order);
    await routeInStatus(ids['signal']!, 'published');
    expect(await replaysOf(ids['signal']!)).toEqual([
      { generation: 1, requested_by: order.requestedBy, reason: order.reason },
    ]);
    await untilListed([ids['command']!, ids['filter']!, ids['reset']!, ids['none']!]);

    await operatorOf(slot).operations.begin(
      'replay',
      { notificationId: ids['command']!, routeId: PUSH },
      { requestedBy: 'test' },
    );
    await routeInStatus(ids['command']!, 'published');
    await untilListed([ids['filter']!, ids['reset']!, ids['none']!]);

    await operatorOf(slot).operations.begin(
      'replay',
      { notificationId: ids['filter']!, failure: FAILURE },
      { requestedBy: 'test', reason: 'INC-42: the gateway was away' },
    );
    await routeInStatus(ids['filter']!, 'published');
    await untilListed([ids['reset']!, ids['none']!]);

    const workflowId = routeWorkflowId(ids['reset']!, PUSH);
    await resetInWebUi(workflowId, (await resetPoints(workflowId))[0]!);
    await routeInStatus(ids['reset']!, 'published');
    expect(await replaysOf(ids['reset']!)).toMatchObject([{ generation: 1, requested_by: 'reset' }]);
    await untilListed([ids['none']!]);

    // What happened stays to be found, and so does who did it.
    const own = `NotificationId IN (${Object.values(ids)
      .map((id) => `'${id}'`)
      .join(', ')})`;
    await eventually('the notifications with dead routes', async () => {
      const found = await idsOf(
        `${own} AND WorkflowType = 'notification' AND DeadRoutes = 1 AND UserId = 'user-1'`,
      );
      return found.length === 5 || undefined;
    });
    expect(
      await idsOf(`UserId = 'user-1' AND FailureClassification = '${FAILURE}' AND ${deadLetterQuery()}`),
    ).toEqual([deadLetterWorkflowId(ids['none']!, PUSH)]);
  });
});
