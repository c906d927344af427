/** An agent one of whose routers says nothing: what waits for it, and what does not. */
import { randomBytes } from 'node:crypto';
import type { WorkflowHandle } from '@temporalio/client';
import { makeUpdate } from '../../client/temporal.ts';
import { recipientKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { generateAuthKeys } from '../../activities/subscription/router/signing.ts';
import type { CreatedConnection } from '../../workflows/subscription/contract.ts';
import {
  CREATE_CONNECTIONS_UPDATE,
  DELETE_CONNECTIONS_UPDATE,
  SWEEP_SCHEDULE_ID,
  TOGGLE_CONNECTIONS_UPDATE,
  WORK_SIGNAL,
} from '../../workflows/subscription/contract.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';
import { AGENT, KEY_BOX, takeSubscriptionAgent } from './agent.ts';

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
  await agent.supervisor.signal('resume');
});

const healthy = () => agent.routers.smp[0]!;
const silent = () => agent.routers.smp[1]!;
const createOne = async (address: RouterAddress = healthy().address): Promise<string> => {
  const [connId] = await agent.create([{ userId: 1, server: address }]);
  await agent.active([connId!]);
  return connId!;
};
const asked = (op: string, router = silent()) => router.calls.filter((call) => call.op === op).length;

/** Queues of deleted connections on the silent router. */
async function insertDeletedQueues(count: number): Promise<void> {
  const { host, port, keyHash } = silent().address;
  await agent.rows(
    'INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING',
    [AGENT, host, port, keyHash],
  );
  for (let index = 0; index < count; index++) {
    const [connId, id] = [randomBytes(12).toString('hex'), randomBytes(24).toString('base64url')];
    await agent.rows(
      `INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, is_deleted) VALUES ($1, $2, $3, true)`,
      [AGENT, connId, index],
    );
    await agent.rows(
      `INSERT INTO subscriptions.rcv_queues
              (agent_id, conn_id, host, port, rcv_id, rcv_private_key, is_primary, is_deleted)
       VALUES ($1, $2, $3, $4, $5, $6, true, true)`,
      [
        AGENT,
        connId,
        host,
        port,
        id,
        KEY_BOX.seal(generateAuthKeys().privateKey, recipientKeyContext(AGENT, id)),
      ],
    );
  }
}

test('subscription-B2 N1 commands and a pause are carried out at any length of history while an update waits for a router', async () => {
  const connId = await createOne();
  silent().fail({ failure: { kind: 'silence' }, subject: 'NEW' });
  const update = agent.update<CreatedConnection[]>(CREATE_CONNECTIONS_UPDATE, {
    connections: [{ userId: 1, server: silent().address }],
  });
  await eventually('the router to be asked', async () => asked('NEW') > 0);
  const { runId } = await agent.supervisor.describe();

  let { done } = await agent.idle();
  // Of equal ones that wait together, one is carried out.
  await eventually('a long history', async () => {
    await Promise.all(Array.from({ length: 20 }, () => agent.command('create', [connId])));
    await eventually('the commands to be carried out', async () => (await agent.idle()).done > done);
    ({ done } = await agent.idle());
    return (await agent.supervisor.describe()).historyLength > 400;
  });
  const still = await agent.supervisor.describe();
  expect(still.runId).toBe(runId);
  await agent.supervisor.signal('pause');
  await eventually('the pause', async () => (await agent.state()).isPaused);
  await agent.supervisor.signal('resume');
  await eventually('its end', async () => !(await agent.state()).isPaused);

  // Nobody else waits for a router in there any more, and the one who does gets his answer.
  await expect(
    agent.update(CREATE_CONNECTIONS_UPDATE, { connections: [{ userId: 1, server: healthy().address }] }),
  ).rejects.toMatchObject({ cause: { message: 'too many updates wait for routers; try again later' } });
  expect(await agent.create([{ userId: 1, server: healthy().address }])).toHaveLength(1);
  // It hangs up on who waits.
  silent().heal();
  expect(await update).toEqual([{ error: expect.stringMatching(/^BROKER NETWORK/) as string }]);
  await eventually('a new run', async () => (await agent.supervisor.describe()).runId !== runId);
}, 180_000);

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

test('subscription-B2 subscription-B7 N1 N16 queues on a silent router hold up neither a deletion nor a sweep', async () => {
  const connId = await createOne();
  await insertDeletedQueues(3);
  silent().fail({ failure: { kind: 'silence' }, subject: 'DEL' });
  const sweep = () => agent.slot.client.schedule.getHandle(SWEEP_SCHEDULE_ID).trigger();
  await agent.rows(
    `INSERT INTO subscriptions.ntf_tokens_to_delete
            (agent_id, host, port, key_hash, token_id, private_key, del_failed, created_at)
     VALUES ($1, 'gone.test', 443, '', 't', '', true, now() - interval '22 days')`,
    [AGENT],
  );
  await sweep();
  await eventually('what is too old to go', async () => {
    return (await agent.rows('SELECT 1 FROM subscriptions.ntf_tokens_to_delete')).length === 0;
  });
  await eventually('the silent router to be asked', async () => asked('DEL') > 0);

  const deleted = await agent.update(DELETE_CONNECTIONS_UPDATE, { connIds: [connId] });
  expect(deleted).toEqual({ deleted: 1, unknown: [] });
  const left = () =>
    agent.rows<{ port: number }>('SELECT port FROM subscriptions.rcv_queues WHERE is_deleted');
  await eventually('its queue to go', async () => (await left()).length === 3);
  expect(await agent.rows('SELECT 1 FROM subscriptions.connections WHERE conn_id = $1', [connId])).toEqual(
    [],
  );

  silent().heal();
  await eventually('the others to go', async () => (await left()).length === 0);
  await eventually('its worker to have nothing to do', async () => {
    const state = await agent.workerState('smp-que-del', silent().address).catch(() => undefined);
    return state?.doing !== 'working';
  });
});

test('subscription-B8 N2 a paused agent asks no router to make or to delete a queue', async () => {
  const connId = await createOne();
  await agent.supervisor.signal('pause');
  await eventually('the pause', async () => (await agent.state()).isPaused);
  const calls = () => [asked('NEW', healthy()), asked('DEL', healthy())];
  const before = calls();
  const refusal = { cause: { message: 'agent default is paused: resume it first' } };
  const server = healthy().address;
  await expect(agent.create([{ userId: 1, server }])).rejects.toMatchObject(refusal);
  await expect(
    agent.update(CREATE_CONNECTIONS_UPDATE, { connections: [{ userId: 1, server }] }),
  ).rejects.toMatchObject(refusal);
  await agent.update(DELETE_CONNECTIONS_UPDATE, { connIds: [connId] });
  await agent.slot.client.schedule.getHandle(SWEEP_SCHEDULE_ID).trigger();
  await eventually(
    'the worker to be suspended',
    async () => (await agent.workerState('smp-que-del', server)).doing === 'suspended',
  );
  expect(calls()).toEqual(before);
  await agent.supervisor.signal('resume');
  await eventually('the deletion', async () => asked('DEL', healthy()) === before[1]! + 1);
});

test('subscription-L4 N17 a connection that an attempt makes which was thought lost is answered, not failed', async () => {
  const { promise: until, resolve: goOn } = Promise.withResolvers<void>();
  healthy().fail({ failure: { kind: 'hold', until }, subject: 'NEW', times: 1 });
  const news = asked('NEW', healthy());
  const answer = agent.update<CreatedConnection[]>(CREATE_CONNECTIONS_UPDATE, {
    connections: [{ userId: 1, server: healthy().address }],
  });
  await eventually('the router to be asked', async () => asked('NEW', healthy()) > news);
  const { events } = await agent.supervisor.fetchHistory();
  const input = events!
    .map((event) => event.activityTaskScheduledEventAttributes)
    .findLast((scheduled) => scheduled?.activityType?.name === 'createConnections')!.input!.payloads![1]!;
  const [{ connId }] = JSON.parse(Buffer.from(input.data!).toString('utf8')) as [{ connId: string }];
  await agent.rows('INSERT INTO subscriptions.connections (agent_id, conn_id, user_id) VALUES ($1, $2, 1)', [
    AGENT,
    connId,
  ]);
  goOn();
  expect(await answer).toEqual([{ connId, hasCredentials: false }]);
  await agent.rows('DELETE FROM subscriptions.connections WHERE conn_id = $1', [connId]);
});

test('subscription-L3 N3 a worker that is woken while it is being ended by a close starts over', async () => {
  const [connId] = await agent.create([{ userId: 1, server: healthy().address }]);
  await agent.active([connId!]);
  const worker = agent.worker('ntf-ntf', agent.routers.ntf[0]!.address);
  await eventually('the worker to wait', async () => {
    return (await agent.workerState('ntf-ntf', agent.routers.ntf[0]!.address)).doing === 'waiting';
  });
  const { runId } = await worker.describe();
  // Nobody is there to see one of them before the other.
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
