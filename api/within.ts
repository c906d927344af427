/** @returns the answer. A later one is ignored; the time-outs of its client end it. @throws Error when the time is over. */
export function within<T>(limitMs: number, answer: Promise<T> | T): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer within ${limitMs / 1_000} s`)), limitMs);
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}
