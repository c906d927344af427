/** The workers of subscriptions, and a process that dies after each step with which they change something outside. */
import {
  POOL_WORKER_WORKFLOW,
  SUBSCRIPTION_TASK_QUEUE,
  WORK_SIGNAL,
  poolWorkerWorkflowId,
} from '../../workflows/subscription/contract.ts';
import { isAtRest } from '../crash-walk.ts';
import type { RecordRow } from './agent.ts';
import { agentOfTests, crashWalkOfAgents, isCreated } from './agent.ts';
import { agreement } from './agreement.ts';

/** One for each death, and one for each activity that is carried out by a process that lives. */
const AGENTS = 25;

const agent = agentOfTests();
const walk = crashWalkOfAgents(agent);
/**
 * Agents with one subscription each, with which nothing has been done yet. The worker of a process that died is missed
 * after seconds, and the worker of another agent does not wait for that.
 */
let untouched: string[];
beforeAll(async () => {
  await walk.survivor();
  untouched = Array.from({ length: AGENTS }, (_, index) => `agent-${index}`);
  await Promise.all(
    untouched.map(async (agentId) => {
      await agent.activateToken(agentId);
      await agent.createMany(1, agentId);
    }),
  );
  await agent.active();
}, 120_000);

async function recordOf(agentId: string): Promise<RecordRow | undefined> {
  const [record] = await agent.rows<RecordRow>(
    'SELECT * FROM subscriptions.ntf_subscriptions WHERE agent_id = $1',
    [agentId],
  );
  return record;
}

/** Has a worker do this about the subscription of another agent, as if the record had come to it by itself. */
const put = (pool: 'ntf-smp' | 'ntf-ntf', action: 'K' | 'C' | 'D' | 'R') => async () => {
  const agentId = untouched.shift()!;
  const { ntf_sub_id: formerId } = (await recordOf(agentId))!;
  agent.routers.ntf[0]!.setSubscriptionStatus(formerId!, 'END');
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions
        SET smp_action = $2, ntf_action = $3, action_ts = now()
      WHERE agent_id = $1`,
    [agentId, ...(pool === 'ntf-smp' ? [action, null] : [null, action])],
  );
  const { smp, ntf } = agent.routers;
  const workers = [
    { agentId, pool: 'ntf-smp', server: smp[0]!.address },
    { agentId, pool: 'ntf-ntf', server: ntf[0]!.address },
  ] as const;
  const { workflow } = agent.slot.client;
  const woken = workers.find((worker) => worker.pool === pool)!;
  await workflow.signalWithStart(POOL_WORKER_WORKFLOW, {
    ...{ workflowId: poolWorkerWorkflowId(woken), taskQueue: SUBSCRIPTION_TASK_QUEUE },
    ...{ args: [woken], signal: WORK_SIGNAL },
  });
  return async () => {
    const record = await recordOf(agentId);
    if (!isCreated(record) || record!.ntf_sub_id === formerId) return false;
    const resting = workers.map((worker) => isAtRest(workflow.getHandle(poolWorkerWorkflowId(worker))));
    return (await Promise.all(resting)).every(Boolean);
  };
};

test('N1 N2 N4 N7 N13 a process that dies after any step of a worker: records and routers agree in the end', async () => {
  const kills = {
    keyed: await walk.through('runKeys', put('ntf-smp', 'K')),
    subscribed: await walk.through('runCreates', put('ntf-smp', 'K')),
    checked: await walk.through('runChecks', put('ntf-ntf', 'C')),
    deleted: await walk.through('runLegacyDeletes', put('ntf-ntf', 'D')),
    rotated: await walk.through('runLegacyRotations', put('ntf-ntf', 'R')),
  };
  // An attempt that is counted, the router, what came of it, and the worker that goes on. After a key, the look at the
  // records of others comes before what came of it. A check changes nothing on a router; a connection is created instead
  // of a worker that goes on, and its first check waits.
  expect(kills).toEqual({ keyed: 5, subscribed: 3, checked: 3, deleted: 4, rotated: 4 });

  await walk.survivor();
  expect(await agreement(agent)).toHaveLength(AGENTS);
  expect(await agent.events()).toEqual([]);
}, 480_000);
