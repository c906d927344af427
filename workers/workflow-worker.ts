/**
 * The SDK's worker, with a thread of our own for the workflows. What runs there is the SDK's sandbox, unchanged; three
 * things around it differ, which were much of what a short workflow costs the process:
 *
 * - No time limit for each call into a workflow, for which Node starts a thread each time. One look a second finds out
 *   whether the thread still answers. If it does not, it is ended. Then the SDK fails the workflow tasks that the thread
 *   had in hand, as it does when a limit is reached, and Temporal makes them again; the worker ends, as with any other end
 *   of that thread.
 * - One message there and one back for each activation. The SDK asks for the calls of sinks each time, too, and waits for
 *   a workflow to be made and to be disposed of.
 * - Call stacks are written when somebody asks for them: promise-stacks.ts.
 */
import path from 'node:path';
import { Worker as Thread } from 'node:worker_threads';
import type { Logger } from '@temporalio/common';
import proto from '@temporalio/proto';
import { UnexpectedError, Worker } from '@temporalio/worker';
import type { CompiledWorkerOptions } from '@temporalio/worker/lib/worker-options.js';
import type {
  Workflow,
  WorkflowCreateOptions,
  WorkflowCreator,
} from '@temporalio/worker/lib/workflow/interface.js';
import type { WorkflowBundleWithSourceMapAndFilename } from '@temporalio/worker/lib/workflow/workflow-worker-thread/input.js';
import type { SinkCall } from '@temporalio/workflow';
import { createUnsafeRandomSource } from '@temporalio/workflow/lib/random-helpers.js';
import type { Activated, Answer, Message, Request, ThreadData } from './workflow-thread.ts';

/** After so many looks at one unanswered request a thread counts as hung, some seconds before Temporal gives its tasks up. */
const MOST_LOOKS = 5;
const LOOK_INTERVAL_MS = 1_000;

const { WorkflowActivation } = proto.coresdk.workflow_activation;
const { WorkflowActivationCompletion } = proto.coresdk.workflow_completion;

/**
 * Runs workflows and activities as the SDK's `Worker` does. Options that are about the SDK's own threads change nothing:
 * `workflowThreadPoolSize`, `reuseV8Context`, `isolateExecutionTimeoutMs` and `patchActivationCallback`.
 */
export class WorkflowWorker extends Worker {
  protected static override async createWorkflowCreator(
    bundle: WorkflowBundleWithSourceMapAndFilename,
    { activities }: CompiledWorkerOptions,
    logger: Logger,
  ): Promise<WorkflowCreator> {
    const thread = await startThread({ bundle, activityNames: new Set(activities.keys()) }, logger);
    return {
      createWorkflow: async (options) => createWorkflow(thread, options),
      destroy: () => thread.destroy(),
    };
  }
}

type WorkflowThread = Awaited<ReturnType<typeof startThread>>;

/** The sandbox of the workflow is made with its first activation. */
function createWorkflow(thread: WorkflowThread, options: WorkflowCreateOptions): Workflow {
  const { runId, unsafe } = options.info;
  const { now: _now, random: _random, ...plain } = unsafe;
  let create: WorkflowCreateOptions | undefined = {
    ...options,
    // Functions cannot be given to a thread; there they are made anew.
    info: { ...options.info, unsafe: plain as typeof unsafe },
  };
  let sinkCalls: SinkCall[] = [];
  return {
    async activate(activation) {
      const request = { runId, ...(create ? { create } : {}) };
      create = undefined;
      const activated = await thread.ask({
        ...request,
        activation: new Uint8Array(WorkflowActivation.encode(activation).finish()),
      });
      sinkCalls.push(...activated.sinkCalls.map(withFunctions));
      return WorkflowActivationCompletion.decode(activated.completion);
    },
    async getAndResetSinkCalls() {
      const calls = sinkCalls;
      sinkCalls = [];
      return calls;
    },
    async dispose() {
      thread.tell({ dispose: runId });
    },
  };
}

function withFunctions(call: SinkCall): SinkCall {
  const unsafe = {
    ...call.workflowInfo.unsafe,
    now: Date.now,
    random: createUnsafeRandomSource(Math.random),
  };
  return { ...call, workflowInfo: { ...call.workflowInfo, unsafe } };
}

interface Waiting {
  resolve: (activated: Activated) => void;
  reject: (error: unknown) => void;
}

/** @throws Error when the thread cannot be started, or the bundle not be loaded. */
async function startThread(data: ThreadData, logger: Pick<Logger, 'error'>) {
  const thread = new Thread(path.join(import.meta.dirname, 'workflow-thread.ts'), { workerData: data });
  const ended = new Promise<void>((resolve) => thread.once('exit', () => resolve()));
  const waiting = new Map<number, Waiting>();
  let lastId = 0;
  let failure: Error | undefined;

  await new Promise<void>((resolve, reject) => {
    thread.once('message', () => resolve());
    thread.once('error', reject);
    void ended.then(() => reject(new Error('the thread of the workflows has ended while it started')));
  });
  thread.on('message', (answer: Answer) => {
    const asked = waiting.get(answer.id);
    waiting.delete(answer.id);
    if ('error' in answer) asked?.reject(Object.assign(new Error(), answer.error));
    else asked?.resolve(answer);
  });
  thread.on('error', (error: Error) => {
    failure = error;
  });
  const looks = endWhenHung(thread, waiting, logger);
  void ended.then(() => {
    clearInterval(looks);
    failure = new UnexpectedError(
      `The thread of the workflows has ended: ${failure?.message ?? 'it was stopped'}`,
      failure,
    );
    for (const { reject } of waiting.values()) reject(failure);
    waiting.clear();
  });

  const send = (message: Message, transfer: ArrayBuffer[] = []) => thread.postMessage(message, transfer);
  return {
    /** @throws what the thread fails with; UnexpectedError when it has ended. */
    ask(request: Omit<Request, 'id'> & { activation: Uint8Array<ArrayBuffer> }): Promise<Activated> {
      return new Promise((resolve, reject) => {
        if (failure) return reject(failure);
        lastId += 1;
        waiting.set(lastId, { resolve, reject });
        send({ id: lastId, ...request }, [request.activation.buffer]);
      });
    },
    tell: (message: Exclude<Message, Request>) => send(message),
    /** Looked at until the end: one that hangs would be waited for in vain. */
    async destroy(): Promise<void> {
      send('destroy');
      await ended;
    },
  };
}

/** Counts looks and not time: a process that was stopped for a while finds its answers after the next look. */
function endWhenHung(
  thread: Thread,
  waiting: ReadonlyMap<number, unknown>,
  logger: Pick<Logger, 'error'>,
): NodeJS.Timeout {
  let oldestBefore: number | undefined;
  let looks = 0;
  return setInterval(() => {
    const [oldest] = waiting.keys();
    looks = oldest !== undefined && oldest === oldestBefore ? looks + 1 : 0;
    oldestBefore = oldest;
    if (looks !== MOST_LOOKS) return;
    logger.error('Workflow code does not come to an end; its thread is ended, and the worker with it');
    void thread.terminate();
  }, LOOK_INTERVAL_MS).unref();
}
