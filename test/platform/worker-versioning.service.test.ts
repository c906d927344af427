/** Versioned rollouts: the version that Temporal calls current has the work, and open executions move on to it. */
import { bridgeWorkflowId, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { resultOf } from '../intent/rows.ts';
import { namespaceOf } from '../slots.ts';

const slot = slotOfTests();

const start = (buildId: string) => slot.startService({ NOTIFICATION_WORKER_BUILD_ID: buildId });

/** As an operator does it with `temporal worker deployment set-current-version`. */
const makeCurrent = (buildId: string) =>
  eventually(`${buildId} to be current`, async () => {
    await slot.client.workflowService.setWorkerDeploymentCurrentVersion({
      namespace: namespaceOf(slot.slot),
      deploymentName: 'galaxy-notify',
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

test('I40 work goes to the current version, and what is open goes on with the next one', async () => {
  const old = await start('one');
  await makeCurrent('one');
  const first = await publishTurn(slot.redis, 'first');
  await resultOf(slot, first);
  expect(await versionOf(notificationWorkflowId(first))).toBe('one');

  await start('two');
  await makeCurrent('two');
  await old.stop();
  const second = await publishTurn(slot.redis, 'second');
  await resultOf(slot, second);
  expect(await versionOf(notificationWorkflowId(second))).toBe('two');
  await eventually(
    'the reader to run on the new version',
    async () => (await versionOf(bridgeWorkflowId('notification:intents'))) === 'two',
  );
});
