/** Account values: what portfolios were told of each hour and day, however often. ledger/account-callback.ts judges. */
import { startPortfolioService } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import { judgeCallbacks, periodsOf, untold } from './ledger/account-callback.ts';
import type { AccountInput } from './ledger/account-values.ts';
import { HOUR } from './ledger/account-values.ts';
import type { Verdict } from './ledger/verdict.ts';
import type { Arena, Work } from './work.ts';

const HOURS = 3;
const SYMBOLS = ['BTC', 'ETH', 'SOL'];
const STREAM = 'stream.account.inputs';
const SHARDS = 2;
const LADDER = [...Array<string>(6).fill('1s'), ...Array<string>(20).fill('3s')].join();

export async function openCallbacks(arena: Arena): Promise<Work> {
  const random = arena.random('account-callback');
  const portfolio = await startPortfolioService();
  const { callbacks } = arena.operator;
  const now = Date.now();
  /** Hours that are over before the run begins, so that all of their prices can come first. */
  const untilMs = now - (now % HOUR);
  const fromMs = untilMs - HOURS * HOUR;
  const prices = SYMBOLS.flatMap((symbol) =>
    // The present one says that the hours before are complete.
    [...Array.from({ length: HOURS * 12 }, (_, index) => fromMs + index * 300_000), untilMs, now].map(
      (at) => ({
        type: 'price' as const,
        symbol,
        price: `${random.between(1, 60_000)}.${random.between(0, 99)}`,
        at_ms: at,
      }),
    ),
  );
  const users = Array.from({ length: Math.max(20, Math.ceil(arena.intents / 20)) }, (_, index) => ({
    type: 'positions' as const,
    user_id: userOf(index),
    at_ms: fromMs + random.between(0, HOUR),
    cash: `${random.between(0, 9_999)}.5`,
    coefficients: Object.fromEntries(
      SYMBOLS.slice(0, random.between(1, 3)).map((symbol) => [symbol, `${random.between(1, 9)}.25`]),
    ),
  }));

  const producer = arena.openProducer<AccountInput>(STREAM, (input) => [['payload', JSON.stringify(input)]]);
  const inputs: AccountInput[] = [...prices, ...users];
  const periods = periodsOf({ inputs, fromMs, untilMs });

  return {
    name: 'account-callback',
    env: {
      NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
      NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
      NOTIFICATION_CALLBACK_RETRY_LADDER: LADDER,
    },
    planted: [],
    async load() {
      for (const one of prices) await producer.post(one);
      // What comes late does not change what was told.
      await arena.until('prices to be stored', async () => {
        const { rows } = await arena.db.query<{ count: number }>(
          'SELECT count(*)::int AS count FROM notification.callback_prices',
        );
        if (rows[0]!.count === prices.length) return true;
        throw new Error(`${rows[0]!.count} of ${prices.length} are`);
      });
      for await (const index of arena.spread(users.length)) {
        await producer.post(users[index]!);
        if (random.chance(0.1)) await producer.post(users[random.between(0, index)]!);
        if (random.chance(0.1)) for (const shard of shards()) void arena.offer(() => callbacks.run(shard));
        if (random.chance(0.2)) {
          portfolio.heal();
          portfolio.fail({
            failure: random.oneOf([
              { kind: 'status', status: 500 },
              { kind: 'lost-answer' },
              { kind: 'reset' },
              { kind: 'delay', ms: 300 },
            ] as const),
            times: random.between(1, 5),
          });
        }
      }
    },
    async settle() {
      portfolio.heal();
      if (arena.hasLost())
        await arena.persist('inputs that the stream has lost to be put in again', () =>
          producer.repeatLost(),
        );
      await arena.until('every callback to be told', async () => {
        await Promise.all(shards().map((shard) => arena.offer(() => callbacks.run(shard))));
        const left = untold(periods, portfolio.calls);
        if (left.length === 0) return true;
        throw new Error(`${left.length} of ${periods.length} are not, such as ${JSON.stringify(left[0])}`);
      });
    },
    async verify(): Promise<Verdict> {
      return judgeCallbacks({ inputs, fromMs, untilMs, requests: portfolio.calls });
    },
    async stop() {
      producer.stop();
      await portfolio.stop();
    },
  };
}

const shards = (): number[] => Array.from({ length: SHARDS }, (_, shard) => shard);
const userOf = (index: number): string => `faults-account-${index}`;
