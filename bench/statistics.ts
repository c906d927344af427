/** The arithmetic of the benchmark. Pure. */

const ascending = (a: number, b: number): number => a - b;

/**
 * The smallest of the values that at least this share of them does not exceed (nearest rank).
 *
 * @param share 0 to 1.
 * @throws RangeError without values.
 */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort(ascending);
  const found = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  if (found === undefined) throw new RangeError('there is no quantile of nothing');
  return found;
}

/** The middle value, the lower one of two. @throws RangeError without values. */
export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** `a` divided by `b`, pair by pair: measurements of one round share what disturbed it. */
export const ratios = (a: readonly number[], b: readonly number[]): number[] =>
  a.slice(0, b.length).map((value, index) => value / b[index]!);

/** How much of a backlog was done at a moment. */
export interface DrainSample {
  /** Since the start of the drain, ms. */
  ms: number;
  done: number;
}

/**
 * The rate in the last fifth of a backlog, divided by the rate in its second fifth: the first one has the start of the
 * service in it.
 *
 * @param samples oldest first, ending when everything was done.
 * @throws RangeError when they do not reach `total`.
 */
export function drainRatio(samples: readonly DrainSample[], total: number): number {
  const fifth = (n: number) => timeOf(samples, (n * total) / 5) - timeOf(samples, ((n - 1) * total) / 5);
  return fifth(2) / fifth(5);
}

/** When so much was done, ms: between two samples as if work had gone on evenly. */
function timeOf(samples: readonly DrainSample[], done: number): number {
  const index = samples.findIndex((sample) => sample.done >= done);
  const [after, before] = [samples[index], samples[index - 1]];
  if (after === undefined) throw new RangeError(`the samples end before ${done} were done`);
  if (before === undefined) return after.ms;
  return before.ms + ((done - before.done) / (after.done - before.done)) * (after.ms - before.ms);
}

/**
 * The mean of the samples from the n-th fifth of a backlog. Without a sample there, the next sample.
 *
 * @throws RangeError as `drainRatio`.
 */
export function meanInFifth<S extends DrainSample>(
  samples: readonly S[],
  total: number,
  n: number,
  of: (sample: S) => number,
): number {
  const [from, to] = [timeOf(samples, ((n - 1) * total) / 5), timeOf(samples, (n * total) / 5)];
  const within = samples.filter(({ ms }) => ms >= from && ms <= to);
  const values = (within.length > 0 ? within : samples.filter(({ ms }) => ms > to).slice(0, 1)).map(of);
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
