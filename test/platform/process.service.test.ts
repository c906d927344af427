/** A process of the service: its probes while it starts, what it starts again, and versions that follow each other. */
import { freePort } from '../../dev/servers/ports.ts';
import { bridgeWorkflowId, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfEachTest } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { resultOf } from '../intent/rows.ts';
import { delivered } from '../service-process.ts';

const READER = bridgeWorkflowId('notification:intents');

const slot = slotOfEachTest();

test('I31 a start that waits for migrations says that it lives and is not ready', async () => {
  const address = `127.0.0.1:${await freePort()}`;
  const statusOf = async (probe: string) => (await fetch(`http://${address}/${probe}`)).status;
  const migrating = await slot.db.connect();
  try {
    await migrating.query('BEGIN; LOCK TABLE notification.schema_migrations');
    const starting = slot.startService({ NOTIFICATION_INTERNAL_HTTP_ADDR: address });
    // A start that fails is an error of the last line.
    starting.catch(() => undefined);
    await eventually('the probes', async () => (await statusOf('healthz')) === 200);
    expect(await statusOf('readyz')).toBe(503);
    await migrating.query('ROLLBACK');
    await starting;
  } finally {
    migrating.release(true);
  }
  expect(await statusOf('readyz')).toBe(200);
});

test('I49 security-4 a long-lived workflow that was terminated, and a schedule that was deleted, come back by themselves', async () => {
  await slot.startService({ NOTIFICATION_RECONCILIATION_INTERVAL: '1s' });
  const { workflow, schedule } = slot.client;
  const reader = workflow.getHandle(READER);
  const { runId: before } = await reader.describe();
  await reader.terminate('a test');
  await schedule.getHandle('intent-retention').delete();

  await eventually('another run of the reader', async () => {
    const { runId, status } = await reader.describe();
    return status.name === 'RUNNING' && runId !== before;
  });
  await eventually('the schedule', () => schedule.getHandle('intent-retention').describe());
  await delivered(slot, await publishTurn(slot.redis, 'after'));
});

test('I40 work goes to the current version, and what is open goes on with the next one', async () => {
  const { workflow, workflowService, options } = slot.client;
  /** Makes it the current one, as `temporal worker deployment set-current-version` does. */
  const start = async (buildId: string) => {
    const version = { namespace: options.namespace, deploymentName: 'galaxy-notify', buildId };
    const service = await slot.startService({ NOTIFICATION_WORKER_BUILD_ID: buildId });
    await eventually(`${buildId} to be current`, () =>
      workflowService.setWorkerDeploymentCurrentVersion({ ...version, identity: 'test' }),
    );
    return service;
  };
  /** The version that completed the latest workflow task. */
  const versionOf = async (workflowId: string) => {
    const { raw } = await workflow.getHandle(workflowId).describe();
    return raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId;
  };
  const expectNextBy = async (buildId: string) => {
    const id = await publishTurn(slot.redis, buildId);
    await resultOf(slot, id);
    expect(await versionOf(notificationWorkflowId(id))).toBe(buildId);
  };

  const old = await start('one');
  await expectNextBy('one');
  await start('two');
  await old.stop();
  await expectNextBy('two');
  await eventually('the reader to run on the new version', async () => (await versionOf(READER)) === 'two');
});
