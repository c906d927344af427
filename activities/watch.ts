/** Looking at something again and again, for as long as a process runs. */
import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from './reason.ts';

/**
 * Looks so long after each look has ended. A look that fails is made again.
 *
 * @param onFailure hears of the first of failures in a row.
 * @returns `stop` resolves when the last look is over.
 */
export function watchEvery(
  everyMs: number,
  look: () => Promise<void>,
  onFailure: (reason: string) => void,
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const running = run();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };

  async function run(): Promise<void> {
    for (let isFailing = false; ;) {
      await sleep(everyMs, undefined, { signal: stopping.signal }).catch(() => undefined);
      if (stopping.signal.aborted) return;
      try {
        await look();
        isFailing = false;
      } catch (error) {
        if (!isFailing) onFailure(reasonOf(error));
        isFailing = true;
      }
    }
  }
}
