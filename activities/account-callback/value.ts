/**
 * The value of an account along a stretch of time, exactly, as a pure function of what it holds and of prices.
 *
 * The value of an account is a step function of time: cash, and of each symbol the coefficient times the price at or
 * before that time. It begins a stretch with the value that it has then, and changes with every tick of a symbol that is
 * held. While a symbol that is held never had a price, there is no value. With other positions, another stretch begins.
 */
import type { Decimal } from './decimals.ts';
import { decimalOf, withDecimals } from './decimals.ts';
import type { Series } from './series.ts';
import { firstAfter } from './series.ts';

/** What an account holds; undefined: it has no value. */
export interface Holding {
  cash: Decimal;
  coefficients: ReadonlyMap<string, Decimal>;
}

/** Prices of a stretch of time, of all symbols that are asked for. */
export interface Market {
  /** When it begins, epoch ms. */
  fromMs: number;
  series: ReadonlyMap<string, Series>;
}

/** From one time until before another, epoch ms. */
export interface Span {
  fromMs: number;
  untilMs: number;
}

/** Values are of the same decimals. */
export interface Found {
  decimals: number;
  peak: bigint;
  /** The first time at which the value was that high, epoch ms. */
  peakAtMs: number;
  bottom: bigint;
  bottomAtMs: number;
  closing: bigint;
}

/**
 * @param coefficients JSON: by symbol, decimals in text; null: no value.
 * @throws RangeError for what is no decimal.
 */
export function holdingOf(cash: string, coefficients: string | null): Holding | undefined {
  if (coefficients === null) return undefined;
  const legs = Object.entries(JSON.parse(coefficients) as Record<string, unknown>);
  return {
    cash: decimalOf(cash),
    coefficients: new Map(legs.map(([symbol, text]) => [symbol, decimalOf(String(text))])),
  };
}

/** How many ticks of what is held there are in a span: what it costs to look for extremes in it. */
export function ticksWithin({ coefficients }: Holding, { fromMs, series }: Market, span: Span): number {
  let ticks = 0;
  for (const symbol of coefficients.keys()) {
    const ofSymbol = series.get(symbol)!;
    ticks += firstAfter(ofSymbol, span.untilMs - fromMs - 1) - firstAfter(ofSymbol, span.fromMs - fromMs);
  }
  return ticks;
}

/** Later than every tick. */
const NEVER = 2 ** 31 - 1;

/**
 * The extremes of a holding in a span of the market. Ticks of one moment count together.
 *
 * @returns undefined when it never had a value.
 */
export function extremesOf(holding: Holding, market: Market, span: Span): Found | undefined {
  const untilMs = span.untilMs - market.fromMs;
  let atMs = span.fromMs - market.fromMs;
  const legs = [...holding.coefficients].map(([symbol, coefficient]) => {
    const series = market.series.get(symbol)!;
    return { coefficient, series, decimals: coefficient.decimals + series.decimals };
  });
  const decimals = legs.reduce((most, leg) => Math.max(most, leg.decimals), holding.cash.decimals);
  // Of each leg what is needed again and again, side by side.
  const series = legs.map((leg) => leg.series);
  const factors = legs.map(({ coefficient, series: { decimals: ofPrice } }) =>
    withDecimals(coefficient, decimals - ofPrice),
  );
  const next = Int32Array.from(series, (one) => firstAfter(one, atMs));
  const prices = series.map(({ prices: all, opening }, leg) =>
    next[leg]! > 0 ? all[next[leg]! - 1] : opening,
  );
  const nextAtMs = Int32Array.from(series, timeOfNext);
  const order = new SoonestFirst(nextAtMs);
  let unknown = prices.filter((price) => price === undefined).length;
  let value = prices.reduce<bigint>(
    (sum, price, leg) => sum + factors[leg]! * (price ?? 0n),
    withDecimals(holding.cash, decimals),
  );

  let found: Found | undefined;
  for (;;) {
    if (unknown === 0) {
      if (found === undefined) {
        const now = atMs + market.fromMs;
        found = { decimals, peak: value, peakAtMs: now, bottom: value, bottomAtMs: now, closing: value };
      } else if (value > found.peak) {
        found.peak = value;
        found.peakAtMs = atMs + market.fromMs;
      } else if (value < found.bottom) {
        found.bottom = value;
        found.bottomAtMs = atMs + market.fromMs;
      }
    }
    atMs = order.soonestAtMs;
    if (atMs === NEVER) break;
    do {
      const leg = order.soonest;
      const index = next[leg]!;
      const price = series[leg]!.prices[index]!;
      const before = prices[leg];
      if (before === undefined) unknown -= 1;
      value += factors[leg]! * (price - (before ?? 0n));
      prices[leg] = price;
      next[leg] = index + 1;
      nextAtMs[leg] = timeOfNext(series[leg]!, leg);
      order.settle();
    } while (order.soonestAtMs === atMs);
  }
  if (found !== undefined) found.closing = value;
  return found;

  function timeOfNext({ times }: Series, leg: number): number {
    const time = times[next[leg]!] ?? NEVER;
    return time < untilMs ? time : NEVER;
  }
}

/** What was found in one span and, if anything, in the next one. An extreme that comes again has its first time. */
export function combined(before: Found | undefined, after: Found | undefined): Found | undefined {
  if (before === undefined || after === undefined) return after ?? before;
  const decimals = Math.max(before.decimals, after.decimals);
  const [first, next] = [rescaled(before, decimals), rescaled(after, decimals)];
  return {
    decimals,
    ...(next.peak > first.peak
      ? { peak: next.peak, peakAtMs: next.peakAtMs }
      : { peak: first.peak, peakAtMs: first.peakAtMs }),
    ...(next.bottom < first.bottom
      ? { bottom: next.bottom, bottomAtMs: next.bottomAtMs }
      : { bottom: first.bottom, bottomAtMs: first.bottomAtMs }),
    closing: next.closing,
  };
}

function rescaled(found: Found, decimals: number): Found {
  const scaled = (digits: bigint) => withDecimals({ digits, decimals: found.decimals }, decimals);
  return {
    ...found,
    decimals,
    peak: scaled(found.peak),
    bottom: scaled(found.bottom),
    closing: scaled(found.closing),
  };
}

/** Legs by the time of the next tick of each: a binary heap. */
class SoonestFirst {
  readonly #legs: Int32Array;
  readonly #atMs: Int32Array;

  /** @param atMs by leg. When the one of the soonest leg changes, it is to be settled. */
  constructor(atMs: Int32Array) {
    this.#atMs = atMs;
    this.#legs = Int32Array.from(atMs, (_, leg) => leg);
    for (let index = (atMs.length >> 1) - 1; index >= 0; index -= 1) this.settle(index);
  }

  get soonest(): number {
    return this.#legs[0]!;
  }

  get soonestAtMs(): number {
    return this.#legs.length === 0 ? NEVER : this.#atMs[this.#legs[0]!]!;
  }

  /** Puts a leg below those that are sooner. */
  settle(from = 0): void {
    const [legs, atMs] = [this.#legs, this.#atMs];
    const leg = legs[from]!;
    const own = atMs[leg]!;
    let index = from;
    for (let below = 2 * index + 1; below < legs.length; below = 2 * index + 1) {
      if (below + 1 < legs.length && atMs[legs[below + 1]!]! < atMs[legs[below]!]!) below += 1;
      if (atMs[legs[below]!]! >= own) break;
      legs[index] = legs[below]!;
      index = below;
    }
    legs[index] = leg;
  }
}
