/**
 * The SDK's worker, without a time limit for each call into a workflow.
 *
 * The SDK gives each call five seconds, so that workflow code without an end does not hold up all other workflows of its
 * thread. Node starts a thread for each such limit, and even a short workflow is called eight times: that was a quarter of
 * the process' CPU time. Here one look a second finds out whether the thread still answers. If it does not, it is ended.
 * Then the SDK fails the workflow tasks that the thread had in hand, as it does after five seconds, and Temporal makes them
 * again; the worker ends, as with any other end of that thread.
 */
import type { Worker as Thread } from 'node:worker_threads';
import type { Logger } from '@temporalio/common';
import { Worker } from '@temporalio/worker';
import type { CompiledWorkerOptions } from '@temporalio/worker/lib/worker-options.js';
import type { WorkflowCreator } from '@temporalio/worker/lib/workflow/interface.js';
import type { WorkflowBundleWithSourceMapAndFilename } from '@temporalio/worker/lib/workflow/workflow-worker-thread/input.js';

/** After so many looks at one unanswered request a thread counts as hung, some seconds before Temporal gives its tasks up. */
const MOST_LOOKS = 5;
const LOOK_INTERVAL_MS = 1_000;

/** What the SDK knows of a thread, and keeps to itself. Requests are answered in the order in which they are made. */
interface ThreadClient {
  workerThread: Pick<Thread, 'terminate'>;
  requestIdToCompletion: ReadonlyMap<bigint, unknown>;
}

/** Runs workflows and activities as the SDK's `Worker` does. */
export class WorkflowWorker extends Worker {
  protected static override async createWorkflowCreator(
    bundle: WorkflowBundleWithSourceMapAndFilename,
    options: CompiledWorkerOptions,
    logger: Logger,
  ): Promise<WorkflowCreator> {
    // Node knows the absence of a limit, the SDK's types do not.
    const unlimited = { ...options, isolateExecutionTimeoutMs: undefined as unknown as number };
    const creator = await super.createWorkflowCreator(bundle, unlimited, logger);
    const { workerThreadClients } = creator as unknown as { workerThreadClients: readonly ThreadClient[] };
    const looks = workerThreadClients.map((client) => endWhenHung(client, logger));
    return {
      createWorkflow: (settings) => creator.createWorkflow(settings),
      // Looked at until the end: a forced shutdown would wait without one for a thread that hangs.
      destroy: () => creator.destroy().finally(() => looks.forEach(clearInterval)),
    };
  }
}

/** Counts looks and not time: a process that was stopped for a while finds its answers after the next look. */
function endWhenHung(
  { workerThread, requestIdToCompletion }: ThreadClient,
  logger: Pick<Logger, 'error'>,
): NodeJS.Timeout {
  let oldestBefore: bigint | undefined;
  let looks = 0;
  return setInterval(() => {
    const [oldest] = requestIdToCompletion.keys();
    looks = oldest !== undefined && oldest === oldestBefore ? looks + 1 : 0;
    oldestBefore = oldest;
    if (looks !== MOST_LOOKS) return;
    logger.error('Workflow code does not come to an end; its thread is ended, and the worker with it');
    void workerThread.terminate();
  }, LOOK_INTERVAL_MS).unref();
}
