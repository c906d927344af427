/** The ticks of a symbol within a stretch of time, small and exact. Pure. */
import type { Decimal } from './decimals.ts';
import { decimalOf, withDecimals } from './decimals.ts';

export interface Series {
  /** The price in force when the stretch begins; undefined: the symbol never had one until then. */
  opening: bigint | undefined;
  /** Of the opening and of all prices, which are whole numbers: those of the one that has most. */
  decimals: number;
  /** Since the stretch began, ms, one after the other. */
  times: Int32Array;
  prices: Prices;
}

/** Eight bytes each, and some forty for each of a symbol of which one does not fit into them. */
type Prices = BigInt64Array | bigint[];

/** Some ticks, as they are read: in the order of time. */
export interface Tick {
  /** Epoch ms. */
  atMs: number;
  price: string;
}

/**
 * @param fromMs when the stretch begins, epoch ms.
 * @param opening the price in force then, if there is one.
 * @throws RangeError for a price that is no decimal.
 */
export function seriesOf(ticks: readonly Tick[], fromMs: number, opening?: string): Series {
  const first = opening === undefined ? undefined : decimalOf(opening);
  const prices = ticks.map(({ price }) => decimalOf(price));
  const decimals = mostDecimals(first ? [first, ...prices] : prices);
  return {
    opening: first && withDecimals(first, decimals),
    decimals,
    times: Int32Array.from(ticks, ({ atMs }) => atMs - fromMs),
    prices: compact(prices.map((price) => withDecimals(price, decimals))),
  };
}

/** One series of what was read one after the other. */
export function joined(parts: readonly Series[]): Series {
  const [first] = parts;
  if (parts.length === 1) return first!;
  const decimals = Math.max(...parts.map((part) => part.decimals));
  const times = new Int32Array(parts.reduce((sum, part) => sum + part.times.length, 0));
  const prices: bigint[] = [];
  for (const part of parts) {
    times.set(part.times, prices.length);
    for (const digits of part.prices)
      prices.push(withDecimals({ digits, decimals: part.decimals }, decimals));
  }
  const { opening } = first!;
  return {
    opening:
      opening === undefined
        ? undefined
        : withDecimals({ digits: opening, decimals: first!.decimals }, decimals),
    decimals,
    times,
    prices: compact(prices),
  };
}

/** @returns the index of the first tick that is later than this, ms since the stretch began. */
export function firstAfter({ times }: Series, atMs: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= atMs) low = middle + 1;
    else high = middle;
  }
  return low;
}

const mostDecimals = (all: readonly Decimal[]): number =>
  all.reduce((most, { decimals }) => Math.max(most, decimals), 0);

function compact(prices: bigint[]): Prices {
  return prices.every((price) => BigInt.asIntN(64, price) === price) ? BigInt64Array.from(prices) : prices;
}
