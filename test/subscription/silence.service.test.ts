/** An agent one of whose routers says nothing: what waits for it, and what does not. */
import type { WorkflowHandle } from '@temporalio/client';
import { makeUpdate } from '../../client/temporal.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import {
  DELETE_CONNECTIONS_UPDATE,
  TOGGLE_CONNECTIONS_UPDATE,
} from '../../workflows/subscription/contract.ts';
import { eventually } from '../harness.ts';
import { agentOfTests } from './agent.ts';

/** Events of one run of a supervisor. */
const LONGEST_HISTORY = 1_000;

const agent = agentOfTests({ smp: 2 });
beforeAll(async () => {
  // Longer than any of these tests: nothing here goes on because a router was given up.
  await agent.start({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' });
  await agent.activateToken();
});
afterEach(() => silent().heal());

const healthy = () => agent.routers.smp[0]!;
const silent = () => agent.routers.smp[1]!;
const createOne = async (address: RouterAddress = healthy().address): Promise<string> => {
  const [connId] = await agent.create([{ userId: 1, server: address }]);
  await agent.active([connId!]);
  return connId!;
};

test('subscription-B2 N1 updates that overlap without end keep no run from ending, and all are answered', async () => {
  const connId = await createOne();
  const { runId } = await agent.supervisor.describe();
  const handle: WorkflowHandle = agent.supervisor;
  let isOver = false;
  let answered = 0;
  const clients = Array.from({ length: 5 }, async (_, client) => {
    while (!isOver && answered < 2 * LONGEST_HISTORY) {
      await makeUpdate(
        agent.slot.client,
        () =>
          handle.executeUpdate<unknown, [object]>(TOGGLE_CONNECTIONS_UPDATE, {
            args: [{ connIds: [connId], enable: client % 2 === 0 }],
          }),
        30_000,
      );
      answered += 1;
    }
  });
  const ends = eventually(
    'a new run',
    async () => (await agent.supervisor.describe()).runId !== runId,
    90_000,
  );
  await ends.finally(() => (isOver = true));
  await Promise.all(clients);
  const run = agent.slot.client.workflow.getHandle(handle.workflowId, runId);
  expect((await run.describe()).historyLength).toBeLessThan(LONGEST_HISTORY);
}, 180_000);

test('subscription-B2 subscription-B7 N1 N16 connections on a silent router hold up neither a deletion nor a sweep', async () => {
  const connId = await createOne();
  const waiting = [await createOne(silent().address), await createOne(silent().address)];
  silent().fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
  const deleteConnections = (connIds: string[]) => agent.update(DELETE_CONNECTIONS_UPDATE, { connIds });
  expect(await deleteConnections(waiting)).toEqual({ deleted: 2, unknown: [] });
  await eventually('the silent router to be asked', async () =>
    silent().calls.some(({ op }) => op === 'NDEL'),
  );
  await agent.sweep();

  expect(await deleteConnections([connId])).toEqual({ deleted: 1, unknown: [] });
  const left = async () =>
    (
      await agent.rows<{ conn_id: string }>('SELECT conn_id FROM subscriptions.connections WHERE is_deleted')
    ).map(({ conn_id }) => conn_id);
  await eventually('the connection to go', async () => !(await left()).includes(connId));
  expect((await left()).sort()).toEqual(waiting.sort());

  silent().heal();
  await eventually('the others to go', async () => (await left()).length === 0);
  // The application keeps its queues, without the notifiers.
  expect(
    silent()
      .queues()
      .map(({ notifier }) => notifier),
  ).toEqual([undefined, undefined]);
});
