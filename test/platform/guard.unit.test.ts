/** A guard whose items fail (workers/guard.ts). */
import type { Client } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { Logger } from 'pino';
import { startGuard } from '../../workers/guard.ts';
import { eventually } from '../eventually.ts';

const workflowOf = (workflowId: string) => ({
  ...{ workflowId, workflowType: 'any', taskQueue: 'any' },
  ...{ args: [], staticSummary: workflowId },
});

test('intent-8 a workflow that cannot be started does not keep those behind it from being started', async () => {
  const started: string[] = [];
  const client = {
    workflow: {
      getHandle: (id: string) => ({
        describe: () => Promise.reject(new WorkflowNotFoundError('none', id, undefined)),
      }),
      start: (_type: string, { workflowId }: { workflowId: string }) => {
        if (workflowId.startsWith('refused')) return Promise.reject(new Error('refused'));
        started.push(workflowId);
        return Promise.resolve({});
      },
      list: () => [],
    },
  } as unknown as Client;
  const warned: unknown[] = [];
  const log = { warn: (fields: unknown) => warned.push(fields) } as unknown as Logger;
  const guard = startGuard(client, log, 1, {
    workflows: ['refused-1', 'long-lived'].map(workflowOf),
    underWay: () => Promise.resolve(['refused-2', 'under-way'].map(workflowOf)),
    schedules: [],
  });
  await eventually('both others', () =>
    Promise.resolve(started.includes('long-lived') && started.includes('under-way')),
  );
  await guard.stop();
  expect(warned).toContainEqual({ reason: 'refused' });
});
