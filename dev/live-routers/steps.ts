/** The steps of a live run: each has a name, a time, and what was seen, up to the one that failed. */
import { ConnectError } from '../../activities/subscription/router/connect.ts';
import { MalformedError } from '../../activities/subscription/router/blocks.ts';
import type { RouterError, RouterResult } from '../../activities/subscription/router/ports.ts';

export type Seen = Record<string, string | number | boolean>;

export interface Step {
  step: string;
  ms: number;
  /** Ids, statuses, versions: never a key, a password or a code. */
  seen: Seen;
  /** Why it failed. */
  error?: string;
}

/** A step did not come to what it must. */
export class StepFailed extends Error {
  override name = 'StepFailed';
}

/** What is the doing of a router. */
const EXPECTED = [StepFailed, ConnectError, MalformedError];

export interface Steps {
  /** @throws StepFailed once it has been told. */
  run<Value>(step: string, work: (see: (seen: Seen) => void) => Promise<Value>): Promise<Value>;
}

/** @throws StepFailed when the run was stopped. */
export function goOn(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw new StepFailed('stopped');
}

/** @param signal what ends them: no further step begins. */
export function createSteps(tell: (step: Step) => void, signal?: AbortSignal): Steps {
  return {
    async run(step, work) {
      const startedAt = performance.now();
      const seen: Seen = {};
      const told = (error?: string): void =>
        tell({
          ...{ step, ms: Math.round(performance.now() - startedAt), seen },
          ...(error === undefined ? {} : { error }),
        });
      try {
        goOn(signal);
        const value = await work((more) => Object.assign(seen, more));
        told();
        return value;
      } catch (error) {
        told(error instanceof ConnectError ? textOf(error.error) : (error as Error).message);
        if (EXPECTED.some((one) => error instanceof one)) throw new StepFailed(step);
        throw error;
      }
    },
  };
}

/** @throws StepFailed with what the router said, or failed to say. */
export function must<Value>(result: RouterResult<Value> | undefined): Value {
  if (result?.ok) return result.value;
  throw new StepFailed(result ? textOf(result.error) : 'no answer');
}

/** @throws StepFailed when it is anything else. */
export function mustBe(actual: string, wanted: string, hint?: string): void {
  if (actual !== wanted) throw new StepFailed(`${actual} instead of ${wanted}${hint ? `: ${hint}` : ''}`);
}

/** `SMP AUTH`, or `ok`. */
export const outcomeOf = (result: RouterResult<unknown> | undefined): string =>
  result === undefined ? 'no answer' : result.ok ? 'ok' : textOf(result.error);

const textOf = ({ source, code, detail }: RouterError): string =>
  [source, code, ...(detail === undefined ? [] : [`(${detail})`])].join(' ');
