/**
 * An activity from its command to the resolution that the workflow gets, through all its attempts; and what the fake of an
 * activity or of a child answers, and when.
 */
import {
  ActivityFailure,
  CancelledFailure,
  RetryState,
  TimeoutFailure,
  TimeoutType,
  ensureApplicationFailure,
} from '@temporalio/common';
import type { coresdk } from '@temporalio/proto';
import proto from '@temporalio/proto';
import type { Clock, Due } from './clock.ts';
import { durationOf, failureOf, payloadOf, valuesOf } from './payloads.ts';

const { WAIT_CANCELLATION_COMPLETED } = proto.coresdk.workflow_commands.ActivityCancellationType;

export type Outcome<Result = unknown> = { result: Result } | { error: unknown };
type Answer<Result> = Result | Promise<Result> | Held<Result>;
export type AnyFunction = (...args: never[]) => unknown;

/** Fakes of an interface of activities. Each takes the arguments, and answers, throws, or holds its answer. */
export type Fakes<Interface> = {
  [Name in keyof Interface]?: Interface[Name] extends (...args: infer Args) => infer Result
    ? (...args: Args) => Answer<Awaited<Result>>
    : never;
};

/** An answer that comes when the test releases it, also after the workflow has asked for a cancellation. */
export class Held<Result = unknown> {
  /** The workflow has asked for a cancellation, and the activity knows it. */
  isCancelRequested = false;
  /** Sends heartbeats. */
  readonly isAlive: boolean;
  private outcome: Outcome<Result> | undefined;
  private readonly listeners: ((outcome: Outcome<Result>) => void)[] = [];

  constructor(isAlive: boolean) {
    this.isAlive = isAlive;
  }

  release(result: Result): void {
    this.settle({ result });
  }

  /** @param error a `CancelledFailure` confirms a cancellation. */
  fail(error: unknown): void {
    this.settle({ error });
  }

  whenSettled(listener: (outcome: Outcome<Result>) => void): void {
    if (this.outcome) listener(this.outcome);
    else this.listeners.push(listener);
  }

  private settle(outcome: Outcome<Result>): void {
    this.outcome = outcome;
    for (const listener of this.listeners.splice(0)) listener(outcome);
  }
}

/** An activity that is at work and sends heartbeats. */
export const hold = <Result>(): Held<Result> => new Held<Result>(true);

/** An activity whose process died: only a time-out ends it. */
export const silence = <Result>(): Held<Result> => new Held<Result>(false);

/** @throws what an assertion of the test throws in a fake: for the workflow it would be a failure to retry. */
export async function answerOf(fake: AnyFunction, args: unknown[]): Promise<Outcome | Held> {
  try {
    const result = await fake(...(args as never[]));
    return result instanceof Held ? result : { result };
  } catch (error) {
    if (error instanceof Error && 'matcherResult' in error) throw error;
    return { error };
  }
}

/** @throws the error of an outcome that has one. */
export function valueOf<Value>(outcome: Outcome<Value>): Value {
  if ('error' in outcome) throw outcome.error;
  return outcome.result;
}

export type ActivityCommand = coresdk.workflow_commands.IScheduleActivity &
  coresdk.workflow_commands.IScheduleLocalActivity;

export interface ActivityCall<Args = unknown[]> {
  args: Args;
  attempt: number;
  /** Virtual epoch ms. */
  atMs: number;
}

interface ActivityOptions {
  clock: Clock;
  isLocal: boolean;
  fake: AnyFunction;
  /** Every attempt is added. */
  calls: ActivityCall[];
  resolve(result: coresdk.activity_result.IActivityResolution): void;
}

export class Activity {
  private readonly command: ActivityCommand;
  private readonly options: ActivityOptions;
  private readonly clock: Clock;
  private attempt = 1;
  private next: Due | undefined;
  /** What ends the current attempt. */
  private ends: Due[] = [];
  private held: Held | undefined;
  private isCancelRequested = false;

  constructor(command: ActivityCommand, options: ActivityOptions) {
    this.command = command;
    this.options = options;
    this.clock = options.clock;
    this.next = this.clock.schedule(0, () => this.begin());
  }

  describe(): string {
    const what = `${this.command.activityType}, attempt ${this.attempt}`;
    return this.next ? `${what} in ${this.next.atMs - this.clock.nowMs} ms` : `${what}, which is held`;
  }

  /** Does what the type of cancellation says (activity_state_machine.rs, local_activity_state_machine.rs). */
  cancel(): void {
    this.isCancelRequested = true;
    if (this.held) this.held.isCancelRequested = true;
    // An attempt that is under way decides; between two attempts the server does.
    if (this.command.cancellationType === WAIT_CANCELLATION_COMPLETED && this.held) return;
    this.abandon();
    this.clock.schedule(0, () => this.resolveCancelled());
  }

  /** A later answer is ignored. */
  abandon(): void {
    this.clock.drop(this.next);
    this.endAttempt();
  }

  private async begin(): Promise<void> {
    const { attempt, clock } = this;
    const args = valuesOf(this.command.arguments);
    this.next = undefined;
    this.options.calls.push({ args, attempt, atMs: clock.nowMs });
    const answer = await answerOf(this.options.fake, args);
    if (!(answer instanceof Held)) return this.conclude(answer);
    this.held = answer;
    const { startToCloseTimeout, heartbeatTimeout } = this.command;
    this.timeOut(TimeoutType.START_TO_CLOSE, durationOf(startToCloseTimeout));
    if (!answer.isAlive) this.timeOut(TimeoutType.HEARTBEAT, durationOf(heartbeatTimeout));
    answer.whenSettled((outcome) => {
      if (this.held === answer) this.ends.push(clock.schedule(0, () => this.conclude(outcome)));
    });
  }

  private timeOut(type: TimeoutType, afterMs = Infinity): void {
    if (afterMs === Infinity) return;
    const error = new TimeoutFailure(`activity ${type} timeout`, undefined, type);
    this.ends.push(this.clock.schedule(afterMs, () => this.conclude({ error })));
  }

  private endAttempt(): void {
    for (const end of this.ends.splice(0)) this.clock.drop(end);
    this.held = undefined;
  }

  private conclude(outcome: Outcome): void {
    this.endAttempt();
    if ('result' in outcome)
      return this.options.resolve({ completed: { result: payloadOf(outcome.result) } });
    const { error } = outcome;
    if (error instanceof CancelledFailure && this.isCancelRequested) return this.resolveCancelled();
    const next = this.nextAttempt(error);
    if ('retryState' in next) return this.resolveFailed(error, next.retryState);
    this.attempt += 1;
    this.next = this.clock.schedule(next.delayMs, () => this.begin());
  }

  /** When the server, or for a local activity the core (retry_logic.rs), tries again. */
  private nextAttempt(error: unknown): { delayMs: number } | { retryState: RetryState } {
    const policy = this.command.retryPolicy ?? {};
    if (this.isCancelRequested) return { retryState: RetryState.CANCEL_REQUESTED };
    let nextRetryDelayMs: number | undefined;
    if (!(error instanceof TimeoutFailure)) {
      const { applicationFailureInfo: info } = failureOf(ensureApplicationFailure(error));
      if (info!.nonRetryable || policy.nonRetryableErrorTypes?.includes(info!.type!))
        return { retryState: RetryState.NON_RETRYABLE_FAILURE };
      nextRetryDelayMs = durationOf(info!.nextRetryDelay);
    }
    if (policy.maximumAttempts && this.attempt >= policy.maximumAttempts)
      return { retryState: RetryState.MAXIMUM_ATTEMPTS_REACHED };
    const initialMs = durationOf(policy.initialInterval) ?? 1_000;
    const maximumMs = durationOf(policy.maximumInterval) ?? 100 * initialMs;
    const ladderMs = initialMs * (policy.backoffCoefficient || 2) ** (this.attempt - 1);
    return { delayMs: nextRetryDelayMs ?? Math.min(maximumMs, ladderMs) };
  }

  private resolveFailed(error: unknown, retryState: RetryState): void {
    const { isLocal } = this.options;
    const isTimeout = error instanceof TimeoutFailure;
    const cause = isTimeout ? error : ensureApplicationFailure(error);
    const message = `${isLocal ? 'Local Activity' : 'Activity task'} ${isTimeout ? 'timed out' : 'failed'}`;
    // The failure of a local activity comes to the workflow as it is.
    const failure = isLocal && !isTimeout ? cause : this.activityFailure(message, retryState, cause);
    this.options.resolve({ failed: { failure: failureOf(failure) } });
  }

  private resolveCancelled(): void {
    const message = `${this.options.isLocal ? 'Local Activity' : 'Activity'} cancelled`;
    const cause = new CancelledFailure('cancelled');
    const failure = this.activityFailure(message, RetryState.CANCEL_REQUESTED, cause);
    this.options.resolve({ cancelled: { failure: failureOf(failure) } });
  }

  private activityFailure(message: string, retryState: RetryState, cause: Error): ActivityFailure {
    const { activityType, activityId } = this.command;
    return new ActivityFailure(message, activityType!, activityId!, retryState, undefined, cause);
  }
}
