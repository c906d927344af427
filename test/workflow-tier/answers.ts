/** What a fake of an activity or of a child answers, and when. */

export type Outcome<Result = unknown> = { result: Result } | { error: unknown };
export type Answer<Result> = Result | Promise<Result> | Held<Result>;
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
