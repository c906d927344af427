/** The failures that a stand-in was told to have: whom they hit, how often, and which comes next. */
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** The right answer, this many milliseconds late. For the random load of `faults/`; a test holds answers instead. */
export interface DelayedAnswer {
  kind: 'delay';
  ms: number;
}

/** The right answer, once `until` is settled. */
export interface HeldAnswer {
  kind: 'hold';
  until: Promise<unknown>;
  /** Called for each request whose answer is held. */
  onArrival?(): void;
}

/** Answers that a test holds: pass `failure` to `fail` of a stand-in. */
export interface HeldAnswers {
  failure: HeldAnswer;
  /** Resolves when the first request has arrived. */
  arrived: Promise<void>;
  /** Lets the stand-in answer these requests and all later ones. */
  release(): void;
}

export function holdAnswers(): HeldAnswers {
  const arrival = Promise.withResolvers<void>();
  const { promise: until, resolve: release } = Promise.withResolvers<void>();
  return { failure: { kind: 'hold', until, onArrival: arrival.resolve }, arrived: arrival.promise, release };
}

/**
 * Waits until a late answer is due.
 *
 * @returns false if the stand-in stops first: its process could not end otherwise.
 */
export async function answerIsDue(
  failure: DelayedAnswer | HeldAnswer,
  stopping: AbortSignal,
): Promise<boolean> {
  if (stopping.aborted) return false;
  if (failure.kind === 'hold') {
    failure.onArrival?.();
    await Promise.race([failure.until.catch(() => undefined), once(stopping, 'abort')]);
  } else await sleep(failure.ms, undefined, { signal: stopping }).catch(() => undefined);
  return !stopping.aborted;
}

interface Script<Failure> {
  failure: Failure;
  /** How many requests fail; default: all until `heal`. */
  times?: number | undefined;
  /** Only each n-th request that it fits fails; default: each one. */
  every?: number | undefined;
}

export interface FailureScripts<Failure> {
  /** Of several that fit a request the oldest that is not used up decides. @param subject default: every one. */
  add(script: Script<Failure>, subject: string | undefined): void;
  /** The failure of a request about these subjects, any of which a script may name; counts as one of its times. */
  next(...subjects: string[]): Failure | undefined;
  heal(): void;
}

export function createFailureScripts<Failure>(): FailureScripts<Failure> {
  let scripts: {
    failure: Failure;
    subject: string | undefined;
    left: number;
    every: number;
    fitted: number;
  }[] = [];
  return {
    add: ({ failure, times = Number.POSITIVE_INFINITY, every = 1 }, subject) =>
      void scripts.push({ failure, subject, left: times, every, fitted: 0 }),
    next(...subjects) {
      const fits = (only: string | undefined): boolean => only === undefined || subjects.includes(only);
      const script = scripts.find((candidate) => {
        if (candidate.left === 0 || !fits(candidate.subject)) return false;
        candidate.fitted += 1;
        return candidate.fitted % candidate.every === 0;
      });
      if (script) script.left -= 1;
      return script?.failure;
    },
    heal: () => {
      scripts = [];
    },
  };
}
