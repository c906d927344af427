/** Versioned rollouts: the version that Temporal calls current has the work, and open executions move on to it. */
import { WORKFLOW_TASKS } from '../../api/task-queue-types.ts';
import { INTENT_TASK_QUEUE, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import packageJson from '../../package.json' with { type: 'json' };
import type { Slot } from '../harness.ts';
import { eventually, slotOfTests, takeSlot, untilStarted } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { namespaceOf } from '../slots.ts';

const DEPLOYMENT = 'galaxy-notify';
const slot = slotOfTests();

const start = (buildId: string) => slot.startService({ NOTIFICATION_WORKER_BUILD_ID: buildId });

/** As an operator does it with `temporal worker deployment set-current-version`. */
const makeCurrent = (buildId: string) =>
  eventually(`${buildId} to be current`, async () => {
    await slot.client.workflowService.setWorkerDeploymentCurrentVersion({
      namespace: namespaceOf(slot.slot),
      deploymentName: DEPLOYMENT,
      buildId,
      identity: 'test',
    });
    return true;
  });

/** The version that completed the latest workflow task. */
async function versionOf(workflowId: string): Promise<string | undefined | null> {
  const { raw } = await slot.client.workflow.getHandle(workflowId).describe();
  return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId;
}

async function delivered({ client }: Slot, id: string): Promise<void> {
  const handle = client.workflow.getHandle(notificationWorkflowId(id));
  await untilStarted(handle);
  await handle.result();
}

test('I40 work goes to the current version, and what is open goes on with the next one', async () => {
  const old = await start('one');
  await makeCurrent('one');
  const first = await publishTurn(slot.redis, 'first');
  await delivered(slot, first);
  expect(await versionOf(notificationWorkflowId(first))).toBe('one');

  await start('two');
  await makeCurrent('two');
  await old.stop();
  const second = await publishTurn(slot.redis, 'second');
  await delivered(slot, second);
  expect(await versionOf(notificationWorkflowId(second))).toBe('two');
  await eventually(
    'the reader to run on the new version',
    async () => (await versionOf(bridgeWorkflowId('notification:intents'))) === 'two',
  );
});

test('I40 without versions Temporal is told the release of each worker, and gives it all work', async () => {
  const plain = await takeSlot();
  try {
    await plain.startService();
    const pollers = await eventually('the first polls', async () => {
      const { pollers: found } = await plain.client.workflowService.describeTaskQueue({
        namespace: namespaceOf(plain.slot),
        taskQueue: { name: INTENT_TASK_QUEUE },
        taskQueueType: WORKFLOW_TASKS,
      });
      return found.length > 0 && found;
    });
    for (const { deploymentOptions } of pollers)
      expect(deploymentOptions).toMatchObject({
        deploymentName: packageJson.name,
        buildId: packageJson.version,
      });
    const id = await publishTurn(plain.redis, 'plain');
    await delivered(plain, id);
  } finally {
    await plain.release();
  }
});
