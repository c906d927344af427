/**
 * The values of some accounts along an hour: what they hold and come to hold in it, folded over the ticks of the shard.
 * Owns the SQL that reads changes of positions.
 *
 * An hour is walked in stretches, in which there are so many changes and ticks as may be in memory.
 */
import { setImmediate as pause } from 'node:timers/promises';
import type { Pool } from 'pg';
import { HOUR_MS } from '../../workflows/account-callback/contract.ts';
import { ANSWER, query } from '../postgres.ts';
import { textOf } from './decimals.ts';
import type { Ticks } from './ticks.ts';
import { SHORTEST_MS } from './ticks.ts';
import type { Found, Holding, Span } from './value.ts';
import { combined, extremesOf, holdingOf, ticksWithin } from './value.ts';

export interface HourBounds {
  /** Changes of positions of one stretch, of 128 KiB each (`MAX_INPUT_BYTES`). */
  changes: number;
  /** Ticks between two pauses: some milliseconds. */
  folded: number;
}

export const HOUR_BOUNDS: HourBounds = { changes: 200, folded: 20_000 };

/** What an account holds when an hour begins; without text, it is opened within the hour. */
export interface Opening {
  userId: string;
  held?: Positions;
}

export interface Positions {
  cash: string;
  /** JSON: coefficients by symbol, decimals in text; null: the account has no value. */
  coefficients: string | null;
}

/** What is told about an hour: values are decimals in text, without zeros at their end. */
export interface Extremes {
  userId: string;
  peakValue: string;
  /** The first time at which the value was that high, epoch ms. */
  peakAtMs: number;
  bottomValue: string;
  bottomAtMs: number;
  closingValue: string;
}

interface Account {
  userId: string;
  holding: Holding | undefined;
  found: Found | undefined;
}

interface Change {
  userId: string;
  atMs: number;
  holding: Holding | undefined;
}

/**
 * @param beat called now and then; what it throws ends the work.
 * @returns the extremes of those who had a value.
 * @throws RangeError for what is no decimal.
 */
export async function extremesOfHour(
  { db, ticks, beat }: { db: Pool; ticks: Ticks; beat: () => void },
  hourMs: number,
  users: readonly Opening[],
  bounds: HourBounds,
): Promise<Extremes[]> {
  const accounts = new Map(
    users.map(({ userId, held }): [string, Account] => [
      userId,
      { userId, holding: held && holdingOf(held.cash, held.coefficients), found: undefined },
    ]),
  );
  const endMs = hourMs + HOUR_MS;
  let folded = 0;
  let widthMs = HOUR_MS;
  for (let fromMs = hourMs; fromMs < endMs;) {
    const span = { fromMs, untilMs: Math.min(endMs, fromMs + widthMs) };
    const changes = await loadChanges(db, [...accounts.keys()], span, bounds.changes);
    if (changes === undefined) {
      widthMs = Math.ceil(widthMs / 2);
      continue;
    }
    const symbols = symbolsOf([...accounts.values(), ...changes]);
    span.untilMs = Math.min(span.untilMs, await ticks.cover(symbols, { fromMs, untilMs: endMs }));
    const changesOf = Map.groupBy(changes, ({ userId }) => userId);
    for (const account of accounts.values()) await walk(account, changesOf.get(account.userId) ?? [], span);
    fromMs = span.untilMs;
    if (changes.length < bounds.changes / 2) widthMs *= 2;
  }
  return [...accounts.values()].flatMap(({ userId, found }) => (found ? [toldOf(userId, found)] : []));

  /** What an account holds, one after the other. @param changes in the order of time; some may be later than the span. */
  async function walk(
    account: Account,
    changes: readonly Change[],
    { fromMs, untilMs }: Span,
  ): Promise<void> {
    let sinceMs = fromMs;
    for (const { atMs, holding } of changes) {
      if (atMs >= untilMs) break;
      await fold(account, { fromMs: sinceMs, untilMs: atMs });
      account.holding = holding;
      sinceMs = atMs;
    }
    await fold(account, { fromMs: sinceMs, untilMs });
  }

  async function fold(account: Account, span: Span): Promise<void> {
    const { holding } = account;
    const { fromMs, untilMs } = span;
    if (holding === undefined || fromMs === untilMs) return;
    const count = ticksWithin(holding, ticks, span);
    if (count > bounds.folded && untilMs - fromMs > 1) {
      const middleMs = Math.floor((fromMs + untilMs) / 2);
      await fold(account, { fromMs, untilMs: middleMs });
      await fold(account, { fromMs: middleMs, untilMs });
      return;
    }
    account.found = combined(account.found, extremesOf(holding, ticks, span));
    // What is held costs as well, with or without ticks.
    folded += count + holding.coefficients.size;
    if (folded < bounds.folded) return;
    folded = 0;
    // Others in this process have their turn.
    await pause();
    beat();
  }
}

function symbolsOf(all: readonly { holding: Holding | undefined }[]): string[] {
  const symbols = new Set<string>();
  for (const { holding } of all) for (const symbol of holding?.coefficients.keys() ?? []) symbols.add(symbol);
  return [...symbols];
}

const toldOf = (userId: string, { decimals, ...found }: Found): Extremes => ({
  userId,
  peakValue: textOf({ digits: found.peak, decimals }),
  peakAtMs: found.peakAtMs,
  bottomValue: textOf({ digits: found.bottom, decimals }),
  bottomAtMs: found.bottomAtMs,
  closingValue: textOf({ digits: found.closing, decimals }),
});

/** @returns those of a span, by the user in the order of time; undefined for what is too much at once, or takes too long. */
async function loadChanges(
  db: Pool,
  userIds: readonly string[],
  { fromMs, untilMs }: Span,
  atMost: number,
): Promise<Change[] | undefined> {
  // A moment cannot be halved. It has a change for each account at most.
  const most = untilMs - fromMs === 1 ? null : atMost;
  let rows: ChangeRow[];
  try {
    rows = await query<ChangeRow>(db, LOAD_CHANGES, [userIds, fromMs, untilMs, most]);
  } catch (error) {
    if (untilMs - fromMs <= SHORTEST_MS) throw error;
    await query(db, ANSWER, []);
    return undefined;
  }
  if (rows.length === most) return undefined;
  return rows
    .map(({ user_id: userId, at_ms: atMs, cash, coefficients }) => ({
      userId,
      atMs: Number(atMs),
      holding: holdingOf(cash, coefficients),
    }))
    .sort((a, b) => a.atMs - b.atMs);
}

interface ChangeRow {
  user_id: string;
  at_ms: string;
  cash: string;
  coefficients: string | null;
}

/** $1 users, $2 from, $3 until before, $4 rows at most or null. */
const LOAD_CHANGES = {
  name: 'load_callback_positions',
  text: `
    SELECT given.user_id, at_ms, cash::text, coefficients::text
      FROM unnest($1::text[]) AS given (user_id)
     CROSS JOIN LATERAL (
       SELECT at_ms, cash, coefficients
         FROM notification.callback_positions
        WHERE user_id = given.user_id AND at_ms >= $2::bigint AND at_ms < $3::bigint
        ORDER BY at_ms
        LIMIT $4
     ) AS positions
     LIMIT $4`,
};
