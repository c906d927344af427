/** A child workflow from its command to the resolutions that the parent gets. */
import {
  CancelledFailure,
  ChildWorkflowFailure,
  RetryState,
  WorkflowExecutionAlreadyStartedError,
  ensureApplicationFailure,
} from '@temporalio/common';
import type { coresdk } from '@temporalio/proto';
import proto from '@temporalio/proto';
import type { AnyFunction, Outcome } from './answers.ts';
import { Held, answerOf } from './answers.ts';
import type { Clock, Due } from './clock.ts';
import { failureOf, payloadOf, valuesOf } from './payloads.ts';

const { ABANDON, WAIT_CANCELLATION_COMPLETED } = proto.coresdk.child_workflow.ChildWorkflowCancellationType;
const { PARENT_CLOSE_POLICY_ABANDON, PARENT_CLOSE_POLICY_REQUEST_CANCEL } =
  proto.coresdk.child_workflow.ParentClosePolicy;
const { WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE, WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY } =
  proto.temporal.api.enums.v1.WorkflowIdReusePolicy;
const { START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS } =
  proto.coresdk.child_workflow.StartChildWorkflowExecutionFailedCause;

export type ChildCommand = coresdk.workflow_commands.IStartChildWorkflowExecution;

/** By workflow id, also of fakes. */
export type Executions = Map<string, 'open' | 'completed' | 'failed'>;

/** A child that runs as a workflow of the bundle. */
export interface RunningChild {
  cancel(): void;
  terminate(): void;
}

interface ChildOptions {
  clock: Clock;
  executions: Executions;
  /** Runs the child as a workflow of the bundle, or a fake answers for it. */
  how: { run(onEnd: (outcome: Outcome) => void): RunningChild } | { fake: AnyFunction };
  resolve(job: coresdk.workflow_activation.IWorkflowActivationJob): void;
  /** The parent no longer waits for it. */
  forget(): void;
}

export class Child {
  readonly command: ChildCommand;
  private readonly options: ChildOptions;
  private readonly clock: Clock;
  private readonly start: Due;
  private running: RunningChild | undefined;
  private held: Held | undefined;
  private hasStarted = false;
  private isOver = false;

  constructor(command: ChildCommand, options: ChildOptions) {
    this.command = command;
    this.options = options;
    this.clock = options.clock;
    this.start = this.clock.schedule(0, () => this.begin());
  }

  /** Does what the type of cancellation says (child_workflow_state_machine.rs). */
  cancel(): void {
    const { seq, cancellationType } = this.command;
    const failure = failureOf(this.childFailure(new CancelledFailure('cancelled')));
    if (!this.hasStarted) {
      this.clock.drop(this.start);
      this.clock.schedule(0, () => {
        this.options.resolve({ resolveChildWorkflowExecutionStart: { seq: seq!, cancelled: { failure } } });
      });
      return this.options.forget();
    }
    if (cancellationType !== ABANDON) {
      this.running?.cancel();
      if (this.held) this.held.isCancelRequested = true;
    }
    if (cancellationType === WAIT_CANCELLATION_COMPLETED) return;
    this.clock.schedule(0, () => this.resolve({ cancelled: { failure } }));
  }

  parentHasEnded(): void {
    this.isOver = true;
    const { parentClosePolicy } = this.command;
    if (parentClosePolicy === PARENT_CLOSE_POLICY_REQUEST_CANCEL) this.running?.cancel();
    else if (parentClosePolicy !== PARENT_CLOSE_POLICY_ABANDON) this.running?.terminate();
  }

  private async begin(): Promise<void> {
    const { workflowId, input } = this.command;
    const { executions, how } = this.options;
    if (this.isTaken(executions.get(workflowId!))) return this.refuse();
    if ('run' in how) {
      this.running = how.run((outcome) => this.conclude(outcome));
      return this.begun();
    }
    const answer = await answerOf(how.fake, valuesOf(input));
    if ('error' in answer && answer.error instanceof WorkflowExecutionAlreadyStartedError)
      return this.refuse();
    executions.set(workflowId!, 'open');
    this.begun();
    if (!(answer instanceof Held)) return this.conclude(answer);
    this.held = answer;
    answer.whenSettled((outcome) => this.conclude(outcome));
  }

  private isTaken(execution: 'open' | 'completed' | 'failed' | undefined): boolean {
    const policy = this.command.workflowIdReusePolicy;
    if (execution === undefined || execution === 'open') return execution === 'open';
    if (policy === WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE) return true;
    return policy === WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY && execution === 'completed';
  }

  private begun(): void {
    this.hasStarted = true;
    const { seq, workflowId } = this.command;
    const succeeded = { runId: `${workflowId}/run` };
    this.options.resolve({ resolveChildWorkflowExecutionStart: { seq: seq!, succeeded } });
  }

  private refuse(): void {
    const { seq, workflowId, workflowType } = this.command;
    const cause = START_CHILD_WORKFLOW_EXECUTION_FAILED_CAUSE_WORKFLOW_ALREADY_EXISTS;
    const failed = { workflowId: workflowId!, workflowType: workflowType!, cause };
    this.options.forget();
    this.options.resolve({ resolveChildWorkflowExecutionStart: { seq: seq!, failed } });
  }

  /** The parent hears of it in another task, after the task of the start. */
  private conclude(outcome: Outcome): void {
    this.clock.schedule(0, () => {
      const isFailed = 'error' in outcome;
      this.options.executions.set(this.command.workflowId!, isFailed ? 'failed' : 'completed');
      if (!isFailed) return this.resolve({ completed: { result: payloadOf(outcome.result) } });
      const failure = failureOf(this.childFailure(outcome.error));
      const isCancelled = outcome.error instanceof CancelledFailure;
      this.resolve(isCancelled ? { cancelled: { failure } } : { failed: { failure } });
    });
  }

  private resolve(result: coresdk.child_workflow.IChildWorkflowResult): void {
    if (this.isOver) return;
    this.isOver = true;
    this.options.forget();
    this.options.resolve({ resolveChildWorkflowExecution: { seq: this.command.seq!, result } });
  }

  private childFailure(error: unknown): ChildWorkflowFailure {
    const { workflowId, workflowType } = this.command;
    const execution = { workflowId: workflowId!, runId: `${workflowId}/run` };
    const cause = error instanceof Error ? error : ensureApplicationFailure(error);
    return new ChildWorkflowFailure(
      'default',
      execution,
      workflowType!,
      RetryState.RETRY_POLICY_NOT_SET,
      cause,
    );
  }
}
