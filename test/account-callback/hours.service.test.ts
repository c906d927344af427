/** What is computed of an hour, against the same in SQL alone, over random histories of accounts. */
import fc from 'fast-check';
import type { Pool, QueryConfig } from 'pg';
import { PROCESSING_BOUNDS, processCompleteHours } from '../../activities/account-callback/hours.ts';
import { Ticks } from '../../activities/account-callback/ticks.ts';
import { assignShards } from '../../activities/account-callback/shards.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import type { Span } from '../../activities/account-callback/value.ts';
import type { CallbackBench } from './callbacks.ts';
import { HOUR, MIDNIGHT, positions, price, takeCallbackBench } from './callbacks.ts';
import { hourInSql } from './hour-in-sql.ts';

const HOURS = [MIDNIGHT - 3 * HOUR, MIDNIGHT - 2 * HOUR];
const [START] = HOURS;
const SYMBOLS = ['A', 'B', 'C', 'D', 'E', 'F'];
/** Worlds of prices, and accounts that live in each: 10,000 histories. */
const [WORLDS, ACCOUNTS] = [50, 200];
/** So little that a batch has several stretches, ticks are read in several parts, and a fold is halved. */
const SMALL = { users: 5, held: 6_000, kept: 30, read: 20, changes: 30, folded: 8 };

let bench: CallbackBench;
beforeAll(async () => {
  bench = await takeCallbackBench();
  await assignShards(bench.slot.db, 1);
});
afterAll(() => bench.release());

const decimal = fc.oneof(
  { weight: 4, arbitrary: fc.tuple(fc.integer({ min: -90_000, max: 90_000 }), fc.nat({ max: 99 })) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.bigInt({ min: -(10n ** 20n) + 1n, max: 10n ** 20n - 1n }), fc.nat(10 ** 9)),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.integer({ min: -2, max: 2 }), fc.bigInt({ min: 0n, max: 10n ** 18n - 1n })),
  },
);
const text = decimal.map(([whole, fraction]) => `${whole}.${fraction}`);
/** Few moments, so that many things happen in the same one, and at the ends of hours. */
const time = fc
  .tuple(fc.integer({ min: -3, max: 26 }), fc.constantFrom(-1, 0, 0, 0, 1))
  .map(([step, ms]) => START! + (step * HOUR) / 12 + ms);
const tick = fc.tuple(fc.constantFrom(...SYMBOLS), time, text);
const holding = fc.tuple(
  time,
  text,
  fc.option(fc.dictionary(fc.constantFrom(...SYMBOLS), text, { maxKeys: 4 }), { nil: null, freq: 6 }),
);
const world = fc.record({
  /** What is known before the first hour is computed, and what comes after that, some of it late. */
  ticks: fc.tuple(fc.array(tick, { maxLength: 60 }), fc.array(tick, { maxLength: 30 })),
  accounts: fc.array(
    fc.tuple(fc.array(holding, { minLength: 1, maxLength: 4 }), fc.array(holding, { maxLength: 2 })),
    {
      minLength: ACCOUNTS,
      maxLength: ACCOUNTS,
    },
  ),
});

test('C4 kinds-S2 ten thousand histories of accounts have the extremes that SQL finds, to the last digit', async () => {
  let [worlds, told] = [0, 0];
  await fc.assert(
    fc.asyncProperty(world, async ({ ticks, accounts }) => {
      await bench.empty();
      const bounds = worlds % 10 === 0 ? SMALL : PROCESSING_BOUNDS;
      worlds += 1;
      const users = accounts.map((_, index) => `user-${index}`);
      for (const [part, hourMs] of HOURS.entries()) {
        const inputs: CallbackInput[] = [
          ...ticks[part]!.map((one) => price(...one)),
          ...accounts.flatMap((parts, index) =>
            parts[part]!.map(([at, cash, held]) => positions(users[index]!, at, cash, held)),
          ),
        ];
        await bench.store(inputs);
        const now = hourMs + HOUR;
        // Accounts that are opened later are tracked from then on.
        const due = await bench.rows<{ user_id: string }>(
          'SELECT user_id FROM notification.callback_trackings WHERE caught_up_to_ms <= $1',
          [hourMs],
        );
        await bench.rows(
          'UPDATE notification.callback_trackings SET caught_up_to_ms = $1 WHERE caught_up_to_ms < $1',
          [hourMs],
        );
        const ids = due.map(({ user_id }) => user_id);
        const expected = await hourInSql(bench.slot.db, ids, hourMs);
        await compute(now, bounds);
        const found = await bench.rows(
          `SELECT user_id, peak_value::text, peak_at_ms::text, bottom_value::text, bottom_at_ms::text,
                    closing_value::text
               FROM notification.callback_snapshots
              WHERE kind = 'hourly' AND period_start_ms = $1
              ORDER BY user_id`,
          [hourMs],
        );
        expect(found).toEqual(expected);
        told += found.length;
      }
    }),
    // A world is too large to be made smaller in a reasonable time: its seed repeats it.
    { numRuns: WORLDS, endOnFailure: true },
  );
  expect(worlds * ACCOUNTS).toBeGreaterThanOrEqual(10_000);
  // Not all have prices for all that they hold.
  expect(told).toBeGreaterThan(5_000);
}, 300_000);

test('C4 kinds-S2 ticks are kept for those who hold the same, and read anew when they are too many', async () => {
  await bench.empty();
  const hour = { fromMs: MIDNIGHT, untilMs: MIDNIGHT + HOUR };
  const ticksOf = (symbol: string, count: number) =>
    Array.from({ length: count }, (_, index) =>
      price(symbol, MIDNIGHT + (index * HOUR) / count, `${index}.5`),
    );
  await bench.store([
    price('A', MIDNIGHT - 1, '7'),
    ...ticksOf('B', 40),
    ...ticksOf('C', 4),
    ...ticksOf('D', 4),
  ]);
  let statements = 0;
  const db = {
    query: (statement: QueryConfig) => {
      statements += 1;
      return bench.slot.db.query(statement);
    },
  } as unknown as Pool;
  const ticks = new Ticks(db, () => undefined, { kept: 20, read: 15 });
  const statementsOf = async (symbols: string[], span: Span) => {
    const before = statements;
    return { untilMs: await ticks.cover(symbols, span), statements: statements - before };
  };

  expect(await statementsOf(['A', 'C'], hour)).toEqual({ untilMs: hour.untilMs, statements: 2 });
  expect(ticks.series.get('A')).toMatchObject({ opening: 7n, times: Int32Array.of() });
  expect(ticks.series.get('C')).toMatchObject({
    opening: 5n,
    decimals: 1,
    prices: BigInt64Array.of(5n, 15n, 25n, 35n),
  });
  expect(await statementsOf(['C'], { ...hour, fromMs: MIDNIGHT + 1 })).toEqual({
    untilMs: hour.untilMs,
    statements: 0,
  });
  // Nothing is read of what is there.
  expect(await statementsOf(['C', 'D'], hour)).toEqual({ untilMs: hour.untilMs, statements: 2 });
  expect([...ticks.series.keys()]).toEqual(['A', 'C', 'D']);
  // Too many beside those: only what is asked for is kept, for as long as it fits.
  expect((await statementsOf(['B', 'C'], hour)).untilMs).toBe(MIDNIGHT + HOUR / 2);
  expect([...ticks.series.keys()]).toEqual(['B', 'C']);
  const { untilMs } = await statementsOf(['B', 'C', 'D'], hour);
  expect(untilMs).toBe(MIDNIGHT + HOUR / 2);
  await statementsOf(['B', 'C', 'D'], { ...hour, fromMs: untilMs });
  expect(ticks.fromMs).toBe(untilMs);
  expect(ticks.series.get('C')!.opening).toBe(
    BigInt(Math.floor(((untilMs - MIDNIGHT) * 4) / HOUR)) * 10n + 5n,
  );
});

async function compute(nowMs: number, bounds: typeof PROCESSING_BOUNDS): Promise<void> {
  const resources = {
    db: bench.slot.db,
    log: { warn: () => undefined, error: fail, info: () => undefined } as never,
    inputs: { oldestOutstanding: async () => undefined },
    callbacks: { priceGraceMs: 0, symbolSilenceMs: HOUR, snapshotRetentionMs: 24 * HOUR },
  };
  const time = { nowMs, realMs: nowMs };
  while ((await processCompleteHours(resources, 0, time, () => undefined, bounds)).isBehind);
}

function fail(fields: unknown): never {
  throw new Error(JSON.stringify(fields));
}
