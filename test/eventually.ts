/**
 * Waits until a condition holds and returns what it found.
 *
 * @param probe returns undefined or false while there is nothing yet; what it throws counts as nothing yet.
 * @param what named in the error when the time is up.
 */
export async function eventually<T>(
  what: string,
  probe: () => Promise<T | undefined | false>,
  limitMs = 40_000,
): Promise<T> {
  const deadline = Date.now() + limitMs;
  let last: unknown;
  while (Date.now() < deadline) {
    try {
      const found = await probe();
      if (found !== undefined && found !== false) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`waited ${limitMs} ms in vain for ${what}`, { cause: last });
}
