/** Updates that Temporal gives back because their workflow tried to end in the task that brought them. */
import { randomUUID } from 'node:crypto';
import { WithStartWorkflowOperation } from '@temporalio/client';
import proto from '@temporalio/proto';
import { makeUpdate } from '../../client/temporal.ts';
import {
  SYMBOLS_CHANGED_UPDATE,
  SYMBOL_CONFIG_TASK_QUEUE,
  SYMBOL_CONFIG_WORKFLOW,
} from '../../workflows/symbol-config/contract.ts';
import { registryOfEachTest } from '../symbol-config/registry.ts';

const WORKER = 'stand-in for a worker';

const registry = registryOfEachTest();

/** Takes tasks in place of a worker, until one with an update, which it ends the workflow in while a signal arrives. */
async function giveUpdateBack(): Promise<void> {
  const { workflowService, options } = registry.slot.client;
  const { namespace } = options;
  for (;;) {
    const { taskToken, messages } = await workflowService.pollWorkflowTaskQueue({
      namespace,
      identity: WORKER,
      taskQueue: { name: SYMBOL_CONFIG_TASK_QUEUE },
    });
    const task = { namespace, identity: WORKER, taskToken };
    if (messages.length === 0) {
      await workflowService.respondWorkflowTaskCompleted(task);
      continue;
    }
    await registry.handle.signal('anything');
    const commandType = proto.temporal.api.enums.v1.CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION;
    await expect(
      workflowService.respondWorkflowTaskCompleted({ ...task, commands: [{ commandType }] }),
    ).rejects.toThrow('UnhandledCommand');
    return;
  }
}

/** @returns the outcome of a call that is given back once and then meets a real worker. */
async function outcomeOf<T>(call: () => Promise<T>): Promise<T | Error> {
  await registry.slot.client.workflow.start(SYMBOL_CONFIG_WORKFLOW, startOptions());
  const outcome = call().catch((error: Error) => error);
  await registry.slot.client.withDeadline(Date.now() + 30_000, giveUpdateBack);
  await registry.startService();
  return outcome;
}

const startOptions = () => ({
  ...{ workflowId: registry.handle.workflowId, taskQueue: SYMBOL_CONFIG_TASK_QUEUE, args: [] as [] },
});
const update = (updateId: string): Promise<unknown> =>
  registry.handle.executeUpdate(SYMBOLS_CHANGED_UPDATE, { updateId });
const updateWithStart = (updateId: string): Promise<unknown> =>
  registry.slot.client.workflow.executeUpdateWithStart(SYMBOLS_CHANGED_UPDATE, {
    updateId,
    startWorkflowOperation: new WithStartWorkflowOperation(SYMBOL_CONFIG_WORKFLOW, {
      ...{ ...startOptions(), workflowIdConflictPolicy: 'USE_EXISTING' },
    }),
  });

test.each([
  ['an update', update],
  ['one that starts its workflow', updateWithStart],
])('%s that is given back is made again, under its own id', async (_, call) => {
  const updateId = randomUUID();
  const outcome = await outcomeOf(() => makeUpdate(registry.slot.client, () => call(updateId), 60_000));
  expect(outcome).toEqual({ change: expect.any(Number) });
});

test('one that stays given back is an error when the time is up', async () => {
  const refused = await outcomeOf(() => update(randomUUID()));
  expect(refused).toMatchObject({ cause: { code: 9 } });
  await expect(makeUpdate(registry.slot.client, () => Promise.reject(refused as Error), 50)).rejects.toBe(
    refused,
  );
});
