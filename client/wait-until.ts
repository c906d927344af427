import { setTimeout as sleep } from 'node:timers/promises';

export interface WaitOptions {
  /** Longest wait, ms. */
  limitMs: number;
  /** Between two looks, ms. Default 200. */
  everyMs?: number;
  /** Ends the wait early. */
  signal?: AbortSignal;
}

/**
 * Looks until a probe finds something.
 *
 * @param probe returns undefined while there is nothing yet; what it throws ends the wait.
 * @returns what the probe found, or undefined when the time was up or the wait was aborted.
 */
export async function waitUntil<T>(
  probe: () => Promise<T | undefined>,
  { limitMs, everyMs = 200, signal }: WaitOptions,
): Promise<T | undefined> {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const found = await probe();
    if (found !== undefined) return found;
    if (signal?.aborted || Date.now() + everyMs > deadline) return undefined;
    // Aborting a pause is how a wait ends early, not a failure.
    await sleep(everyMs, undefined, { ...(signal ? { signal } : {}) }).catch(() => undefined);
  }
}

/**
 * Makes a call again while it fails for a reason that passes.
 *
 * @returns what the call returned in the end.
 * @throws an error of another reason immediately, and the last one of this reason when `limitMs` is over.
 */
export async function oncePossible<T>(
  call: () => Promise<T>,
  doesPass: (error: unknown) => boolean,
  limitMs: number,
): Promise<T> {
  let lastError: unknown;
  const made = await waitUntil<{ value: T }>(
    async () => {
      try {
        return { value: await call() };
      } catch (error) {
        if (!doesPass(error)) throw error;
        lastError = error;
        return undefined;
      }
    },
    { limitMs },
  );
  if (made === undefined) throw lastError;
  return made.value;
}
