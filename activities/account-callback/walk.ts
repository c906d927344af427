/**
 * The value of accounts along an hour, exactly, as a pure function of what they hold and of prices. Accounts are walked
 * together: a tick is read once, and costs a multiplication for each account that holds its symbol.
 *
 * The value of an account is a step function of time: cash, and of each symbol the coefficient times the price at or
 * before that time. It begins an hour with the value that it had, and changes with every tick of a symbol that is held
 * and with the positions. While a symbol that is held never had a price, there is no value.
 */

/** What an account holds from a time on. */
export interface Holding {
  userId: string;
  /** Epoch ms. */
  atMs: number;
  cash: string;
  /** JSON: coefficients by symbol, decimals in text; null: the account has no value from then on. */
  coefficients: string | null;
}

export interface Tick {
  symbol: string;
  /** Epoch ms. */
  atMs: number;
  price: string;
}

/** Values are decimals in text, without zeros at their end. */
export interface Extremes {
  userId: string;
  peakValue: string;
  /** The first time at which the value was that high, epoch ms. */
  peakAtMs: number;
  bottomValue: string;
  bottomAtMs: number;
  closingValue: string;
}

/** Decimals of what comes in (api/account-callback/input.ts); a value, a sum of products, has twice as many. */
const DECIMALS = 18;
const UNIT = 10n ** BigInt(DECIMALS);
/** Changes of values between two pauses: some milliseconds. */
const CHANGES_AT_ONCE = 20_000;

interface Account {
  userId: string;
  /** By symbol; undefined: it has no value. */
  legs: Map<string, bigint> | undefined;
  value: bigint;
  /** Symbols that it holds and that never had a price. They count as 0 until then. */
  unknown: number;
  /** The moment at which it was last touched, so that one is evaluated once, after all of its changes. */
  touchedAtMs: number;
  found: Found | undefined;
}

interface Found {
  peak: bigint;
  peakAtMs: number;
  bottom: bigint;
  bottomAtMs: number;
  closing: bigint;
}

export class Walk {
  readonly #accounts = new Map<string, Account>();
  /** Who holds a symbol. */
  readonly #holders = new Map<string, Map<Account, bigint>>();
  readonly #prices = new Map<string, bigint>();

  /** @param userIds the accounts, of which those that never held anything have no value. */
  constructor(userIds: readonly string[]) {
    for (const userId of userIds) {
      const account = { userId, legs: undefined, value: 0n, unknown: 0, touchedAtMs: -1, found: undefined };
      this.#accounts.set(userId, account);
    }
  }

  /** Symbols that are held now: the price of each is followed. */
  get symbols(): string[] {
    return [...this.#holders.keys()];
  }

  holds(symbol: string): boolean {
    return this.#holders.has(symbol);
  }

  /**
   * The price in force of symbols that are about to be held.
   *
   * @throws RangeError for a price that is no decimal.
   */
  know(prices: readonly Pick<Tick, 'symbol' | 'price'>[]): void {
    for (const { symbol, price } of prices) this.#prices.set(symbol, scaled(price));
  }

  /** Forgets prices of symbols that nobody holds, because they are not followed. */
  forgetUnheld(): void {
    for (const symbol of this.#prices.keys()) if (!this.#holders.has(symbol)) this.#prices.delete(symbol);
  }

  /**
   * Goes on through ticks and holdings of one stretch of time, in whatever order they are given. At one moment, ticks
   * come before holdings, and a value counts once all changes of its moment are made.
   *
   * @param ticks of the symbols that are held in this stretch.
   * @returns pauses after every few milliseconds; the walk goes on with the next one.
   * @throws RangeError for what is no decimal; the walk is of no use then.
   */
  *advance(ticks: readonly Tick[], holdings: readonly Holding[]): Generator<void> {
    const inTime = ticks.toSorted((a, b) => a.atMs - b.atMs);
    const changes = holdings.toSorted((a, b) => a.atMs - b.atMs);
    let [nextTick, nextChange, done] = [0, 0, 0];
    while (nextTick < inTime.length || nextChange < changes.length) {
      const atMs = Math.min(inTime[nextTick]?.atMs ?? Infinity, changes[nextChange]?.atMs ?? Infinity);
      const touched: Account[] = [];
      for (; inTime[nextTick]?.atMs === atMs; nextTick += 1) {
        done += 1 + this.#tick(inTime[nextTick]!, touched);
        if (done >= CHANGES_AT_ONCE) {
          done = 0;
          yield;
        }
      }
      for (; changes[nextChange]?.atMs === atMs; nextChange += 1) {
        done += 1 + this.#hold(changes[nextChange]!, touched);
      }
      for (const account of touched) evaluate(account, atMs);
    }
  }

  /** What was found so far, of those who had a value. */
  extremes(): Extremes[] {
    return [...this.#accounts.values()].flatMap(({ userId, found }) =>
      found
        ? [
            {
              userId,
              peakValue: decimalOf(found.peak),
              peakAtMs: found.peakAtMs,
              bottomValue: decimalOf(found.bottom),
              bottomAtMs: found.bottomAtMs,
              closingValue: decimalOf(found.closing),
            },
          ]
        : [],
    );
  }

  /** @returns how many accounts it changed. */
  #tick({ symbol, atMs, price }: Tick, touched: Account[]): number {
    const before = this.#prices.get(symbol);
    const now = scaled(price);
    if (now === before) return 0;
    // Of a symbol that is held only later, too.
    this.#prices.set(symbol, now);
    const holders = this.#holders.get(symbol);
    if (!holders) return 0;
    const change = now - (before ?? 0n);
    for (const [account, coefficient] of holders) {
      account.value += coefficient * change;
      if (before === undefined) account.unknown -= 1;
      touch(account, atMs, touched);
    }
    return holders.size;
  }

  /** @returns how many symbols it looked at. */
  #hold({ userId, atMs, cash, coefficients }: Holding, touched: Account[]): number {
    const account = this.#accounts.get(userId);
    if (!account) return 0;
    for (const symbol of account.legs?.keys() ?? []) this.#release(symbol, account);
    account.legs = coefficients === null ? undefined : legsOf(coefficients);
    account.value = scaled(cash) * UNIT;
    account.unknown = 0;
    for (const [symbol, coefficient] of account.legs ?? []) {
      const price = this.#prices.get(symbol);
      if (price === undefined) account.unknown += 1;
      else account.value += coefficient * price;
      const holders = this.#holders.get(symbol);
      if (holders) holders.set(account, coefficient);
      else this.#holders.set(symbol, new Map([[account, coefficient]]));
    }
    touch(account, atMs, touched);
    return account.legs?.size ?? 0;
  }

  #release(symbol: string, account: Account): void {
    const holders = this.#holders.get(symbol);
    holders?.delete(account);
    if (holders?.size === 0) this.#holders.delete(symbol);
  }
}

/** The symbols of a holding. @throws RangeError. */
export const symbolsOf = ({ coefficients }: Pick<Holding, 'coefficients'>): string[] =>
  coefficients === null ? [] : [...legsOf(coefficients).keys()];

function legsOf(coefficients: string): Map<string, bigint> {
  const held = JSON.parse(coefficients) as Record<string, unknown>;
  return new Map(Object.entries(held).map(([symbol, text]) => [symbol, scaled(String(text))]));
}

function touch(account: Account, atMs: number, touched: Account[]): void {
  if (account.touchedAtMs === atMs) return;
  account.touchedAtMs = atMs;
  touched.push(account);
}

function evaluate(account: Account, atMs: number): void {
  const { value, found } = account;
  if (account.legs === undefined || account.unknown > 0) return;
  if (found === undefined) {
    account.found = { peak: value, peakAtMs: atMs, bottom: value, bottomAtMs: atMs, closing: value };
    return;
  }
  found.closing = value;
  if (value > found.peak) {
    found.peak = value;
    found.peakAtMs = atMs;
  } else if (value < found.bottom) {
    found.bottom = value;
    found.bottomAtMs = atMs;
  }
}

/** A decimal as a whole number of its smallest part. */
function scaled(decimal: string): bigint {
  const [, sign, whole, fraction = ''] = /^(-?)(\d+)(?:\.(\d{1,18}))?$/.exec(decimal) ?? [];
  if (whole === undefined) throw new RangeError('a price, cash or coefficient is no decimal');
  return BigInt(sign + whole + fraction.padEnd(DECIMALS, '0'));
}

function decimalOf(value: bigint): string {
  const digits = (value < 0n ? -value : value).toString().padStart(2 * DECIMALS + 1, '0');
  const [whole, fraction] = [digits.slice(0, -2 * DECIMALS), digits.slice(-2 * DECIMALS).replace(/0+$/, '')];
  return `${value < 0n ? '-' : ''}${whole}${fraction === '' ? '' : `.${fraction}`}`;
}
