/** What workflows and their readers see of our thread is what they see of the SDK's. */
import type { WorkerOptions, WorkflowBundle } from '@temporalio/worker';
import { NativeConnection, Worker } from '@temporalio/worker';
import { createLogger } from '../../workers/logger.ts';
import { installTemporalRuntime } from '../../workers/temporal-worker.ts';
import { WorkflowWorker } from '../../workers/workflow-worker.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { bundleOf } from '../workflow-code.ts';

/** Each waits, in ways that workflows have, until it gets the signal `go`. */
const WORKFLOWS = `
  import { ApplicationFailure, CancellationScope, condition, defineSignal, log, proxyActivities, setHandler, sleep,
           executeChild, workflowInfo } from '@temporalio/workflow';

  const { never } = proxyActivities({ startToCloseTimeout: '1 hour' });

  function untilGo() {
    let isGo = false;
    setHandler(defineSignal('go'), () => { isGo = true; });
    return condition(() => isGo);
  }

  async function deeper(levels, wait) {
    return levels === 0 ? wait() : deeper(levels - 1, wait);
  }

  export async function waitsForSignal() { await untilGo(); return 'gone'; }

  export async function waitsDeep() { const go = untilGo(); await deeper(4, () => go); }

  export async function waitsForAll() {
    const go = untilGo();
    await Promise.all([sleep('1 hour'), deeper(2, () => sleep('2 hours')), 5, Promise.resolve(6), go]);
  }

  export async function waitsForRest() {
    const go = untilGo();
    const slow = sleep('1 hour').then(() => undefined);
    await Promise.race([slow, sleep(1)]);
    await Promise.any([Promise.reject(new Error('no')), Promise.resolve(1)]);
    const settled = Promise.allSettled([slow, Promise.reject(new Error('no'))]);
    await Promise.race([settled, go, never()]);
  }

  export async function waitsForChild() {
    const go = untilGo();
    await CancellationScope.cancellable(() => Promise.race([executeChild('waitsForSignal', { taskQueue: 'nobody', workflowId: 'child-of-' + Math.random() }), go]));
  }

  export async function warnsAndWaits(n) {
    const isAgain = workflowInfo().unsafe.isReplaying;
    const go = untilGo();
    log.warn('it waits', { n });
    await go;
    return { n, isAgain };
  }

  export async function neglects() {
    void Promise.reject(new Error('nobody waits for it'));
    await sleep(1);
  }

  export async function throwsAtOnce() { throw ApplicationFailure.nonRetryable('at once'); }
`;

/**
 * More places than the SDK has pollers: otherwise the pollers of one of the two task queues can hold them all, and nobody
 * asks the other one until a poll ends, after a minute.
 */
const SMALL_CACHE = { maxCachedWorkflows: 20 };
/** Of workflows, more than the cache holds. */
const NUMBERS = Array.from({ length: 25 }, (_, n) => n);

const lines: { msg: string; n?: number; workflowType?: string }[] = [];
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

/** Runs something beside a worker. */
async function besideWorker<T>(
  of: typeof Worker,
  taskQueue: string,
  run: () => Promise<T>,
  options: Partial<WorkerOptions> = {},
): Promise<T> {
  const { namespace } = slot.client.options;
  const worker = await of.create({ ...{ connection, namespace, taskQueue, workflowBundle }, ...options });
  return worker.runUntil(run);
}

/** What the Web UI shows of a workflow that has gone as far as it can. */
async function stacksOf(type: keyof typeof WAITING, taskQueue: string): Promise<unknown> {
  const handle = await slot.client.workflow.start(type, { taskQueue, workflowId: `${type}-${taskQueue}` });
  await eventually('it to have gone that far', async () => {
    const { events } = await handle.fetchHistory();
    return events?.some((event) => event[WAITING[type]]);
  });
  const [plain, enhanced] = [
    await handle.query<string>('__stack_trace'),
    await handle.query('__enhanced_stack_trace'),
  ];
  await handle.terminate();
  return { plain, enhanced };
}

/** What history has of each when it has gone as far as it can. */
const WAITING = {
  waitsForSignal: 'workflowTaskCompletedEventAttributes',
  waitsDeep: 'workflowTaskCompletedEventAttributes',
  waitsForAll: 'timerStartedEventAttributes',
  waitsForRest: 'activityTaskScheduledEventAttributes',
  waitsForChild: 'childWorkflowExecutionStartedEventAttributes',
} as const;

test.each(Object.keys(WAITING) as (keyof typeof WAITING)[])(
  'the call stack of %s is the one that the SDK shows',
  async (type) => {
    const [ours, theirs] = await Promise.all(
      [WorkflowWorker, Worker].map((of) => {
        const taskQueue = `${of.name}-${type}`;
        return besideWorker(of, taskQueue, () => stacksOf(type, taskQueue));
      }),
    );
    expect(ours).toEqual(theirs);
    expect(JSON.stringify(ours)).toContain('workflows.ts');
  },
);

test('a workflow that is pushed out of the cache goes on, and its log lines arrive once', async () => {
  const taskQueue = 'small-cache';
  const waiting = () =>
    lines.flatMap(({ msg, n, workflowType }) =>
      workflowType === 'warnsAndWaits' && msg === 'it waits' ? [n] : [],
    );
  // One after the other: a task that waits for a place in the cache times out.
  const run = async () => {
    const handles = [];
    for (const n of NUMBERS) {
      const options = { taskQueue, workflowId: `waits-${n}`, args: [n] };
      handles.push(await slot.client.workflow.start('warnsAndWaits', options));
      await eventually('it to wait', async () => waiting().includes(n));
    }
    const results: { n: number; isAgain: boolean }[] = [];
    for (const handle of handles) {
      await handle.signal('go');
      results.push((await handle.result()) as (typeof results)[number]);
    }
    return results;
  };
  const results = await besideWorker(WorkflowWorker, taskQueue, run, SMALL_CACHE);
  expect(results.map(({ n }) => n)).toEqual(NUMBERS);
  expect(results[0]!.isAgain).toBe(true);
  expect(waiting()).toEqual(NUMBERS);
});

test('what a workflow throws fails it, and a rejection that it neglects fails its task', async () => {
  const taskQueue = 'failures';
  await besideWorker(WorkflowWorker, taskQueue, async () => {
    const { workflow } = slot.client;
    const thrown = workflow.execute('throwsAtOnce', { taskQueue, workflowId: 'throws-at-once' });
    await expect(thrown).rejects.toMatchObject({ cause: { message: 'at once' } });
    const handle = await workflow.start('neglects', { taskQueue, workflowId: 'neglects' });
    await eventually('its task to have failed', async () => {
      const { events } = await handle.fetchHistory();
      return events?.some(({ workflowTaskFailedEventAttributes: failed }) =>
        failed?.failure?.message?.includes('nobody waits for it'),
      );
    });
    await handle.terminate();
  });
});
