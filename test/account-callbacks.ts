/**
 * A slot with the stand-in portfolio service and the service's role for it, at a time of the test's choice; and the
 * values of accounts by an independent calculation.
 */
import { storeInputs } from '../activities/callback-inputs.ts';
import type { CallbackKind } from '../api/account-callback.ts';
import type { CallbackInput } from '../api/callback-input.ts';
import type { PortfolioStandIn, RecordedCallback } from '../dev/portfolio-service.ts';
import { startPortfolioService } from '../dev/portfolio-service.ts';
import { migrate } from '../migrations/migrate.ts';
import type { Service } from '../workers/service.ts';
import type { CallbackState } from '../workflows/account-callback-contract.ts';
import {
  ACCOUNT_CALLBACK_TASK_QUEUE,
  ACCOUNT_CALLBACK_WORKFLOW,
  CALLBACK_STATUS_QUERY,
  RUN_NOW_UPDATE,
  accountCallbackWorkflowId,
} from '../workflows/account-callback-contract.ts';
import type { Slot } from './harness.ts';
import { eventually, takeSlot } from './harness.ts';

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
/** A midnight of UTC. */
export const MIDNIGHT = Date.UTC(2026, 2, 29);

export interface CallbackBench {
  slot: Slot;
  portfolio: PortfolioStandIn;
  /** One shard unless `env` says otherwise. */
  startService(env?: Record<string, string>): Promise<Service>;
  /** Makes shards that take this for the present, from the start of the next service on; ends those that run. */
  setClock(nowMs: number, shards?: number): Promise<void>;
  store(inputs: readonly CallbackInput[]): Promise<void>;
  handle(shard?: number): ReturnType<Slot['client']['workflow']['getHandle']>;
  status(shard?: number): Promise<CallbackState>;
  runNow(shard?: number): Promise<CallbackState>;
  /** Callbacks of a kind that were received. */
  calls(kind: CallbackKind): RecordedCallback[];
  rows<Row extends object>(sql: string, values?: unknown[]): Promise<Row[]>;
  /** Waits until every tracking has come so far, and nothing is left to deliver for the first time. */
  settled(caughtUpToMs: number, limitMs?: number): Promise<void>;
  /** Forgets all users, prices and callbacks. */
  empty(): Promise<void>;
  release(): Promise<void>;
}

export const CALLBACK_ENV = {
  NOTIFICATION_ROLES: 'account-callback',
  NOTIFICATION_CALLBACK_SHARDS: '1',
  // The tests share a machine.
  NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '60s',
};

export async function takeCallbackBench(): Promise<CallbackBench> {
  const slot = await takeSlot();
  await migrate(slot.endpoints.postgresDsn);
  const portfolio = await startPortfolioService();
  const handle = (shard = 0) => slot.client.workflow.getHandle(accountCallbackWorkflowId(shard));
  const rows = async <Row extends object>(sql: string, values: unknown[] = []): Promise<Row[]> =>
    (await slot.db.query<Row>(sql, values)).rows;

  return {
    slot,
    portfolio,
    handle,
    rows,
    startService: (env) => slot.startService({ ...CALLBACK_ENV, ...env }, { portfolioUrl: portfolio.url }),
    async setClock(nowMs, shards = 1) {
      for (let shard = 0; shard < shards; shard += 1) {
        await slot.client.workflow.start(ACCOUNT_CALLBACK_WORKFLOW, {
          workflowId: accountCallbackWorkflowId(shard),
          taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
          args: [{ shard, clockOffsetMs: nowMs - Date.now() }],
          workflowIdConflictPolicy: 'TERMINATE_EXISTING',
        });
      }
    },
    store: (inputs) => storeInputs(slot.db, inputs, { nowMs: MIDNIGHT, maxAgeMs: 365 * DAY }),
    status: (shard) => handle(shard).query<CallbackState>(CALLBACK_STATUS_QUERY),
    runNow: (shard) => handle(shard).executeUpdate<CallbackState, []>(RUN_NOW_UPDATE),
    calls: (kind) => portfolio.calls.filter((call) => call.kind === kind),
    settled: async (caughtUpToMs, limitMs = 60_000) => {
      await eventually(
        'all callbacks to be tried',
        async () => {
          const [row] = await rows<{ left: number; behind: number }>(
            `SELECT (SELECT count(*)::int FROM notification.callback_trackings
                      WHERE caught_up_to_ms < $1
                         OR (daily_date < $2::date - 1 AND NOT EXISTS (
                              SELECT FROM notification.failed_callbacks AS failed
                               WHERE failed.user_id = callback_trackings.user_id AND kind = 'daily'))) AS behind,
                    (SELECT count(*)::int FROM notification.callback_snapshots WHERE status = 'pending') AS left`,
            [caughtUpToMs, new Date(caughtUpToMs).toISOString().slice(0, 10)],
          );
          if (row!.left + row!.behind === 0) return true;
          throw new Error(`there are ${JSON.stringify(row)}`);
        },
        limitMs,
      );
    },
    async empty() {
      portfolio.forget();
      await slot.db.query(`
        TRUNCATE notification.callback_trackings, notification.callback_positions, notification.callback_prices,
                 notification.callback_symbols, notification.callback_snapshots, notification.failed_callbacks,
                 notification.callback_dead_letters`);
    },
    async release() {
      await slot.release();
      await portfolio.stop();
    },
  };
}

export const price = (symbol: string, at_ms: number, of: string): CallbackInput => ({
  type: 'price',
  symbol,
  price: of,
  at_ms,
});

export const positions = (
  user_id: string,
  at_ms: number,
  cash: string,
  coefficients: Record<string, string> | null,
): CallbackInput => ({ type: 'positions', user_id, cash, coefficients, at_ms });

// The independent calculation: whole numbers of 10^-36, no database.

const DECIMALS = 18;

function whole(decimal: string, decimals = DECIMALS): bigint {
  const [integer = '', fraction = ''] = decimal.split('.');
  return BigInt(integer + fraction.padEnd(decimals, '0'));
}

function decimalOf(value: bigint): string {
  const digits = (value < 0n ? -value : value).toString().padStart(2 * DECIMALS + 1, '0');
  const text = `${digits.slice(0, -2 * DECIMALS)}.${digits.slice(-2 * DECIMALS)}`.replace(/\.?0+$/, '');
  return value < 0n ? `-${text}` : text;
}

interface Held {
  at: number;
  cash: bigint;
  coefficients: [symbol: string, coefficient: bigint][] | null;
}

/** Answers what is to be told about a period, as a body; undefined when there is nothing to tell. */
export function expectationsOf(inputs: readonly CallbackInput[]) {
  const ticks = new Map<string, { at: number; price: bigint }[]>();
  const held = new Map<string, Held[]>();
  for (const input of inputs) {
    if (input.type === 'price') {
      const list = ticks.get(input.symbol) ?? [];
      ticks.set(input.symbol, [...list, { at: input.at_ms, price: whole(input.price) }]);
    } else {
      const { user_id, at_ms: at, cash, coefficients } = input;
      const legs = coefficients && Object.entries(coefficients);
      const one: Held = {
        at,
        cash: whole(cash) * 10n ** BigInt(DECIMALS),
        coefficients: legs && legs.map(([symbol, coefficient]) => [symbol, whole(coefficient)]),
      };
      held.set(user_id, [...(held.get(user_id) ?? []), one]);
    }
  }
  for (const list of [...ticks.values(), ...held.values()]) list.sort((a, b) => a.at - b.at);

  /** What an account is worth at a time, or undefined when that cannot be said. */
  function valueAt(userId: string, atMs: number): bigint | undefined {
    const positionsThen = latest(held.get(userId) ?? [], atMs);
    if (!positionsThen?.coefficients) return undefined;
    let value = positionsThen.cash;
    for (const [symbol, coefficient] of positionsThen.coefficients) {
      const tick = latest(ticks.get(symbol) ?? [], atMs);
      if (!tick) return undefined;
      value += coefficient * tick.price;
    }
    return value;
  }

  return (userId: string, kind: CallbackKind, startMs: number) => {
    const endMs = startMs + (kind === 'hourly' ? HOUR : DAY);
    const own = held.get(userId) ?? [];
    const symbols = new Set(
      own.flatMap(({ coefficients }) => (coefficients ?? []).map(([symbol]) => symbol)),
    );
    const events = [...own, ...[...symbols].flatMap((symbol) => ticks.get(symbol) ?? [])];
    const times = new Set(events.map(({ at }) => at).filter((at) => at > startMs && at < endMs));
    // An hour begins with the value that it had; so do those that make up a day.
    for (let at = startMs; at < endMs; at += HOUR) times.add(at);
    const points = [...times]
      .sort((a, b) => a - b)
      .flatMap((at) => {
        const value = valueAt(userId, at);
        return value === undefined ? [] : [{ at, value }];
      });
    if (points.length === 0) return undefined;
    const peak = points.reduce((best, point) => (point.value > best.value ? point : best));
    const bottom = points.reduce((best, point) => (point.value < best.value ? point : best));
    const closing = kind === 'hourly' ? points.at(-1)!.value : (valueAt(userId, endMs) ?? peak.value);
    return {
      period_start_ms: startMs,
      period_end_ms: endMs,
      peak_value: decimalOf(peak.value),
      peak_at_ms: peak.at,
      bottom_value: decimalOf(bottom.value),
      bottom_at_ms: bottom.at,
      closing_value: decimalOf(closing),
    };
  };
}

/** The last one at or before a time, of a list in the order of time. */
function latest<Of extends { at: number }>(list: readonly Of[], atMs: number): Of | undefined {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]!.at <= atMs) low = middle + 1;
    else high = middle;
  }
  return list[low - 1];
}
