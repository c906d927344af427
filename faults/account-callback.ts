/** Account values: what portfolios were told of each hour and day equals an independent calculation, however often it was told. */
import type { CallbackKey } from '../api/account-callback/callback.ts';
import { PERIOD_MS } from '../api/account-callback/callback.ts';
import type { CallbackInput } from '../api/account-callback/input.ts';
import { appendInputs } from '../client/account-callback/inputs.ts';
import { startPortfolioService } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import { expectationsOf, positions, price } from '../test/account-callback/values.ts';
import type { Arena, Verdict, Work } from './work.ts';
import { noVerdict } from './work.ts';

const HOUR = PERIOD_MS.hourly;
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
    [...Array.from({ length: HOURS * 12 }, (_, index) => fromMs + index * 300_000), untilMs, now].map((at) =>
      price(symbol, at, `${random.between(1, 60_000)}.${random.between(0, 99)}`),
    ),
  );
  const users = Array.from({ length: Math.max(20, Math.ceil(arena.intents / 20)) }, (_, index) =>
    positions(
      userOf(index),
      fromMs + random.between(0, HOUR),
      `${random.between(0, 9_999)}.5`,
      Object.fromEntries(
        SYMBOLS.slice(0, random.between(1, 3)).map((symbol) => [symbol, `${random.between(1, 9)}.25`]),
      ),
    ),
  );

  const append = (inputs: readonly CallbackInput[]) =>
    arena.persist('account inputs to be appended', () =>
      appendInputs(arena.redis, inputs, { stream: STREAM }),
    );

  return {
    name: 'account-callback',
    env: {
      NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
      NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
      NOTIFICATION_CALLBACK_RETRY_LADDER: LADDER,
    },
    planted: [],
    async load() {
      await append(prices);
      // What comes late does not change what was told.
      await arena.until('prices to be stored', async () => {
        const { rows } = await arena.db.query<{ count: number }>(
          'SELECT count(*)::int AS count FROM notification.callback_prices',
        );
        if (rows[0]!.count === prices.length) return true;
        throw new Error(`${rows[0]!.count} of ${prices.length} are`);
      });
      for await (const index of arena.spread(users.length)) {
        await append([users[index]!]);
        if (random.chance(0.1)) await append([users[random.between(0, index)]!]);
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
      const expected = keys();
      await arena.until('every callback to be told', async () => {
        await Promise.all(shards().map((shard) => arena.offer(() => callbacks.run(shard))));
        const left = expected.filter((key) => portfolio.held(key) === undefined);
        if (left.length === 0) return true;
        throw new Error(`${left.length} of ${expected.length} are not, such as ${JSON.stringify(left[0])}`);
      });
    },
    async verify(): Promise<Verdict> {
      const verdict = noVerdict();
      const expectation = expectationsOf([...prices, ...users]);
      for (const { userId, kind, periodStartMs } of keys()) {
        const [is, should] = [
          portfolio.held({ userId, kind, periodStartMs }),
          expectation(userId, kind, periodStartMs),
        ];
        if (!is) verdict.lost.push(`${kind} callback of ${userId} for ${periodStartMs}`);
        else if (JSON.stringify(sorted(is)) !== JSON.stringify(sorted(should ?? {}))) {
          verdict.wrong.push(
            `${kind} ${userId} ${periodStartMs}: ${JSON.stringify(is)}, not ${JSON.stringify(should)}`,
          );
        }
      }
      const told = new Map<string, Set<string>>();
      for (const { userId, kind, body, idempotencyKey } of portfolio.calls) {
        const { period_start_ms: start } = JSON.parse(body) as { period_start_ms: number };
        const key = `${kind} ${userId} ${start}`;
        told.set(key, (told.get(key) ?? new Set()).add(`${idempotencyKey} ${body}`));
      }
      for (const [key, different] of told) {
        if (different.size > 1) verdict.wrong.push(`${key} was told in ${different.size} ways`);
      }
      verdict.figures = {
        users: users.length,
        periods: told.size,
        callbacks: portfolio.calls.length,
        repeated: portfolio.calls.length - told.size,
      };
      return verdict;
    },
    stop: () => portfolio.stop(),
  };

  function keys(): CallbackKey[] {
    const expectation = expectationsOf([...prices, ...users]);
    const days = new Set<number>();
    const all: CallbackKey[] = [];
    for (const { user_id: userId } of users as { user_id: string }[]) {
      for (let at = fromMs; at < untilMs; at += HOUR) {
        if (expectation(userId, 'hourly', at)) all.push({ userId, kind: 'hourly', periodStartMs: at });
        days.add(at - (at % PERIOD_MS.daily));
      }
      for (const day of days) {
        const isOver = day + PERIOD_MS.daily <= untilMs;
        if (isOver && expectation(userId, 'daily', day))
          all.push({ userId, kind: 'daily', periodStartMs: day });
      }
    }
    return all;
  }
}

const shards = (): number[] => Array.from({ length: SHARDS }, (_, shard) => shard);
const userOf = (index: number): string => `faults-account-${index}`;
const sorted = (body: object) => Object.entries(body).sort(([a], [b]) => (a < b ? -1 : 1));
