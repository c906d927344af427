/** Loops that run for as long as a process does: every such loop of the service and of its clients is one of these. */
import { setTimeout as sleep } from 'node:timers/promises';

/** How much sooner a look may begin, at random, as a part of the interval: processes do not all look at the same moment. */
const JITTER = 0.1;

/**
 * Runs `look` every `everyMs`, counted from the end of the previous run, or a little sooner. One that fails is repeated.
 *
 * @param look is given a signal, which is aborted by `stop`. What fails after that is not reported.
 * @param onFailure hears of the first of failures in a row.
 * @returns `stop` resolves when the last look is over.
 */
export function watchEvery(
  everyMs: number,
  look: (stopping: AbortSignal) => Promise<void>,
  onFailure: (error: unknown) => void,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const running = run(stopping.signal);
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };

  async function run(signal: AbortSignal): Promise<void> {
    for (let isFailing = false; ;) {
      const waitMs = everyMs * (1 - JITTER * Math.random());
      await sleep(waitMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      try {
        await look(signal);
        isFailing = false;
      } catch (error) {
        if (!isFailing && !signal.aborted) onFailure(error);
        isFailing = true;
      }
    }
  }
}
