/** @returns the answer. A later one is ignored; the time-outs of its client end it. @throws Error when the time is over. */
export function within<T>(limitMs: number, answer: Promise<T> | T): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer within ${limitMs / 1_000} s`)), limitMs);
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

/**
 * Waits for all, so that all that fail are named together, and nothing is opened after a failure.
 *
 * @throws a single failure as it is; of several a `Failure` with a line for each.
 */
export async function allOf<T extends readonly unknown[]>(
  attempts: { [K in keyof T]: Promise<T[K]> },
  Failure: new (message: string) => Error,
): Promise<T> {
  const results = await Promise.allSettled(attempts);
  const failures = results.filter((result) => result.status === 'rejected');
  if (failures.length <= 1) return Promise.all(attempts);
  throw new Failure(failures.map(({ reason }) => (reason as Error).message).join('\n'));
}
