/** Workflow code without an end, which holds up all workflows of its thread. */
import type { Worker, WorkerOptions, WorkflowBundle } from '@temporalio/worker';
import { NativeConnection } from '@temporalio/worker';
import { createLogger } from '../../workers/logger.ts';
import { installTemporalRuntime } from '../../workers/temporal-worker.ts';
import { WorkflowWorker } from '../../workers/workflow-worker.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { bundleOf } from '../workflow-code.ts';

const WORKFLOWS = `
  export async function short(): Promise<string> { return 'done'; }
  export async function withoutEnd(): Promise<void> { for (;;); }
`;

const lines: { component?: string; msg: string }[] = [];
let slot: Slot;
let connection: NativeConnection;
let workflowBundle: WorkflowBundle;
beforeAll(async () => {
  const write = (line: string): void => void lines.push(JSON.parse(line) as (typeof lines)[number]);
  installTemporalRuntime(createLogger('warn', { write }));
  workflowBundle = await bundleOf(WORKFLOWS);
  slot = await takeSlot();
  connection = await NativeConnection.connect({ address: slot.endpoints.temporalAddress! });
});
afterAll(async () => {
  await connection.close();
  await slot.release();
});

/** @returns a worker that runs, and with what it fails. */
async function run(
  taskQueue: string,
  options: Partial<WorkerOptions> = {},
): Promise<{ worker: Worker; failed: Promise<Error | undefined> }> {
  const { namespace } = slot.client.options;
  const worker = await WorkflowWorker.create({
    ...{ connection, taskQueue, namespace, workflowBundle },
    ...options,
  });
  const failed = worker.run().then(
    () => undefined,
    (error: Error) => error,
  );
  return { worker, failed };
}

test('its workflow task fails, and the worker ends, which the log says in lines of the worker and of its core', async () => {
  const taskQueue = 'without-end';
  const { worker, failed } = await run(taskQueue);
  const { workflow } = slot.client;
  expect(await workflow.execute('short', { workflowId: 'short', taskQueue })).toBe('done');

  const handle = await workflow.start('withoutEnd', { workflowId: 'without-end', taskQueue });
  expect((await failed)?.message).toContain('The thread of the workflows has ended');
  expect(worker.getState()).toBe('FAILED');
  await eventually('its task to have failed', async () => {
    const { events } = await handle.fetchHistory();
    return events?.some(({ workflowTaskFailedEventAttributes }) => workflowTaskFailedEventAttributes);
  });
  for (const wanted of ['Workflow code does not come to an end', 'Failing workflow task']) {
    await eventually(wanted, async () =>
      lines.some(({ component, msg }) => component === 'temporal' && msg.startsWith(wanted)),
    );
  }
});

test('a worker that is stopped by force meanwhile ends as well', async () => {
  const taskQueue = 'stopped-by-force';
  const { worker, failed } = await run(taskQueue, { shutdownGraceTime: 100, shutdownForceTime: 1_000 });
  await slot.client.workflow.start('withoutEnd', { workflowId: 'stopped-by-force', taskQueue });
  // Its history says so before the worker has it.
  await eventually(
    'its task to be in hand',
    async () => worker.getStatus().numInFlightWorkflowActivations > 0,
  );
  worker.shutdown();
  expect(await failed).toBeInstanceOf(Error);
});
