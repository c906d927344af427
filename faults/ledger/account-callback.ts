/** The judge of account callbacks: what portfolios were told of each hour and day against an independent calculation. */
import type { AccountInput, Period } from './account-values.ts';
import { DAY, HOUR, expectationsOf } from './account-values.ts';
import { jsonOf, sameValue } from './comparison.ts';
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

/** One request that the portfolio service got. */
export interface PortfolioRequest {
  path: string;
  idempotencyKey: string | undefined;
  body: string;
  /** It was carried out, whether the answer got through or not. */
  isApplied: boolean;
}

export interface CallbackCase {
  inputs: readonly AccountInput[];
  /** The hours that have all their prices. */
  fromMs: number;
  untilMs: number;
  requests: readonly PortfolioRequest[];
}

const periodKey = ({ userId, kind, startMs }: Period): string => `${kind} ${userId} ${startMs}`;

/** Everything that there is to tell. */
export function periodsOf({ inputs, fromMs, untilMs }: Omit<CallbackCase, 'requests'>): Period[] {
  const expectation = expectationsOf(inputs);
  const users = new Set(inputs.flatMap((input) => (input.type === 'positions' ? [input.user_id] : [])));
  const all: Period[] = [];
  const add = (period: Period) => expectation(period) && all.push(period);
  for (const userId of users) {
    const days = new Set<number>();
    for (let at = fromMs; at < untilMs; at += HOUR) {
      add({ userId, kind: 'hourly', startMs: at });
      days.add(at - (at % DAY));
    }
    for (const startMs of days) if (startMs + DAY <= untilMs) add({ userId, kind: 'daily', startMs });
  }
  return all;
}

/** What a portfolio holds: of each period the last that it was told. */
export function heldPeriods(requests: readonly PortfolioRequest[]): Map<string, string> {
  const held = new Map<string, string>();
  for (const { path, body, isApplied } of requests) {
    const period = periodIn(path, body);
    if (isApplied && period) held.set(periodKey(period), body);
  }
  return held;
}

/** `…/portfolios/<user>/callbacks/<kind>`: whose, and of which period, as path and body say. */
function periodIn(path: string, body: string): Period | undefined {
  const [, user, kind] = /\/portfolios\/([^/?#]+)\/callbacks\/(hourly|daily)$/.exec(path) ?? [];
  const start = (jsonOf(body) as { period_start_ms?: unknown } | undefined)?.period_start_ms;
  if (user === undefined || typeof start !== 'number') return undefined;
  return { kind: kind as Period['kind'], userId: decodeURIComponent(user), startMs: start };
}

/** Periods that no portfolio was told of. */
export function untold(periods: readonly Period[], requests: readonly PortfolioRequest[]): Period[] {
  const held = heldPeriods(requests);
  return periods.filter((period) => !held.has(periodKey(period)));
}

export function judgeCallbacks(given: CallbackCase): Verdict {
  const verdict = noVerdict();
  const { inputs, requests } = given;
  const expectation = expectationsOf(inputs);
  const periods = periodsOf(given);
  for (const period of untold(periods, requests)) verdict.lost.push(`the callback ${periodKey(period)}`);

  const told = new Map<string, Set<string>>();
  for (const { path, idempotencyKey, body } of requests) {
    const period = periodIn(path, body);
    if (!period) {
      verdict.misdirected.push(`a callback to ${path}`);
      continue;
    }
    const key = periodKey(period);
    told.set(key, (told.get(key) ?? new Set()).add(`${idempotencyKey} ${body}`));
    const due = expectation(period);
    if (!due) verdict.wrong.push(`${key} was told, and there is nothing to tell`);
    else if (!sameValue(jsonOf(body), due))
      verdict.altered.push(`${key} was told ${body}, not ${JSON.stringify(due)}`);
  }
  for (const [key, different] of told) {
    if (different.size > 1) verdict.doubled.push(`${key} was told in ${different.size} ways`);
  }
  verdict.repeated = requests.length - told.size;
  verdict.figures = {
    users: new Set(periods.map(({ userId }) => userId)).size,
    periods: periods.length,
    callbacks: requests.length,
  };
  return verdict;
}
