/** What becomes of items that fail, in runs (activities/reconciliation.ts) and in processes (workers/reconciler.ts). */
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { WorkflowNotFoundError } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Reconciled } from '../../activities/reconciliation.ts';
import { createReconciliationActivities } from '../../activities/reconciliation.ts';
import { startReconciler } from '../../workers/reconciler.ts';
import { eventually } from '../eventually.ts';

const workflowOf = (workflowId: string) => ({
  ...{ workflowId, workflowType: 'any', taskQueue: 'any' },
  ...{ args: [], staticSummary: workflowId },
});

test('intent-8 a workflow that cannot be started does not keep those behind it from being started', async () => {
  const started: string[] = [];
  const workflow = {
    getHandle: (id: string) => ({
      describe: () => Promise.reject(new WorkflowNotFoundError('none', id, undefined)),
    }),
    async start(_type: string, { workflowId }: { workflowId: string }) {
      if (workflowId.startsWith('refused')) throw new Error('refused');
      started.push(workflowId);
    },
    list: () => [],
  };
  const warned: unknown[] = [];
  const log = { warn: (fields: unknown) => warned.push(fields) } as unknown as Logger;
  const reconciler = startReconciler({
    ...{ client: { workflow } as unknown as Client, log, everyMs: 1, schedules: [] },
    workflows: ['refused-1', 'long-lived'].map(workflowOf),
    underWay: async () => ['refused-2', 'under-way'].map(workflowOf),
  });
  await eventually(
    'both others',
    async () => started.includes('long-lived') && started.includes('under-way'),
  );
  await reconciler.stop();
  expect(warned).toContainEqual({ what: 'long-lived workflow', id: 'refused-1', reason: 'refused' });
  expect(warned).toContainEqual({ what: 'workflow under way', id: 'refused-2', reason: 'refused' });
});

/** Numbers from 1 to `last`; those in `failing` cannot be started. */
function numbers(last: number, failing: readonly number[] = []) {
  const started: number[] = [];
  const kind: Reconciled<number> = {
    ...{ what: 'number', isLoss: true, seen: 'seen', done: ['started'] },
    page: async (after = 0, limit) =>
      Array.from({ length: Math.min(limit, last - after) }, (_, index) => after + index + 1),
    idOf: String,
    async start([number]) {
      if (failing.includes(number!)) throw new Error('refused');
      started.push(number!);
      return { started: 1 };
    },
  };
  return { kind, started };
}

function run(...kinds: Reconciled[]) {
  const lines: { level: string; fields: object; message: string }[] = [];
  const lineOf = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, fields, message });
  const log = { warn: lineOf('warn'), info: lineOf('info') } as unknown as Logger;
  const activity = { heartbeat: () => undefined, cancellationSignal: new AbortController().signal };
  const result = asyncLocalStorage.run(activity as unknown as Context, () =>
    createReconciliationActivities(log, kinds).reconcile(),
  );
  return { lines, result };
}

test('I49 an item that fails is counted and logged with its id, and all others of all pages are started', async () => {
  const { kind, started } = numbers(1_300, [2, 700]);
  const { lines, result } = run(kind);
  expect(await result).toEqual({ seen: 1_300, started: 1_298, failed: 2 });
  expect(new Set(started).size).toBe(1_298);
  expect(lines).toEqual([
    ...['2', '700'].map((id) => ({
      ...{ level: 'warn', message: 'work could not be taken up' },
      fields: { what: 'number', id, reason: 'refused' },
    })),
    expect.objectContaining({ level: 'warn', message: 'overdue work was taken up' }),
  ]);
});

test('I49 a query that fails does not keep the next one from being done, and fails the run by name', async () => {
  const broken: Reconciled = {
    ...{ what: 'broken', done: ['repaired'], idOf: String, start: async () => ({}) },
    page: () => Promise.reject(new Error('away')),
  };
  const { kind, started } = numbers(3);
  await expect(run(broken, kind).result).rejects.toMatchObject({
    ...{ type: 'ReconciliationFailed', message: 'broken: away', nonRetryable: false },
  });
  expect(started).toEqual([1, 2, 3]);
});

test('I49 a run that finds nothing lost says so without a warning', async () => {
  const { lines, result } = run(numbers(0).kind);
  expect(await result).toEqual({ seen: 0, started: 0, failed: 0 });
  expect(lines.map(({ level }) => level)).toEqual(['info']);
});
