/** The value of accounts along an hour, against the independent calculation of values.ts. */
import fc from 'fast-check';
import type { Holding, Tick } from '../../activities/account-callback/walk.ts';
import { Walk } from '../../activities/account-callback/walk.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { HOUR, expectationsOf, positions, price } from './values.ts';

const START = 1_000 * HOUR;
const USERS = ['ann', 'bob', 'cyd'];
const SYMBOLS = ['A', 'B', 'C'];

/** As hours.ts walks an hour, by stretches of this length. */
function walkHour(inputs: readonly CallbackInput[], stretchMs: number) {
  const ticks: Tick[] = [];
  const holdings: Holding[] = [];
  for (const input of inputs) {
    if (input.type === 'price') ticks.push({ symbol: input.symbol, atMs: input.at_ms, price: input.price });
    else {
      const { user_id: userId, at_ms: atMs, cash, coefficients } = input;
      const json = coefficients && JSON.stringify(coefficients);
      holdings.push({ userId, atMs, cash, coefficients: json });
    }
  }
  const latest = <Of extends { atMs: number }>(all: Of[]) =>
    all.filter(({ atMs }) => atMs <= START).sort((a, b) => b.atMs - a.atMs)[0];
  const walk = new Walk(USERS);
  walk.know(SYMBOLS.flatMap((symbol) => latest(ticks.filter((tick) => tick.symbol === symbol)) ?? []));
  const opening = USERS.flatMap((user) => latest(holdings.filter(({ userId }) => userId === user)) ?? []);
  const goOn = (some: Tick[], changes: Holding[]) => {
    for (const _ of walk.advance(some, changes)) expect(_).toBeUndefined();
  };
  goOn(
    [],
    opening.map((holding) => ({ ...holding, atMs: START })),
  );
  for (let from = START; from < START + HOUR - 1; from += stretchMs) {
    const within = ({ atMs }: { atMs: number }) =>
      atMs > from && atMs <= Math.min(from + stretchMs, START + HOUR - 1);
    goOn(ticks.filter(within), holdings.filter(within));
  }
  return walk.extremes();
}

const decimal = fc
  .tuple(fc.bigInt({ min: -(10n ** 12n), max: 10n ** 12n }), fc.nat({ max: 999_999 }))
  .map(([whole, fraction]) => `${whole}.${String(fraction).padStart(6, '0')}`);
// Few moments, so that many things happen in the same one.
const time = fc.integer({ min: -2, max: 12 }).map((step) => START + step * (HOUR / 10));
const held = fc.option(fc.dictionary(fc.constantFrom(...SYMBOLS), decimal), { nil: null });
const input = fc.oneof(
  fc.tuple(fc.constantFrom(...SYMBOLS), time, decimal).map(([symbol, at, of]) => price(symbol, at, of)),
  fc
    .tuple(fc.constantFrom(...USERS), time, decimal, held)
    .map(([user, at, cash, of]) => positions(user, at, cash, of)),
);
/** What is known of a moment stays. */
const inputs = fc.uniqueArray(input, {
  maxLength: 40,
  selector: (one) => `${one.type} ${one.type === 'price' ? one.symbol : one.user_id} ${one.at_ms}`,
});

test('C4 kinds-S2 whatever comes in, in whatever parts it is read: exactly the extremes of the value', () => {
  fc.assert(
    fc.property(inputs, fc.constantFrom(HOUR, HOUR / 3, HOUR / 10), (all, stretchMs) => {
      const expected = expectationsOf(all);
      const found = new Map(walkHour(all, stretchMs).map((extremes) => [extremes.userId, extremes]));
      for (const user of USERS) {
        const should = expected(user, 'hourly', START);
        const is = found.get(user);
        expect(
          is && {
            period_start_ms: START,
            period_end_ms: START + HOUR,
            peak_value: is.peakValue,
            peak_at_ms: is.peakAtMs,
            bottom_value: is.bottomValue,
            bottom_at_ms: is.bottomAtMs,
            closing_value: is.closingValue,
          },
        ).toEqual(should);
      }
    }),
    { numRuns: 2_000 },
  );
});

test('C4 the walk of many pauses, and 18 decimals are exact', () => {
  const walk = new Walk(['ann']);
  const coefficients = JSON.stringify({ A: '0.000000000000000001' });
  walk.know([{ symbol: 'A', price: '0.000000000000000001' }]);
  const ticks = Array.from({ length: 30_000 }, (_, index) => ({
    symbol: 'A',
    atMs: index + 1,
    price: `${index}`,
  }));
  let pauses = 0;
  for (const _ of walk.advance(ticks, [{ userId: 'ann', atMs: 0, cash: '-1', coefficients }])) pauses += 1;
  expect(pauses).toBeGreaterThan(0);
  expect(walk.extremes()).toEqual([
    {
      userId: 'ann',
      peakValue: '-0.999999999999970001',
      peakAtMs: 30_000,
      bottomValue: '-1',
      bottomAtMs: 1,
      closingValue: '-0.999999999999970001',
    },
  ]);
  expect(() => walk.know([{ symbol: 'A', price: 'NaN' }])).toThrow(RangeError);
});

test('C4 an extreme that comes again is told with its first time', () => {
  const walk = new Walk(['ann']);
  walk.know([{ symbol: 'A', price: '5' }]);
  const ticks = ['9', '1', '9', '1', '4'].map((price, index) => ({
    symbol: 'A',
    atMs: 10 * (index + 1),
    price,
  }));
  const holding = { userId: 'ann', atMs: 0, cash: '0', coefficients: JSON.stringify({ A: '1' }) };
  expect([...walk.advance(ticks, [holding])]).toEqual([]);
  expect(walk.extremes()).toMatchObject([{ peakAtMs: 10, bottomAtMs: 20, closingValue: '4' }]);
});
