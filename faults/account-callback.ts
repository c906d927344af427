/** Account callbacks: requests to the portfolio service, however often. ledger/account-callback.ts judges. */
import { startPortfolioService } from '../dev/stand-ins/account-callback/portfolio-service.ts';
import type { AccountInput } from './ledger/account-callback.ts';
import { DAY, HOUR, judgeCallbacks, periodsOf, untold } from './ledger/account-callback.ts';
import { RUN_NOW_UPDATE, accountCallbackWorkflowId } from '../workflows/account-callback/contract.ts';
import type { Verdict } from './ledger/verdict.ts';
import type { Arena, Work } from './work.ts';

const HOURS = 3;
const STREAM = 'stream.account.extremes';
const SHARDS = 2;
/** An alarm waits for targets that hang. */
const RUN_LIMIT_MS = 60_000;
const LADDER = [...Array<string>(6).fill('1s'), ...Array<string>(20).fill('3s')].join();

export async function openCallbacks(arena: Arena): Promise<Work> {
  const random = arena.random('account-callback');
  const portfolio = await startPortfolioService();
  const now = Date.now();
  const hoursUntilMs = now - (now % HOUR);
  const dayMs = now - (now % DAY) - DAY;
  const extremesOf = (startMs: number, lengthMs: number) => ({
    peak_value: `${random.between(10_000, 60_000)}.${random.between(10, 99)}0`,
    peak_at_ms: startMs + random.between(0, lengthMs - 1),
    bottom_value: `${random.between(-9_999, 9_999)}.5`,
    bottom_at_ms: startMs + random.between(0, lengthMs - 1),
  });
  /** Entries of each user, in their order. */
  const users = Array.from({ length: Math.max(20, Math.ceil(arena.intents / 20)) }, (_, index) => {
    const user_id = `faults-account-${index}`;
    const entries: AccountInput[] = [{ kind: 'track', user_id, from_ms: dayMs }];
    for (let start = hoursUntilMs - HOURS * HOUR; start < hoursUntilMs; start += HOUR) {
      entries.push({
        ...{ kind: 'hour', user_id, hour_start_ms: start },
        ...extremesOf(start, HOUR),
        closing_value: `${random.between(0, 9_999)}.25`,
      });
    }
    const day = new Date(dayMs).toISOString().slice(0, 10);
    entries.push({ kind: 'day', user_id, day, ...extremesOf(dayMs, DAY) });
    return entries;
  });

  const producer = arena.openProducer<AccountInput>(STREAM, (input) => [['payload', JSON.stringify(input)]]);
  const inputs = users.flat();
  const periods = periodsOf(inputs);

  return {
    name: 'account-callback',
    env: {
      NOTIFICATION_PORTFOLIO_BASE_URL: portfolio.url,
      NOTIFICATION_CALLBACK_SHARDS: String(SHARDS),
      NOTIFICATION_CALLBACK_RETRY_LADDER: LADDER,
    },
    planted: [],
    async load() {
      for await (const index of arena.spread(users.length)) {
        for (const input of users[index]!) {
          await producer.post(input);
          // The same once more: it is a repeat.
          if (random.chance(0.1)) await producer.post(input);
        }
        if (random.chance(0.1)) for (const shard of shards()) void arena.offer(() => runNow(shard));
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
        await Promise.all(shards().map((shard) => arena.offer(() => runNow(shard))));
        const left = untold(periods, portfolio.calls);
        if (left.length === 0) return true;
        throw new Error(`${left.length} of ${periods.length} are not, such as ${JSON.stringify(left[0])}`);
      });
    },
    async verify(): Promise<Verdict> {
      return judgeCallbacks({ inputs, requests: portfolio.calls });
    },
    async stop() {
      producer.stop();
      await portfolio.stop();
    },
  };

  function runNow(shard: number): Promise<unknown> {
    const handle = arena.temporal.workflow.getHandle(accountCallbackWorkflowId(shard));
    return arena.temporal.withDeadline(Date.now() + RUN_LIMIT_MS, () => handle.executeUpdate(RUN_NOW_UPDATE));
  }
}

const shards = (): number[] => Array.from({ length: SHARDS }, (_, shard) => shard);
