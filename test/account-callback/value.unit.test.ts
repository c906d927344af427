/** The value of accounts along an hour, against the independent calculation of values.ts. */
import fc from 'fast-check';
import { decimalOf, textOf } from '../../activities/account-callback/decimals.ts';
import type { Series, Tick } from '../../activities/account-callback/series.ts';
import { joined, seriesOf } from '../../activities/account-callback/series.ts';
import type { Found, Holding } from '../../activities/account-callback/value.ts';
import { combined, extremesOf, holdingOf, ticksWithin } from '../../activities/account-callback/value.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { HOUR, expectationsOf, positions, price } from './values.ts';

const START = 1_000 * HOUR;
const END = START + HOUR;
const SYMBOLS = ['A', 'B', 'C'];

/** Prices of a stretch of time, read in two parts. */
function marketOf(ticks: readonly (Tick & { symbol: string })[], fromMs: number, untilMs: number) {
  const inOrder = ticks.toSorted((a, b) => a.atMs - b.atMs);
  const middleMs = (fromMs + untilMs) / 2;
  const series = new Map<string, Series>();
  for (const symbol of SYMBOLS) {
    const own = inOrder.filter((tick) => tick.symbol === symbol);
    const opening = own.findLast(({ atMs }) => atMs <= fromMs)?.price;
    const between = (from: number, until: number) => own.filter(({ atMs }) => atMs >= from && atMs < until);
    const first = seriesOf(between(fromMs, middleMs), fromMs, opening);
    series.set(symbol, joined([first, seriesOf(between(middleMs, untilMs), fromMs)]));
  }
  return { fromMs, series };
}

/** As hour.ts goes through an hour, by stretches of this length. */
function walkHour(inputs: readonly CallbackInput[], stretchMs: number): Found | undefined {
  const ticks: (Tick & { symbol: string })[] = [];
  const changes: { atMs: number; holding: Holding | undefined }[] = [];
  for (const input of inputs) {
    if (input.type === 'price') ticks.push({ symbol: input.symbol, atMs: input.at_ms, price: input.price });
    else {
      const json = input.coefficients && JSON.stringify(input.coefficients);
      changes.push({ atMs: input.at_ms, holding: holdingOf(input.cash, json) });
    }
  }
  changes.sort((a, b) => a.atMs - b.atMs);
  let found: Found | undefined;
  for (let fromMs = START; fromMs < END; fromMs += stretchMs) {
    const untilMs = fromMs + stretchMs;
    const market = marketOf(ticks, fromMs, untilMs);
    const within = changes.filter(({ atMs }) => atMs > fromMs && atMs < untilMs);
    const opening = changes.findLast(({ atMs }) => atMs <= fromMs)?.holding;
    for (const [index, { holding, atMs }] of [{ holding: opening, atMs: fromMs }, ...within].entries()) {
      const span = { fromMs: atMs, untilMs: within[index]?.atMs ?? untilMs };
      if (holding) found = combined(found, extremesOf(holding, market, span));
    }
  }
  return found;
}

const told = ({ decimals, ...found }: Found) => ({
  period_start_ms: START,
  period_end_ms: END,
  peak_value: textOf({ digits: found.peak, decimals }),
  peak_at_ms: found.peakAtMs,
  bottom_value: textOf({ digits: found.bottom, decimals }),
  bottom_at_ms: found.bottomAtMs,
  closing_value: textOf({ digits: found.closing, decimals }),
});

const decimal = fc
  .tuple(fc.bigInt({ min: -(10n ** 12n), max: 10n ** 12n }), fc.nat({ max: 999_999 }))
  .map(([whole, fraction]) => `${whole}.${String(fraction).padStart(6, '0')}`);
// Few moments, so that many things happen in the same one.
const time = fc.integer({ min: -2, max: 12 }).map((step) => START + step * (HOUR / 10));
const held = fc.option(fc.dictionary(fc.constantFrom(...SYMBOLS), decimal), { nil: null });
const input = fc.oneof(
  fc.tuple(fc.constantFrom(...SYMBOLS), time, decimal).map(([symbol, at, of]) => price(symbol, at, of)),
  fc.tuple(time, decimal, held).map(([at, cash, of]) => positions('ann', at, cash, of)),
);
/** What is known of a moment stays. */
const inputs = fc.uniqueArray(input, {
  maxLength: 20,
  selector: (one) => `${one.type} ${one.type === 'price' ? one.symbol : ''} ${one.at_ms}`,
});

test('C4 kinds-S2 whatever comes in, in whatever parts it is read: exactly the extremes of the value', () => {
  fc.assert(
    fc.property(inputs, fc.constantFrom(HOUR, HOUR / 3, HOUR / 10), (all, stretchMs) => {
      const found = walkHour(all, stretchMs);
      expect(found && told(found)).toEqual(expectationsOf(all)('ann', 'hourly', START));
    }),
    { numRuns: 3_000 },
  );
});

const marketOfOne = (prices: readonly string[], opening?: string) => ({
  fromMs: 0,
  series: new Map([
    [
      'A',
      seriesOf(
        prices.map((of, index) => ({ atMs: 10 * (index + 1), price: of })),
        0,
        opening,
      ),
    ],
  ]),
});
const ALL = { fromMs: 0, untilMs: HOUR };

test('C4 an extreme that comes again is told with its first time', () => {
  const holding = holdingOf('0', '{"A": "1"}')!;
  const market = marketOfOne(['9', '1', '9', '1', '4'], '5');
  expect(told(extremesOf(holding, market, ALL)!)).toMatchObject({
    peak_at_ms: 10,
    bottom_at_ms: 20,
    closing_value: '4',
  });
  expect(ticksWithin(holding, market, { fromMs: 10, untilMs: 40 })).toBe(2);
});

test('C4 18 decimals are exact, and so is what does not fit into 64 bits', () => {
  const tiny = holdingOf('-1', '{"A": "0.000000000000000001"}')!;
  const many = Array.from({ length: 3_000 }, (_, index) => String(index));
  expect(told(extremesOf(tiny, marketOfOne(many, '0.000000000000000001'), ALL)!)).toMatchObject({
    peak_value: '-0.999999999999997001',
    peak_at_ms: 30_000,
    bottom_value: '-1',
    bottom_at_ms: 10,
  });
  const large = `${'9'.repeat(20)}.${'9'.repeat(18)}`;
  const market = marketOfOne([large, '-1']);
  expect(Array.isArray(market.series.get('A')!.prices)).toBe(true);
  expect(marketOfOne(['0.25']).series.get('A')!.prices).toEqual(BigInt64Array.of(25n));
  const units = 10n ** 38n - 1n;
  expect(told(extremesOf(holdingOf(large, `{"A": "${large}"}`)!, market, ALL)!)).toMatchObject({
    peak_value: textOf({ digits: units * units + units * 10n ** 18n, decimals: 36 }),
    bottom_value: '0',
  });
});

test('C4 decimals are read and written without zeros at their end, and nothing else is one', () => {
  for (const [from, to] of [
    ['-0.50', '-0.5'],
    ['100', '100'],
    ['-0', '0'],
    ['007.000', '7'],
    ['0.000000000000000001', '0.000000000000000001'],
  ] as const) {
    expect(textOf(decimalOf(from))).toBe(to);
  }
  for (const wrong of ['NaN', '', '1.', '1e3', '0.0000000000000000001', '1,5']) {
    expect(() => decimalOf(wrong)).toThrow(RangeError);
  }
});
