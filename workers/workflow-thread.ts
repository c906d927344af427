/**
 * The thread in which the workflows of a worker run, in the SDK's sandbox. workflow-worker.ts starts it, and says what
 * differs from the SDK's own thread.
 */
import vm from 'node:vm';
import { parentPort, workerData } from 'node:worker_threads';
import { IllegalStateError } from '@temporalio/common';
import proto from '@temporalio/proto';
import type { Workflow, WorkflowCreateOptions } from '@temporalio/worker/lib/workflow/interface.js';
import { ReusableVMWorkflowCreator } from '@temporalio/worker/lib/workflow/reusable-vm.js';
import type { WorkflowBundleWithSourceMapAndFilename } from '@temporalio/worker/lib/workflow/workflow-worker-thread/input.js';
import type { SinkCall } from '@temporalio/workflow';
import type { Sandbox } from './promise-stacks.ts';
import { keepStacksOf, replacePromiseHook } from './promise-stacks.ts';

/** What the thread is started with. It sends `undefined` once it is ready. */
export interface ThreadData {
  bundle: WorkflowBundleWithSourceMapAndFilename;
  activityNames: Set<string>;
}

/** What the thread is asked for, and answers. */
export interface Request {
  id: number;
  runId: string;
  /** With the first activation of a workflow. */
  create?: WorkflowCreateOptions;
  /** An encoded `WorkflowActivation`. */
  activation: Uint8Array;
}
/** What it is told, in the order of the requests. */
export type Message = Request | { dispose: string } | 'destroy';

export interface Activated {
  /** An encoded `WorkflowActivationCompletion`. */
  completion: Uint8Array<ArrayBuffer>;
  /** Without the functions in what they are about. */
  sinkCalls: SinkCall[];
}
export type Answer = { id: number } & (Activated | { error: Pick<Error, 'name' | 'message' | 'stack'> });

const { WorkflowActivation } = proto.coresdk.workflow_activation;
const { WorkflowActivationCompletion } = proto.coresdk.workflow_completion;

class SandboxedWorkflows extends ReusableVMWorkflowCreator {
  readonly sandbox: Sandbox = {
    // What V8 itself puts into a context is only seen from within.
    ...(vm.runInContext('({ Promise, Error })', this.context) as Pick<Sandbox, 'Promise' | 'Error'>),
    activator: () => this.context.__TEMPORAL_ACTIVATOR__,
  };

  override async createWorkflow(options: WorkflowCreateOptions): Promise<Workflow> {
    const workflow = await super.createWorkflow(options);
    keepStacksOf(this.sandbox.activator()!);
    return workflow;
  }
}

const { workflowByRunId } = ReusableVMWorkflowCreator;

const { bundle, activityNames } = workerData as ThreadData;
const keepBareStacks = replacePromiseHook();
// Node knows the absence of a time limit, the SDK's types do not.
const workflows = await SandboxedWorkflows.create(bundle, undefined as unknown as number, activityNames);
keepBareStacks(workflows.sandbox);

const port = parentPort!;
port.on('message', (message: Message) => {
  if (message === 'destroy') return void workflows.destroy().finally(() => process.exit());
  if ('dispose' in message)
    return void workflowByRunId
      .get(message.dispose)
      ?.dispose()
      .catch(() => undefined);
  const { id } = message;
  activate(message)
    .then((activated) =>
      port.postMessage({ id, ...activated } satisfies Answer, [activated.completion.buffer]),
    )
    .catch(({ name, message, stack }: Error) =>
      port.postMessage({
        id,
        error: { name, message, ...(stack === undefined ? {} : { stack }) },
      } satisfies Answer),
    );
});
// Ready.
port.postMessage(undefined);

async function activate({ runId, create, activation }: Request): Promise<Activated> {
  if (create) await workflows.createWorkflow(create);
  const workflow = workflowByRunId.get(runId);
  if (workflow === undefined)
    throw new IllegalStateError(`no workflow with run id ${runId} is in this thread`);
  const completion = await workflow.activate(WorkflowActivation.decode(activation));
  const sinkCalls = await workflow.getAndResetSinkCalls();
  return {
    // A copy: what the encoder returns is part of a buffer that others use as well.
    completion: new Uint8Array(WorkflowActivationCompletion.encode(completion).finish()),
    sinkCalls: sinkCalls.map(withoutFunctions),
  };
}

/** Functions cannot leave the thread. */
function withoutFunctions(call: SinkCall): SinkCall {
  const { now: _now, random: _random, ...unsafe } = call.workflowInfo.unsafe;
  return { ...call, workflowInfo: { ...call.workflowInfo, unsafe } } as SinkCall;
}
