/** The demo's part about account values: the prices and positions of a few hours, and what the portfolio got of them. */
import type { Redis } from 'ioredis';
import type { CallbackKey, CallbackKind } from '../../api/account-callback/callback.ts';
import { PERIOD_MS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { Operator } from '../../client/operator.ts';
import type { PortfolioStandIn } from '../stand-ins/account-callback/portfolio-service.ts';

/** Far more than a few callbacks to a stand-in need; a demo must end. */
const LIMIT_MS = 60_000;
const SYMBOL = 'DEMO';

interface CallbackResult {
  userId: string;
  isComplete: boolean;
  /** Callbacks that are due, and callbacks that the portfolio acknowledged. */
  expected: Record<CallbackKind, number>;
  acknowledged: Record<CallbackKind, number>;
  /** Of the last day. */
  day?: { peak: string; bottom: string; closing: string };
  afterMs: number;
}

/** A user who holds something since two hours before the last midnight of UTC, and is told what became of it since. */
export async function tellAccountValues(
  { callbacks }: Operator,
  portfolio: PortfolioStandIn,
  { redis, stream }: { redis: Redis; stream: string },
): Promise<CallbackResult> {
  const startedAt = Date.now();
  const userId = `demo-${startedAt.toString(36)}`;
  const midnight = startedAt - (startedAt % PERIOD_MS.daily);
  const beginsAt = midnight - 2 * PERIOD_MS.hourly;
  const keys = keysOf(userId, beginsAt, startedAt);
  const hold = (coefficients: Record<string, string> | null, at_ms: number): CallbackInput => ({
    type: 'positions',
    user_id: userId,
    cash: '1000',
    coefficients,
    at_ms,
  });
  await appendInputs(redis, [...ticksOf(beginsAt, startedAt), hold({ [SYMBOL]: '2.5' }, beginsAt)], {
    stream,
  });
  const isTold = (key: CallbackKey) => portfolio.held(key) !== undefined;
  while (!keys.every(isTold) && Date.now() < startedAt + LIMIT_MS) {
    const shards = await callbacks.status();
    await Promise.all(shards.map(({ shard }) => callbacks.run(shard)));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  // The next demo need not continue this account.
  await appendInputs(redis, [hold(null, startedAt)], { stream });
  const count = (kind: CallbackKind, matching: readonly CallbackKey[]) =>
    matching.filter((key) => key.kind === kind).length;
  const told = keys.filter(isTold);
  const day = portfolio.held({ kind: 'daily', userId, periodStartMs: midnight - PERIOD_MS.daily });
  return {
    userId,
    isComplete: told.length === keys.length,
    expected: { hourly: count('hourly', keys), daily: count('daily', keys) },
    acknowledged: { hourly: count('hourly', told), daily: count('daily', told) },
    ...(day ? { day: { peak: day.peak_value, bottom: day.bottom_value, closing: day.closing_value } } : {}),
    afterMs: Date.now() - startedAt,
  };
}

/** A price every ten minutes, the present one included: the hours before it are complete. */
function ticksOf(fromMs: number, toMs: number): CallbackInput[] {
  const price = (at_ms: number): CallbackInput => ({
    type: 'price',
    symbol: SYMBOL,
    price: (100 + 20 * Math.sin(at_ms / 7_200_000)).toFixed(4),
    at_ms,
  });
  const ticks: CallbackInput[] = [];
  for (let at = fromMs; at < toMs; at += 600_000) ticks.push(price(at));
  return [...ticks, price(toMs)];
}

/** Every hour that is over since then, and the day. */
function keysOf(userId: string, fromMs: number, nowMs: number): CallbackKey[] {
  const keys: CallbackKey[] = [];
  for (let at = fromMs; at + PERIOD_MS.hourly <= nowMs; at += PERIOD_MS.hourly) {
    keys.push({ kind: 'hourly', userId, periodStartMs: at });
  }
  const dayMs = fromMs - (fromMs % PERIOD_MS.daily);
  return [...keys, { kind: 'daily', userId, periodStartMs: dayMs }];
}

export function verdictOnCallbacks({ expected, acknowledged, day, afterMs }: CallbackResult): string {
  const told = (kind: CallbackKind) => `${acknowledged[kind]} of ${expected[kind]} ${kind}`;
  const values = day ? `; the day's peak ${day.peak}, bottom ${day.bottom}, closing ${day.closing}` : '';
  return `Account values: ${told('hourly')} and ${told('daily')} callbacks acknowledged after ${afterMs} ms${values}.`;
}
