/** Between two looks: a twentieth of the time waited so far, so that a wait is hardly longer for it, within limits, ms. */
const [SHORTEST_MS, LONGEST_MS] = [10, 50];

/**
 * How long to wait in vain, ms: what is retried with growing pauses may take three of them, on a machine with much else
 * to do. `npm run test:mutants` is in a hurry: most of what it waits for never comes.
 */
const LIMIT_MS = Number(process.env['TEST_PATIENCE_MS'] ?? 100_000);

/**
 * Waits until a condition holds and returns what it found.
 *
 * @param probe returns undefined or false while there is nothing yet; what it throws counts as nothing yet.
 * @param what named in the error when the time is up.
 * @param longestPauseMs between two looks, for one that costs much.
 */
export async function eventually<T>(
  what: string,
  probe: () => Promise<T | undefined | false>,
  limitMs = LIMIT_MS,
  longestPauseMs = LONGEST_MS,
): Promise<T> {
  const beginning = Date.now();
  let last: unknown;
  for (let waitedMs = 0; waitedMs < limitMs; waitedMs = Date.now() - beginning) {
    try {
      const found = await probe();
      if (found !== undefined && found !== false) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    const pauseMs = Math.min(longestPauseMs, Math.max(SHORTEST_MS, waitedMs / 20));
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  throw new Error(`waited ${limitMs} ms in vain for ${what}`, { cause: last });
}
