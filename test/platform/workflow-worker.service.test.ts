/** Workflow code without an end, which holds up all workflows of its thread. */
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DefaultLogger, NativeConnection } from '@temporalio/worker';
import { bundleWorkflowCode } from 'temporal-bundler/lib/workflow/bundler.js';
import { createLogger } from '../../workers/logger.ts';
import { installTemporalRuntime } from '../../workers/temporal-worker.ts';
import { WorkflowWorker } from '../../workers/workflow-worker.ts';
import { eventually, takeSlot } from '../harness.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const WORKFLOWS = `
  export async function short(): Promise<string> { return 'done'; }
  export async function withoutEnd(): Promise<void> { for (;;); }
`;

test('its workflow task fails, and the worker ends, which the log says in lines of the worker and of its core', async () => {
  const lines: { component?: string; msg: string }[] = [];
  const write = (line: string): void => void lines.push(JSON.parse(line) as (typeof lines)[number]);
  installTemporalRuntime(createLogger('warn', { write }));
  const home = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-endless-'));
  const slot = await takeSlot();
  const connection = await NativeConnection.connect({ address: slot.endpoints.temporalAddress! });
  try {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
    const workflowsPath = path.join(home, 'workflows.ts');
    writeFileSync(workflowsPath, WORKFLOWS);
    const taskQueue = 'of-this-test';
    const worker = await WorkflowWorker.create({
      ...{ connection, taskQueue, namespace: slot.client.options.namespace },
      workflowBundle: await bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('WARN') }),
    });
    const failed = worker.run().then(
      () => undefined,
      (error: Error) => error,
    );
    const { workflow } = slot.client;
    expect(await workflow.execute('short', { workflowId: 'short', taskQueue })).toBe('done');

    const handle = await workflow.start('withoutEnd', { workflowId: 'without-end', taskQueue });
    expect((await failed)?.message).toContain('Workflow Worker Thread exited');
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
  } finally {
    await connection.close();
    await slot.release();
    rmSync(home, { recursive: true });
  }
});
