/** Chance that can be repeated: the same seed and purpose give the same decisions, independent of other purposes. */
import { createHash } from 'node:crypto';

export interface Random {
  /** From 0 up to 1. */
  next(): number;
  /** A whole number, both ends included. */
  between(low: number, high: number): number;
  chance(probability: number): boolean;
  oneOf<T>(list: readonly T[]): T;
  /** A copy in another order. */
  shuffled<T>(list: readonly T[]): T[];
}

/** Each purpose has its sequence, so that adding a decision here changes none there. */
export function randomOf(seed: string, purpose: string): Random {
  let state = createHash('sha256').update(`${seed}/${purpose}`).digest().readUInt32LE(0);
  // mulberry32: small, and good enough to choose faults.
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1));
  return {
    next,
    between,
    chance: (probability) => next() < probability,
    oneOf: (list) => list[between(0, list.length - 1)]!,
    shuffled(list) {
      const copy = [...list];
      for (let index = copy.length - 1; index > 0; index -= 1) {
        const other = between(0, index);
        [copy[index], copy[other]] = [copy[other]!, copy[index]!];
      }
      return copy;
    },
  };
}
