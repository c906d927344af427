/**
 * Ticks of the symbols that accounts hold, read once for all accounts of a shard. Owns the SQL that reads
 * `callback_prices` for the values of hours.
 *
 * Series of symbols are kept until the next stretch of time, or until they are too many. What one statement reads and what
 * is kept is bounded, however many symbols and ticks there are.
 */
import type { Pool } from 'pg';
import { ANSWER, query } from '../postgres.ts';
import type { Series, Tick } from './series.ts';
import { joined, seriesOf } from './series.ts';
import type { Market, Span } from './value.ts';

export interface TickBounds {
  /** Ticks that are kept for a shard: 12 MB, and four times as much should no price fit into 64 bits. */
  kept: number;
  /** Ticks that one statement returns. */
  read: number;
}

export const TICK_BOUNDS: TickBounds = { kept: 1_000_000, read: 50_000 };

/** A statement about a span as short as this fails for another reason than its length, ms. */
export const SHORTEST_MS = 1_000;

export class Ticks implements Market {
  readonly #db: Pool;
  readonly #bounds: TickBounds;
  readonly #beat: () => void;
  #series = new Map<string, Series>();
  /** Of the stretch of time that is kept, epoch ms. */
  #span: Span = { fromMs: 0, untilMs: 0 };

  /** @param beat called now and then; what it throws ends the reading. */
  constructor(db: Pool, beat: () => void, bounds: TickBounds) {
    this.#db = db;
    this.#beat = beat;
    this.#bounds = bounds;
  }

  get fromMs(): number {
    return this.#span.fromMs;
  }

  get series(): ReadonlyMap<string, Series> {
    return this.#series;
  }

  /**
   * Has the ticks of symbols from the beginning of a span on, until its end or as far as they may be kept.
   *
   * @returns until when they are there, epoch ms: later than the beginning.
   * @throws RangeError for a price that is no decimal, ApplicationFailure `PostgresUnavailable`.
   */
  async cover(symbols: readonly string[], span: Span): Promise<number> {
    const isWithin = span.fromMs >= this.#span.fromMs && span.fromMs < this.#span.untilMs;
    if (!isWithin || !(await this.#complete(symbols))) {
      const { series, untilMs } = await this.#read(symbols, span, this.#bounds.kept);
      this.#series = series;
      this.#span = { fromMs: span.fromMs, untilMs };
    }
    return this.#span.untilMs;
  }

  /** Reads what is missing of the stretch that is kept. @returns false when that is too much. */
  async #complete(symbols: readonly string[]): Promise<boolean> {
    const missing = symbols.filter((symbol) => !this.#series.has(symbol));
    if (missing.length === 0) return true;
    const left = this.#bounds.kept - ticksOf(this.#series.values());
    if (left < 0) return false;
    const { series, untilMs } = await this.#read(missing, this.#span, left);
    if (untilMs < this.#span.untilMs) return false;
    for (const [symbol, found] of series) this.#series.set(symbol, found);
    return true;
  }

  /** Reads a span part by part, and stops after the part by which there are more ticks than there may be. */
  async #read(symbols: readonly string[], span: Span, atMost: number) {
    const parts = new Map<string, Series[]>(symbols.map((symbol) => [symbol, []]));
    let ticks = 0;
    let fromMs = span.fromMs;
    for (let widthMs = span.untilMs - fromMs; fromMs < span.untilMs && ticks <= atMost;) {
      const part = { fromMs, untilMs: Math.min(span.untilMs, fromMs + widthMs) };
      const read = await this.#readPart(symbols, part, span.fromMs);
      this.#beat();
      if (read === undefined) {
        widthMs = Math.ceil(widthMs / 2);
        continue;
      }
      for (const [symbol, series] of read) parts.get(symbol)!.push(series);
      const added = ticksOf(read.values());
      if (added < this.#bounds.read / 2) widthMs *= 2;
      ticks += added;
      fromMs = part.untilMs;
    }
    const series = new Map([...parts].map(([symbol, all]) => [symbol, joined(all)]));
    return { series, untilMs: fromMs };
  }

  /** @returns undefined for what is too much at once, or takes PostgreSQL too long. */
  async #readPart(
    symbols: readonly string[],
    part: Span,
    epochMs: number,
  ): Promise<Map<string, Series> | undefined> {
    const { fromMs, untilMs } = part;
    // A moment cannot be halved. It has a tick for each symbol at most.
    const most = untilMs - fromMs === 1 ? null : this.#bounds.read;
    try {
      const rows = await query<TicksRow>(this.#db, LOAD_TICKS, [symbols, fromMs, untilMs, most]);
      if (rows.reduce((sum, { count }) => sum + count, 0) === most) return undefined;
      const opening =
        fromMs === epochMs ? await this.#pricesInForce(symbols, fromMs) : new Map<string, string>();
      const ticks = new Map(rows.map((row) => [row.symbol, ticksIn(row)]));
      return new Map(
        symbols.map((symbol) => [symbol, seriesOf(ticks.get(symbol) ?? [], epochMs, opening.get(symbol))]),
      );
    } catch (error) {
      if (error instanceof RangeError || untilMs - fromMs <= SHORTEST_MS) throw error;
      await query(this.#db, ANSWER, []);
      return undefined;
    }
  }

  async #pricesInForce(symbols: readonly string[], atMs: number): Promise<Map<string, string>> {
    const rows = await query<{ symbol: string; price: string }>(this.#db, LOAD_PRICES_IN_FORCE, [
      symbols,
      atMs,
    ]);
    return new Map(rows.map(({ symbol, price }) => [symbol, price]));
  }
}

const ticksOf = (all: Iterable<Series>): number => {
  let ticks = 0;
  for (const { times } of all) ticks += times.length;
  return ticks;
};

/** The ticks of a symbol in the order of time, each list with commas. */
interface TicksRow {
  symbol: string;
  count: number;
  times: string;
  prices: string;
}

function ticksIn({ times, prices }: TicksRow): Tick[] {
  const all = prices.split(',');
  return times.split(',').map((time, index) => ({ atMs: Number(time), price: all[index]! }));
}

/** $1 symbols, $2 epoch ms. Symbols that had no price then are left out. */
const LOAD_PRICES_IN_FORCE = {
  name: 'load_callback_prices_in_force',
  text: `
    SELECT given.symbol, latest.price::text
      FROM unnest($1::text[]) AS given (symbol)
     CROSS JOIN LATERAL (
       SELECT price FROM notification.callback_prices
        WHERE symbol = given.symbol AND at_ms <= $2::bigint
        ORDER BY at_ms DESC
        LIMIT 1
     ) AS latest`,
};

/** $1 symbols, $2 from, $3 until before, $4 ticks at most or null. */
const LOAD_TICKS = {
  name: 'load_callback_ticks',
  text: `
    SELECT symbol, count(*)::int AS count, string_agg(at_ms::text, ',' ORDER BY at_ms) AS times,
           string_agg(price::text, ',' ORDER BY at_ms) AS prices
      FROM (
        SELECT given.symbol, at_ms, price
          FROM unnest($1::text[]) AS given (symbol)
         CROSS JOIN LATERAL (
           SELECT at_ms, price
             FROM notification.callback_prices
            WHERE symbol = given.symbol AND at_ms >= $2::bigint AND at_ms < $3::bigint
            ORDER BY at_ms
            LIMIT $4
         ) AS of_symbol
         LIMIT $4
      ) AS ticks
     GROUP BY symbol`,
};
