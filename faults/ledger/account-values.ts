/**
 * What is to be told of account values, by an independent calculation: whole numbers of 10^-36, no database. Pure; it
 * knows inputs and callbacks by their documents, not by the product's types.
 */

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

/** One entry of the stream of inputs. */
export type AccountInput =
  | { type: 'price'; symbol: string; price: string; at_ms: number }
  | {
      type: 'positions';
      user_id: string;
      cash: string;
      coefficients: Record<string, string> | null;
      at_ms: number;
    };

/** What a callback is about. */
export interface Period {
  userId: string;
  kind: 'hourly' | 'daily';
  startMs: number;
}

const DECIMALS = 18;

function whole(decimal: string, decimals = DECIMALS): bigint {
  const [integer = '', fraction = ''] = decimal.split('.');
  return BigInt(integer + fraction.padEnd(decimals, '0'));
}

function decimalOf(value: bigint): string {
  const digits = (value < 0n ? -value : value).toString().padStart(2 * DECIMALS + 1, '0');
  const text = `${digits.slice(0, -2 * DECIMALS)}.${digits.slice(-2 * DECIMALS)}`.replace(/\.?0+$/, '');
  return value < 0n ? `-${text}` : text;
}

interface Held {
  at: number;
  cash: bigint;
  coefficients: [symbol: string, coefficient: bigint][] | null;
}

/** Answers what is to be told about a period, as a body; undefined when there is nothing to tell. */
export function expectationsOf(inputs: readonly AccountInput[]) {
  const ticks = new Map<string, { at: number; price: bigint }[]>();
  const held = new Map<string, Held[]>();
  for (const input of inputs) {
    if (input.type === 'price') {
      const list = ticks.get(input.symbol) ?? [];
      ticks.set(input.symbol, [...list, { at: input.at_ms, price: whole(input.price) }]);
    } else {
      const { user_id, at_ms: at, cash, coefficients } = input;
      const legs = coefficients && Object.entries(coefficients);
      const one: Held = {
        at,
        cash: whole(cash) * 10n ** BigInt(DECIMALS),
        coefficients: legs && legs.map(([symbol, coefficient]) => [symbol, whole(coefficient)]),
      };
      held.set(user_id, [...(held.get(user_id) ?? []), one]);
    }
  }
  for (const list of [...ticks.values(), ...held.values()]) list.sort((a, b) => a.at - b.at);

  /** What an account is worth at a time, or undefined when that cannot be said. */
  function valueAt(userId: string, atMs: number): bigint | undefined {
    const positionsThen = latest(held.get(userId) ?? [], atMs);
    if (!positionsThen?.coefficients) return undefined;
    let value = positionsThen.cash;
    for (const [symbol, coefficient] of positionsThen.coefficients) {
      const tick = latest(ticks.get(symbol) ?? [], atMs);
      if (!tick) return undefined;
      value += coefficient * tick.price;
    }
    return value;
  }

  return ({ userId, kind, startMs }: Period) => {
    const endMs = startMs + (kind === 'hourly' ? HOUR : DAY);
    const own = held.get(userId) ?? [];
    const symbols = new Set(
      own.flatMap(({ coefficients }) => (coefficients ?? []).map(([symbol]) => symbol)),
    );
    const events = [...own, ...[...symbols].flatMap((symbol) => ticks.get(symbol) ?? [])];
    const times = new Set(events.map(({ at }) => at).filter((at) => at > startMs && at < endMs));
    // An hour begins with the value that it had; so do those that make up a day.
    for (let at = startMs; at < endMs; at += HOUR) times.add(at);
    const points = [...times]
      .sort((a, b) => a - b)
      .flatMap((at) => {
        const value = valueAt(userId, at);
        return value === undefined ? [] : [{ at, value }];
      });
    if (points.length === 0) return undefined;
    const peak = points.reduce((best, point) => (point.value > best.value ? point : best));
    const bottom = points.reduce((best, point) => (point.value < best.value ? point : best));
    const closing = kind === 'hourly' ? points.at(-1)!.value : (valueAt(userId, endMs) ?? peak.value);
    return {
      period_start_ms: startMs,
      period_end_ms: endMs,
      peak_value: decimalOf(peak.value),
      peak_at_ms: peak.at,
      bottom_value: decimalOf(bottom.value),
      bottom_at_ms: bottom.at,
      closing_value: decimalOf(closing),
    };
  };
}

/** The last one at or before a time, of a list in the order of time. */
function latest<Of extends { at: number }>(list: readonly Of[], atMs: number): Of | undefined {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]!.at <= atMs) low = middle + 1;
    else high = middle;
  }
  return list[low - 1];
}
