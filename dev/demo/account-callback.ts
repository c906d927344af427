/** The demo's part about account values: extremes of a few hours and a day, and the callbacks that the portfolio got. */
import type { Redis } from 'ioredis';
import type { CallbackKey, CallbackKind } from '../../api/account-callback/callback.ts';
import { PERIOD_MS } from '../../api/account-callback/callback.ts';
import type { CallbackInput } from '../../api/account-callback/input.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import type { OperatorResources } from '../../client/resources.ts';
import { RUN_NOW_UPDATE, accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import type { PortfolioStandIn } from '../stand-ins/account-callback/portfolio-service.ts';

/** Far more than a few callbacks to a stand-in need; a demo must end. */
const LIMIT_MS = 60_000;

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

/** Publishes the hours of a user since two hours before the last midnight of UTC, and the day that it ended. */
export async function tellAccountValues(
  { temporal, db }: OperatorResources,
  portfolio: PortfolioStandIn,
  redis: Redis,
): Promise<CallbackResult> {
  const startedAt = Date.now();
  const userId = `demo-${startedAt.toString(36)}`;
  const midnight = startedAt - (startedAt % PERIOD_MS.daily);
  const beginsAt = midnight - 2 * PERIOD_MS.hourly;
  const keys = keysOf(userId, beginsAt, startedAt);
  const track: CallbackInput = { kind: 'track', user_id: userId, from_ms: beginsAt };
  await appendInputs(redis, [track, ...keys.map(extremesOf)]);
  const isTold = (key: CallbackKey) => portfolio.held(key) !== undefined;
  while (!keys.every(isTold) && Date.now() < startedAt + LIMIT_MS) {
    const { rows } = await db.query<{ shards: number }>('SELECT shards FROM notification.callback_settings');
    for (let shard = 0; shard < rows[0]!.shards; shard += 1) {
      await temporal.workflow.getHandle(accountCallbackWorkflowId(shard)).executeUpdate(RUN_NOW_UPDATE);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  // Later days of the shard do not wait for this user.
  await appendInputs(redis, [{ kind: 'untrack', user_id: userId, until_ms: startedAt }]);
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

/** An entry as the valuation of a platform would publish it. */
function extremesOf({ kind, userId, periodStartMs }: CallbackKey): CallbackInput {
  const valueAt = (ms: number) => (1_000 + 50 * Math.sin(ms / 7_200_000)).toFixed(4);
  const times = Array.from({ length: 24 }, (_, index) => periodStartMs + (index * PERIOD_MS[kind]) / 24);
  const byValue = times.toSorted((one, other) => Number(valueAt(one)) - Number(valueAt(other)));
  const [bottomAt, peakAt] = [byValue[0]!, byValue.at(-1)!];
  const extremes = {
    ...{ user_id: userId, peak_value: valueAt(peakAt), peak_at_ms: peakAt },
    ...{ bottom_value: valueAt(bottomAt), bottom_at_ms: bottomAt },
  };
  const closing = valueAt(periodStartMs + PERIOD_MS[kind]);
  return kind === 'hourly'
    ? { kind: 'hour', hour_start_ms: periodStartMs, ...extremes, closing_value: closing }
    : {
        ...{ kind: 'day', day: new Date(periodStartMs).toISOString().slice(0, 10) },
        ...extremes,
        midnight_value: closing,
      };
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
