/**
 * The judge of account callbacks: requests to the portfolio service against the entries that were published. It knows
 * entries and callbacks by their documents, not by the product's types.
 */
import { jsonOf, sameValue } from './comparison.ts';
import type { Verdict } from './verdict.ts';
import { noVerdict } from './verdict.ts';

export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

interface Extremes {
  user_id: string;
  peak_value: string;
  peak_at_ms: number;
  bottom_value: string;
  bottom_at_ms: number;
}

/** One entry of the stream of extremes. */
export type AccountInput =
  | (Extremes & { kind: 'hour'; hour_start_ms: number; closing_value: string })
  | (Extremes & { kind: 'day'; day: string; midnight_value?: string })
  | { kind: 'track'; user_id: string; from_ms: number }
  | { kind: 'untrack'; user_id: string; until_ms: number };

/** What a callback is about. */
export interface Period {
  userId: string;
  kind: 'hourly' | 'daily';
  startMs: number;
}

/** One request that the portfolio service got. */
export interface PortfolioRequest {
  path: string;
  idempotencyKey: string | undefined;
  body: string;
  /** It was carried out, whether the answer got through or not. */
  isApplied: boolean;
}

export interface CallbackCase {
  /** In the order in which they were published. */
  inputs: readonly AccountInput[];
  requests: readonly PortfolioRequest[];
}

const periodKey = ({ userId, kind, startMs }: Period): string => `${kind} ${userId} ${startMs}`;

/** The period of an entry, and the body of its callback. */
function dueOf(input: AccountInput): { period: Period; body: object } | undefined {
  if (input.kind === 'track' || input.kind === 'untrack') return undefined;
  const { user_id: userId, peak_value, peak_at_ms, bottom_value, bottom_at_ms } = input;
  const startMs = input.kind === 'hour' ? input.hour_start_ms : Date.parse(input.day);
  return {
    period: { userId, kind: input.kind === 'hour' ? 'hourly' : 'daily', startMs },
    body: {
      period_start_ms: startMs,
      period_end_ms: startMs + (input.kind === 'hour' ? HOUR : DAY),
      ...{ peak_value, peak_at_ms, bottom_value, bottom_at_ms },
      closing_value: input.kind === 'hour' ? input.closing_value : (input.midnight_value ?? peak_value),
    },
  };
}

/** Answers the body of a period's callback, by the last entry about it; undefined without an entry. */
export function expectationsOf(inputs: readonly AccountInput[]) {
  const bodies = new Map<string, object>();
  for (const due of inputs.map(dueOf)) if (due) bodies.set(periodKey(due.period), due.body);
  return (period: Period): object | undefined => bodies.get(periodKey(period));
}

/** Every period that is to be delivered. */
export function periodsOf(inputs: readonly AccountInput[]): Period[] {
  const all = new Map<string, Period>();
  for (const due of inputs.map(dueOf)) if (due) all.set(periodKey(due.period), due.period);
  return [...all.values()];
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

export function judgeCallbacks({ inputs, requests }: CallbackCase): Verdict {
  const verdict = noVerdict();
  const expectation = expectationsOf(inputs);
  const periods = periodsOf(inputs);
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
