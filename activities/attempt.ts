/**
 * Attempts of activities: their heartbeats, and whether one still counts. Temporal gives an activity to another process when
 * an attempt exceeds its time-out. A process that was stopped (SIGSTOP, a paused machine, a long garbage collection) does not
 * hear of that: it wakes and goes on. Its attempts are late, and write nothing over what their successors have written.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Info } from '@temporalio/activity';
import { ApplicationFailure, Context } from '@temporalio/activity';
import { ATTEMPT_LATE } from '../workflows/failures.ts';

/** The SDK holds a heartbeat back for as long after the previous one, ms; with a short time-out, for 80 % of it. */
export const HEARTBEAT_THROTTLE_MS = 2_000;
/** Local activities heartbeat through the SDK, which reports their workflow task within its time-out, ms. */
const WORKFLOW_TASK_TIMEOUT_MS = 10_000;

const PULSE_MS = 500;
/** An event loop that turns less often than this stands still, ms. */
const STALL_MS = 2 * PULSE_MS;
/** A process has begun everything that arrived while it stood still this long after it woke up, ms. */
const ARRIVED_MS = 1_000;

/** Often enough for every heartbeat time-out in workflows/policies.ts, ms. */
const HEARTBEAT_MS = 2_000;

export type TimeOuts = Pick<Info, 'startToCloseTimeoutMs' | 'heartbeatTimeoutMs' | 'isLocal'>;

/** One attempt, by a monotonic clock. Times are ms of {@link performance.now}. */
class Attempt {
  readonly #begunAtMs: number;
  readonly #limitMs: number;
  readonly #silenceMs: number;
  readonly #throttleMs: number;
  /** The server has heard of the attempt since. */
  #heardAtMs: number;
  #lateness: string | undefined;

  constructor({ startToCloseTimeoutMs, heartbeatTimeoutMs, isLocal }: TimeOuts, begunAtMs: number) {
    this.#begunAtMs = begunAtMs;
    this.#heardAtMs = begunAtMs;
    this.#limitMs = startToCloseTimeoutMs || Infinity;
    this.#silenceMs = isLocal ? WORKFLOW_TASK_TIMEOUT_MS : heartbeatTimeoutMs || Infinity;
    this.#throttleMs = Math.min(HEARTBEAT_THROTTLE_MS, 0.8 * this.#silenceMs);
  }

  /** A heartbeat is on its way. One that follows a silence which was too long does not bring the attempt back. */
  beat(nowMs: number): void {
    this.latenessAt(nowMs);
    // The heartbeat may be held back until the throttle lets it through, and a stopped process never sends it.
    this.#heardAtMs = Math.max(this.#heardAtMs, nowMs - this.#throttleMs);
  }

  /** @returns why the attempt does not count any more; undefined while it counts. */
  latenessAt(nowMs: number): string | undefined {
    const [ageMs, silentMs] = [nowMs - this.#begunAtMs, nowMs - this.#heardAtMs];
    if (ageMs > this.#limitMs)
      this.#lateness ??= `it is ${seconds(ageMs)} old and may take ${seconds(this.#limitMs)}`;
    if (silentMs > this.#silenceMs)
      this.#lateness ??= `it was silent for ${seconds(silentMs)} and may be for ${seconds(this.#silenceMs)}`;
    return this.#lateness;
  }
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

const current = new AsyncLocalStorage<Attempt | undefined>();

/**
 * Refuses to begin something on behalf of a late attempt. Outside of activities nothing is refused.
 *
 * @param what for operators, such as the name of a statement.
 * @throws ApplicationFailure `AttemptLate`, retried: an attempt that Temporal has not replaced yet gets a successor.
 */
export function refuseIfLate(what: string): void {
  const lateness = current.getStore()?.latenessAt(performance.now());
  if (lateness === undefined) return;
  throw ApplicationFailure.create({
    type: ATTEMPT_LATE,
    message: `this attempt is late and left ${what} to its successor: ${lateness}. Its process stood still, or was slow`,
  });
}

/** Runs what has to be done on behalf of a late attempt, too. */
export const evenIfLate = <T>(work: () => T): T => current.run(undefined, work);

/** Tells Temporal that the current attempt is alive. @param progress shown in the Web UI, and given to the next attempt. */
export function heartbeat(progress?: unknown): void {
  current.getStore()?.beat(performance.now());
  Context.current().heartbeat(progress);
}

/**
 * Runs work with heartbeats: by them an activity hears that it is cancelled, and Temporal that its process lives.
 *
 * @param progress what people see of it.
 */
export async function withHeartbeats<T>(work: () => Promise<T>, progress?: () => unknown): Promise<T> {
  const beat = setInterval(() => heartbeat(progress?.()), HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(beat);
  }
}

/**
 * Notes when the attempts of a process begin, and whether the process stands still.
 *
 * A task that arrives while the process stands still waits in a socket, and Temporal's time-outs run. So an attempt that
 * begins right after a stall counts from the beginning of the stall.
 *
 * @returns `interceptors` for the workers; `stop` ends the look at the event loop.
 */
export function watchAttempts() {
  const local = new Set<Attempt>();
  let turnedAtMs = performance.now();
  let stall = { fromMs: -Infinity, toMs: -Infinity };
  const timer = setInterval(pulse, PULSE_MS).unref();

  function pulse(): void {
    const nowMs = performance.now();
    if (nowMs - turnedAtMs > STALL_MS) stall = { fromMs: turnedAtMs, toMs: nowMs };
    turnedAtMs = nowMs;
    for (const attempt of local) attempt.beat(nowMs);
  }

  function beginAttempt(info: TimeOuts): Attempt {
    pulse();
    return new Attempt(info, turnedAtMs - stall.toMs < ARRIVED_MS ? stall.fromMs : turnedAtMs);
  }

  const inbound = ({ info }: { info: TimeOuts }) => ({
    async execute<Input>(input: Input, next: (input: Input) => Promise<unknown>): Promise<unknown> {
      const attempt = beginAttempt(info);
      if (info.isLocal) local.add(attempt);
      try {
        return await current.run(attempt, () => {
          refuseIfLate('everything');
          return next(input);
        });
      } finally {
        local.delete(attempt);
      }
    },
  });

  return {
    interceptors: [(context: { info: TimeOuts }) => ({ inbound: inbound(context) })],
    stop: () => clearInterval(timer),
  };
}
