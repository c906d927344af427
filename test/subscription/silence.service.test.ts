/** An agent one of whose routers says nothing: what waits for it, and what does not. */
import type { WorkflowHandle } from '@temporalio/client';
import { makeUpdate } from '../../client/temporal.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import {
  CLOSE_UPDATE,
  DELETE_CONNECTIONS_UPDATE,
  OPEN_UPDATE,
  TOGGLE_CONNECTIONS_UPDATE,
  WORK_SIGNAL,
} from '../../workflows/subscription/contract.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';

/** Events of one run of a supervisor. */
const LONGEST_HISTORY = 1_000;

let agent: SubscriptionAgent;
let service: Service;
const start = async () => {
  // Longer than any of these tests: nothing here goes on because a router was given up.
  service = await agent.start({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' });
};
beforeAll(async () => {
  agent = await takeSubscriptionAgent({ smp: 2 });
  await start();
  await agent.activateToken();
});
afterAll(() => agent.release());
afterEach(async () => {
  silent().heal();
  await agent.update(OPEN_UPDATE);
});

const healthy = () => agent.routers.smp[0]!;
const silent = () => agent.routers.smp[1]!;
const createOne = async (address: RouterAddress = healthy().address): Promise<string> => {
  const [connId] = await agent.create([{ userId: 1, server: address }]);
  await agent.active([connId!]);
  return connId!;
};
const asked = (op: string, router = silent()) => router.calls.filter((call) => call.op === op).length;

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
  await eventually('the silent router to be asked', async () => asked('NDEL') > 0);
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

test('subscription-B8 N13 a closed agent asks no router to make or to end a notifier', async () => {
  const connId = await createOne();
  await agent.update(CLOSE_UPDATE);
  const calls = () => [asked('NKEY', healthy()), asked('NDEL', healthy())];
  const before = calls();
  const [added] = await agent.create([{ userId: 1, server: healthy().address }]);
  await agent.update(DELETE_CONNECTIONS_UPDATE, { connIds: [connId] });
  await agent.sweep();
  expect(calls()).toEqual(before);
  await agent.update(OPEN_UPDATE);
  await agent.active([added!]);
  await eventually('the end', async () => asked('NDEL', healthy()) === before[1]! + 1);
});

test('subscription-L3 N3 a worker that is woken while it is being ended by a close starts over', async () => {
  const [connId] = await agent.create([{ userId: 1, server: healthy().address }]);
  await agent.active([connId!]);
  const worker = agent.worker('ntf-ntf', agent.routers.ntf[0]!.address);
  await eventually('the worker to wait', async () => {
    return (await agent.workerState('ntf-ntf', agent.routers.ntf[0]!.address)).doing === 'waiting';
  });
  const { runId } = await worker.describe();
  // No process can see one of them before the other.
  await service.stop();
  await worker.cancel();
  await worker.signal(WORK_SIGNAL);
  await start();
  const run = agent.slot.client.workflow.getHandle(worker.workflowId, runId);
  const status = await eventually('its end', async () => {
    const { name } = (await run.describe()).status;
    return name !== 'RUNNING' && name;
  });
  expect(status).toBe('CONTINUED_AS_NEW');
});
