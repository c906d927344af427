/** Waits that have an end. */

/** @returns whether it has ended in time. A later result is ignored. @throws its failure, when it fails in time. */
export async function isSettledWithin(limitMs: number, ended: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<false>((resolve) => (timer = setTimeout(resolve, limitMs, false)));
  return Promise.race([ended.then(() => true), expired]).finally(() => clearTimeout(timer));
}
