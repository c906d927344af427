/** A process that is stopped, is given a task meanwhile, and wakes up after another one has done it. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { NativeConnection, Worker } from '@temporalio/worker';
import { eventually, takeSlot } from '../harness.ts';
import type { Slot } from '../harness.ts';
import { bundleOf } from '../workflow-code.ts';

const WORKFLOWS = `
  import { proxyActivities } from '@temporalio/workflow';

  export async function write() {
    await proxyActivities({ startToCloseTimeout: '5 seconds', retry: { initialInterval: 1 } }).write();
  }
`;
const TASK_QUEUE = 'stopped';
/** `temporal.api.enums.v1`, which are not among the SDK's exports. */
const ACTIVITY = 2;
const STARTED = 2;

let slot: Slot;
const processes: ReturnType<typeof start>[] = [];
beforeAll(async () => {
  slot = await takeSlot();
  await slot.db.query('CREATE TABLE written (name text)');
});
afterAll(async () => {
  for (const process of processes) {
    process.kill('SIGKILL');
    if (process.exitCode === null && process.signalCode === null) await once(process, 'exit');
  }
  await slot.release();
});

const msOf = (time?: { seconds?: unknown; nanos?: number | null } | null): number =>
  Number(time?.seconds) * 1_000 + Number(time?.nanos) / 1e6;

function start(name: string) {
  const { endpoints, client, ownerDsn } = slot;
  const program = path.join(import.meta.dirname, '../late-worker.ts');
  const args = [endpoints.temporalAddress!, client.options.namespace, TASK_QUEUE, ownerDsn, name];
  return spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
}

test('kinds-F2 a process that was stopped does not begin what was given to it meanwhile', async () => {
  const { client, endpoints, db } = slot;
  const { namespace } = client.options;
  const connection = await NativeConnection.connect({ address: endpoints.temporalAddress! });
  const worker = await Worker.create({
    ...{ connection, namespace, taskQueue: TASK_QUEUE, workflowBundle: await bundleOf(WORKFLOWS) },
  });
  await worker.runUntil(async () => {
    const stopped = start('stopped');
    processes.push(stopped);
    const said = createInterface(stopped.stdout)[Symbol.asyncIterator]();
    const first = await client.workflow.start('write', { taskQueue: TASK_QUEUE, workflowId: 'first' });
    await first.result();
    expect(await said.next()).toMatchObject({ value: 'written' });
    const { events } = await first.fetchHistory();
    const begun = events?.find(({ activityTaskStartedEventAttributes: started }) => started);
    await eventually('it to ask for more work', async () => {
      const { pollers } = await client.workflowService.describeTaskQueue({
        ...{ namespace, taskQueue: { name: TASK_QUEUE }, taskQueueType: ACTIVITY },
      });
      return pollers?.some(({ lastAccessTime }) => msOf(lastAccessTime) > msOf(begun?.eventTime));
    });
    stopped.kill('SIGSTOP');
    const handle = await client.workflow.start('write', { taskQueue: TASK_QUEUE, workflowId: 'second' });
    await eventually('it to be given the task', async () => {
      const { raw } = await handle.describe();
      return raw.pendingActivities?.some(({ state }) => Number(state) === STARTED);
    });
    processes.push(start('other'));
    await handle.result();
    stopped.kill('SIGCONT');
    expect(await said.next()).toMatchObject({ value: 'AttemptLate' });
  });
  await connection.close();
  expect((await db.query('SELECT name FROM written')).rows).toEqual([{ name: 'stopped' }, { name: 'other' }]);
});
