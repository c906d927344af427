/**
 * The workflow tier: runs workflows of the service's bundle in the SDK's sandbox, without a server and in virtual time. The
 * test plays the activities; this tier plays Temporal: retries, time-outs, timers, children, signals, updates, cancellation.
 *
 * Virtual time stands still while anything is due. It then jumps to the next timer, retry or time-out, so that a ladder of
 * hours takes milliseconds. The order of jobs in an activation, and the answers to cancellations, are those of the SDK's core
 * (`workflow_activation.proto` and the state machines of sdk-core) and of Temporal's server.
 */
import { readFile } from 'node:fs/promises';
import type { SearchAttributePair } from '@temporalio/common';
import {
  CancelledFailure,
  TypedSearchAttributes,
  WorkflowExecutionAlreadyStartedError,
} from '@temporalio/common';
import type { coresdk } from '@temporalio/proto';
import proto from '@temporalio/proto';
import { workflowBundle } from '../workers/workflow-bundle.ts';
import type * as workflows from '../workflows/index.ts';
import type { Workflow } from './sdk-internals.ts';
import {
  ReusableVMWorkflowCreator,
  createUnsafeRandomSource,
  globalHandlers,
  parseWorkflowCode,
} from './sdk-internals.ts';
import type { ActivityCall, ActivityCommand, AnyFunction, Outcome } from './workflow-tier/activity.ts';
import { Activity, answerOf, valueOf } from './workflow-tier/activity.ts';
import type { Due } from './workflow-tier/clock.ts';
import { Clock, MOST_STEPS } from './workflow-tier/clock.ts';
import type { Fields } from './workflow-tier/payloads.ts';
import {
  attributesOf,
  durationOf,
  errorOf,
  failureOfChild,
  fieldsOf,
  payloadOf,
  payloadsOf,
  timestampOf,
  valueOfPayload,
  valuesOf,
} from './workflow-tier/payloads.ts';

export { type Fakes, hold, silence } from './workflow-tier/activity.ts';

type Job = coresdk.workflow_activation.IWorkflowActivationJob;
type Command = coresdk.workflow_commands.IWorkflowCommand;
type ChildCommand = coresdk.workflow_commands.IStartChildWorkflowExecution;
type ChildResult = coresdk.child_workflow.IChildWorkflowResult;

type Workflows = typeof workflows;
type ResultOf<Type extends keyof Workflows> = Awaited<ReturnType<Workflows[Type]>>;
type ArgsOf<Activity> = NonNullable<Activity> extends (...args: infer Args) => unknown ? Args : never;

const { WorkflowActivation } = proto.coresdk.workflow_activation;
const { START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS } =
  proto.coresdk.child_workflow.StartChildWorkflowExecutionFailedCause;
const NAMESPACE = 'default';
const BEGINNING_MS = Date.UTC(2026, 0, 1, 12);
/** The workflows of older tests lose theirs. */
const MOST_SANDBOXES = 50;

/** Children by their type. One that throws `WorkflowExecutionAlreadyStartedError` is not started. */
type Children = {
  [Type in keyof Workflows]?: (...args: Parameters<Workflows[Type]>) => ResultOf<Type>;
};

interface WorkflowOptions<Activities extends object> {
  activities?: Activities;
  children?: Children;
  searchAttributes?: SearchAttributePair[];
}

type Maybe<Found> = Found | undefined | false;

/** The arguments with which a run begins. */
interface Beginning {
  workflowType: string;
  args: unknown[];
}

interface PendingUpdate<Value = unknown> {
  outcome?: Outcome<Value>;
}

/** Starts a workflow of the bundle. It does nothing before the test lets time go on. */
export async function startWorkflow<Type extends keyof Workflows, Activities extends object>(
  workflowType: Type,
  args: Parameters<Workflows[Type]>,
  options: WorkflowOptions<Activities> = {},
): Promise<WorkflowRun<Activities, ResultOf<Type>>> {
  const run = new WorkflowRun<Activities, ResultOf<Type>>(
    await (sandbox ??= loadSandbox()),
    `${workflowType}-1`,
    options,
  );
  started.push(run);
  if (started.length > MOST_SANDBOXES) await started.shift()!.dispose();
  run.begin({ workflowType, args }, fieldsOf(new TypedSearchAttributes(options.searchAttributes ?? [])));
  return run;
}

/** Of this process: loading the bundle takes as long as a hundred tests. */
let sandbox: Promise<ReusableVMWorkflowCreator> | undefined;
const started: { dispose(): Promise<void> }[] = [];
let runs = 0;

async function loadSandbox(): Promise<ReusableVMWorkflowCreator> {
  const { codePath } = await workflowBundle();
  const bundle = parseWorkflowCode(await readFile(codePath, 'utf8'), codePath);
  // The SDK's hook writes a call stack for each promise of this process, also for those of other tests.
  Object.assign(globalHandlers, { setPromiseHook: () => undefined });
  // Node knows the absence of a time limit, the SDK's types do not; the limit starts a thread for each activation. With an
  // activity named `default` the SDK takes every local activity as registered.
  return ReusableVMWorkflowCreator.create(bundle, undefined as unknown as number, new Set(['default']));
}

/** One workflow, through all the runs of its chain. */
export class WorkflowRun<Activities extends object = object, Result = unknown> {
  readonly workflowId: string;
  /** Of each run after the first one. */
  readonly continuations: Beginning[] = [];
  /** Events of the current run, as the server would count them; the workflow sees it with its next task. */
  historyLength = 0;

  private readonly creator: ReusableVMWorkflowCreator;
  private readonly options: WorkflowOptions<object>;
  private readonly clock = new Clock(BEGINNING_MS);
  private readonly callsByType = new Map<string, ActivityCall[]>();
  private workflow: Workflow | undefined;
  private runId = '';
  private fields: Fields = {};
  private inbox: Job[] = [];
  private outcome: Outcome<Result> | undefined;
  private readonly timers = new Map<number, Due>();
  private readonly activities = new Map<number, Activity>();
  private readonly updates = new Map<string, PendingUpdate>();

  constructor(creator: ReusableVMWorkflowCreator, workflowId: string, options: WorkflowOptions<object>) {
    this.creator = creator;
    this.workflowId = workflowId;
    this.options = options;
  }

  get nowMs(): number {
    return this.clock.nowMs;
  }

  get searchAttributes(): TypedSearchAttributes {
    return attributesOf(this.fields);
  }

  /** Every attempt of an activity so far. */
  calls<Name extends keyof Activities & string>(name: Name) {
    return this.callsOf(name) as ActivityCall<ArgsOf<Activities[Name]>>[];
  }

  /** Lets virtual time pass. Without an argument: does all that is due now. */
  async advance(ms = 0): Promise<void> {
    const { clock } = this;
    const untilMs = clock.nowMs + ms;
    while (clock.nextMs <= untilMs) await this.step();
    clock.nowMs = untilMs;
  }

  /**
   * Lets virtual time pass until the condition finds something.
   *
   * @returns what it found. @throws Error that says which activities and timers are open.
   */
  async until<Found>(what: string, condition: () => Maybe<Found> | Promise<Maybe<Found>>): Promise<Found> {
    for (let steps = 0; ; steps += 1) {
      const found = await condition();
      if (found) return found;
      const isIdle = this.clock.nextMs === Infinity;
      if (isIdle || steps >= MOST_STEPS) {
        const end = isIdle ? 'nothing is due any more' : `it did not come within ${steps} steps`;
        const open = [...this.activities.values()].map((activity) => activity.describe());
        open.push(`${this.timers.size} timers`);
        throw new Error(`waited in vain for ${what}: ${end}\n${this.workflowId} has ${open.join(', ')}`);
      }
      await this.step();
    }
  }

  /** @returns the workflow's result, through all its runs. @throws its failure, or a CancelledFailure. */
  async result(): Promise<Result> {
    return valueOf(await this.until(`the end of ${this.workflowId}`, () => this.outcome));
  }

  /** Stops where the workflow continues as new. The new run begins when time goes on. */
  continuation(): Promise<Beginning> {
    const before = this.continuations.length;
    return this.until(`${this.workflowId} to continue as new`, () => this.continuations[before]);
  }

  signal(name: string, ...args: unknown[]): void {
    this.deliver({ signalWorkflow: { signalName: name, input: payloadsOf(args) } });
  }

  cancel(): void {
    this.deliver({ cancelWorkflow: { reason: 'the test cancels it' } });
  }

  /** Sends an update, whose outcome comes while time goes on. */
  sendUpdate<Value>(name: string, ...args: unknown[]): PendingUpdate<Value> {
    const id = `update-${this.updates.size + 1}`;
    const update: PendingUpdate<Value> = {};
    this.updates.set(id, update);
    const input = payloadsOf(args);
    this.deliver({ doUpdate: { id, protocolInstanceId: id, name, input, runValidator: true } });
    return update;
  }

  /** Sends an update and waits for its outcome. @throws the reason of a rejection. */
  async update<Value>(name: string, ...args: unknown[]): Promise<Value> {
    const update = this.sendUpdate<Value>(name, ...args);
    return valueOf(await this.until(`the update ${name}`, () => update.outcome));
  }

  async query<Value>(name: string, ...args: unknown[]): Promise<Value> {
    if (!this.workflow) await this.step();
    const query = { queryId: 'query', queryType: name, arguments: payloadsOf(args) };
    const [answer] = await this.activateWith([{ queryWorkflow: query }]);
    const { failed, succeeded } = answer!.respondToQuery!;
    if (failed) throw errorOf(failed);
    return valueOfPayload(succeeded?.response);
  }

  /** The text that Temporal's Web UI shows. */
  async details(): Promise<string> {
    return (await this.query<{ currentDetails: string }>('__temporal_workflow_metadata')).currentDetails;
  }

  /** @internal Begins a run. */
  begin({ workflowType, args }: Beginning, fields: Fields): void {
    this.fields = fields;
    this.clock.schedule(0, async () => {
      const { nowMs } = this.clock;
      const runId = `run-${(runs += 1)}`;
      const startTime = new Date(nowMs);
      await this.dispose();
      this.runId = runId;
      this.historyLength = 1;
      this.workflow = await this.creator.createWorkflow({
        info: {
          workflowType,
          workflowId: this.workflowId,
          runId,
          namespace: NAMESPACE,
          taskQueue: 'virtual',
          firstExecutionRunId: runId,
          originalExecutionRunId: runId,
          attempt: 1,
          ...{ searchAttributes: {}, typedSearchAttributes: attributesOf(fields) },
          startTime,
          runStartTime: startTime,
          taskTimeoutMs: 10_000,
          historyLength: 1,
          historySize: 0,
          continueAsNewSuggested: false,
          targetWorkerDeploymentVersionChanged: false,
          unsafe: {
            now: Date.now,
            random: createUnsafeRandomSource(Math.random),
            isReplaying: false,
            isReplayingHistoryEvents: false,
          },
        },
        now: nowMs,
        randomnessSeed: [...Buffer.from(runId)],
        showStackTraceSources: false,
      });
      this.inbox.push({
        initializeWorkflow: { workflowType, workflowId: this.workflowId, arguments: payloadsOf(args) },
      });
    });
  }

  /** Does all that is due next, gives the workflow what has come for it in one activation, and does what it then asks for. */
  private async step(): Promise<void> {
    await this.clock.tick();
    const jobs = this.inbox.splice(0).sort((one, other) => rankOf(one) - rankOf(other));
    if (jobs.length === 0 || this.outcome) return;
    this.historyLength += jobs.reduce((sum, job) => sum + eventsOf(job), 2);
    const commands = await this.activateWith(jobs);
    this.historyLength += 1 + commands.length;
    for (const command of commands) this.obey(command);
  }

  /** @internal */
  async dispose(): Promise<void> {
    await this.workflow?.dispose();
    this.workflow = undefined;
  }

  private callsOf(activityType: string): ActivityCall[] {
    const calls = this.callsByType.get(activityType) ?? [];
    this.callsByType.set(activityType, calls);
    return calls;
  }

  private deliver(job: Job): void {
    this.clock.schedule(0, () => void this.inbox.push(job));
  }

  private async activateWith(jobs: Job[]): Promise<Command[]> {
    const activation = WorkflowActivation.fromObject({
      runId: this.runId,
      timestamp: timestampOf(this.nowMs),
      jobs,
      historyLength: this.historyLength,
      continueAsNewSuggested: false,
    });
    const { failed, successful } = await this.workflow!.activate(activation);
    // Log lines, which no test reads.
    await this.workflow!.getAndResetSinkCalls();
    if (!failed) return successful!.commands ?? [];
    const cause = errorOf(failed.failure);
    throw new Error(`a workflow task of ${this.workflowId} fails: ${cause.message}`, { cause });
  }

  private obey(command: Command): void {
    const activity = command.scheduleActivity ?? command.scheduleLocalActivity;
    const cancelled = command.requestCancelActivity ?? command.requestCancelLocalActivity;
    if (command.startTimer) {
      this.startTimer(command.startTimer.seq!, durationOf(command.startTimer.startToFireTimeout)!);
    } else if (command.cancelTimer) {
      this.clock.drop(this.timers.get(command.cancelTimer.seq!));
      this.timers.delete(command.cancelTimer.seq!);
    } else if (activity) {
      this.scheduleActivity(activity, command.scheduleLocalActivity === activity);
    } else if (cancelled) {
      this.activities.get(cancelled.seq!)?.cancel();
    } else if (command.startChildWorkflowExecution) {
      this.startChild(command.startChildWorkflowExecution);
    } else if (command.upsertWorkflowSearchAttributes) {
      Object.assign(this.fields, command.upsertWorkflowSearchAttributes.searchAttributes!.indexedFields);
    } else if (command.updateResponse) {
      const { protocolInstanceId, rejected, completed } = command.updateResponse;
      const update = this.updates.get(protocolInstanceId!)!;
      if (rejected) update.outcome = { error: errorOf(rejected) };
      else if (completed) update.outcome = { result: valueOfPayload(completed) };
    } else if (command.completeWorkflowExecution) {
      this.end({ result: valueOfPayload(command.completeWorkflowExecution.result) });
    } else if (command.failWorkflowExecution) {
      this.end({ error: errorOf(command.failWorkflowExecution.failure) });
    } else if (command.cancelWorkflowExecution) {
      this.end({ error: new CancelledFailure(`${this.workflowId} is cancelled`) });
    } else if (command.continueAsNewWorkflowExecution) {
      const { workflowType, searchAttributes, ...rest } = command.continueAsNewWorkflowExecution;
      const beginning = { workflowType: workflowType!, args: valuesOf(rest.arguments) };
      this.continuations.push(beginning);
      this.dropAll();
      // What comes for the former run does not reach the new one, whose commands have the same numbers.
      this.inbox = [];
      this.begin(beginning, searchAttributes?.indexedFields ?? this.fields);
    } else {
      throw new Error(`test/workflow-tier.ts does not know this command: ${JSON.stringify(command)}`);
    }
  }

  private startTimer(seq: number, ms: number): void {
    const { inbox } = this;
    const fire = () => {
      this.timers.delete(seq);
      inbox.push({ fireTimer: { seq } });
    };
    this.timers.set(seq, this.clock.schedule(ms, fire));
  }

  private scheduleActivity(command: ActivityCommand, isLocal: boolean): void {
    const { clock, options } = this;
    const name = command.activityType!;
    const fake = (options.activities as Record<string, AnyFunction> | undefined)?.[name];
    if (!fake) throw new Error(`${this.workflowId} calls the activity ${name}, which the test does not fake`);
    const { inbox } = this;
    const resolve = (result: coresdk.activity_result.IActivityResolution) => {
      if (inbox === this.inbox) this.activities.delete(command.seq!);
      inbox.push({ resolveActivity: { seq: command.seq!, isLocal, result } });
    };
    const activity = new Activity(command, {
      clock,
      isLocal,
      fake,
      calls: this.callsOf(name),
      resolve,
    });
    this.activities.set(command.seq!, activity);
  }

  private startChild(command: ChildCommand): void {
    const { clock, options } = this;
    const seq = command.seq!;
    const [workflowType, workflowId] = [command.workflowType!, command.workflowId!];
    const args = valuesOf(command.input);
    const fake = options.children?.[workflowType as keyof Workflows];
    if (!fake)
      throw new Error(`${this.workflowId} starts a child ${workflowType}, which the test does not fake`);
    const { inbox } = this;
    const resultOf = (outcome: Outcome): ChildResult => {
      if (!('error' in outcome)) return { completed: { result: payloadOf(outcome.result) } };
      const failure = failureOfChild(workflowId, workflowType, outcome.error as Error);
      return outcome.error instanceof CancelledFailure ? { cancelled: { failure } } : { failed: { failure } };
    };
    clock.schedule(0, async () => {
      const outcome = (await answerOf(fake, args)) as Outcome;
      if ('error' in outcome && outcome.error instanceof WorkflowExecutionAlreadyStartedError) {
        const cause = START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS;
        const failed = { workflowId, workflowType, cause };
        inbox.push({ resolveChildWorkflowExecutionStart: { seq, failed } });
        return;
      }
      const succeeded = { runId: `${workflowId}/run` };
      inbox.push({ resolveChildWorkflowExecutionStart: { seq, succeeded } });
      // The parent hears of the end in another task, after the task of the start.
      clock.schedule(0, () => {
        inbox.push({ resolveChildWorkflowExecution: { seq, result: resultOf(outcome) } });
      });
    });
  }

  private end(outcome: Outcome<Result>): void {
    this.outcome = outcome;
    this.dropAll();
  }

  /** A run that is over waits for nothing. */
  private dropAll(): void {
    for (const timer of this.timers.values()) this.clock.drop(timer);
    for (const activity of this.activities.values()) activity.abandon();
    for (const open of [this.timers, this.activities]) open.clear();
  }
}

/** The order of jobs in an activation: the beginning, signals and updates, all others, local activities. */
function rankOf({ initializeWorkflow, signalWorkflow, doUpdate, resolveActivity }: Job): number {
  if (initializeWorkflow) return 0;
  if (signalWorkflow ?? doUpdate) return 1;
  return resolveActivity?.isLocal ? 3 : 2;
}

/** How many events of the history a job comes from. Markers and updates are counted as commands. */
function eventsOf({ initializeWorkflow, resolveActivity, doUpdate }: Job): number {
  if (initializeWorkflow ?? doUpdate ?? resolveActivity?.isLocal) return 0;
  return resolveActivity ? 2 : 1;
}
