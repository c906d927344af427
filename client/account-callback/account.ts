/**
 * One account: what was told of it, what it holds, how far it is computed, and how a value came about. The values are
 * derived anew from positions and prices; what was told is what the snapshot says.
 */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { CALLBACK_KINDS } from '../../api/account-callback/callback.ts';
import {
  HOUR_MS,
  SET_ASIDE_SHARD,
  accountCallbackWorkflowId,
} from '../../workflows/account-callback/contract.ts';
import { timeOf } from '../causes.ts';
import { NotFoundError } from '../errors.ts';
import type { Page } from '../lists.ts';
import { DEFAULT_LIMIT, pageOf, withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

export const PERIOD_MS: Readonly<Record<CallbackKind, number>> = { hourly: HOUR_MS, daily: 24 * HOUR_MS };

/** dead: given up after its last retry, and not replayed since. */
export const TELLING_STATUSES = ['told', 'pending', 'retrying', 'dead'] as const;
export type TellingStatus = (typeof TELLING_STATUSES)[number];

export interface AccountFilter {
  kind?: CallbackKind;
  status?: TellingStatus;
  /** Bounds of the beginning of the period, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

/** What is told about a period, and what became of that. Values are decimals in text. */
export interface CallbackView {
  kind: CallbackKind;
  periodStart: Date;
  status: TellingStatus;
  peakValue: string;
  peakAt: Date;
  bottomValue: string;
  bottomAt: Date;
  closingValue: string;
  computedAt: Date;
  /** When it was told, or given up. */
  settledAt?: Date;
  /** Failed ones; of what is being tried again, and of what was given up. */
  attempts?: number;
  lastError?: string;
  nextAttemptAt?: Date;
}

/** From a time on. */
export interface PositionView {
  at: Date;
  cash: string;
  /** By symbol, decimals in text; absent: the account is closed, and has no value. */
  coefficients?: Record<string, string>;
}

/** How far an account is. */
export interface TrackingView {
  /** Absent while the account is set aside. */
  shard?: number;
  since: Date;
  /** Before this time, its hours are computed. */
  computedUpTo: Date;
  /** The last day that is settled, as `2026-01-31`. */
  dailyDate: string;
  setAside?: { since: Date; hourStart: Date; failures: number; reason: string; nextTryAt?: Date };
  /** Who has paused its shard, while it is. */
  pausedBy?: string;
  /** The shard's workflow in the Web UI. */
  link?: string;
}

export interface AccountView {
  userId: string;
  /** Absent once the account was closed for so long that nobody looks at it any more. */
  tracking?: TrackingView;
  /** Changes of what it holds, the latest first. */
  positions: Page<PositionView>;
  /** Newest period first. */
  callbacks: Page<CallbackView>;
}

/** What a value is made of: cash, and of each symbol so many times a price. */
export interface ValueView {
  what: 'peak' | 'bottom' | 'closing';
  /** The moment; the end of the period for the closing value. */
  at: Date;
  /** What is told. */
  value: string;
  /** In a sentence. */
  why: string;
  /** Whether what is known now gives the value that is told. */
  isDerived: boolean;
  position?: PositionView;
  legs: LegView[];
}

export interface LegView {
  symbol: string;
  coefficient: string;
  /** At or before the moment; absent when none is known. */
  price?: string;
  priceAt?: Date;
}

export interface PeriodView {
  userId: string;
  kind: CallbackKind;
  periodStart: Date;
  /** Whether something is told, and why not, in a sentence. */
  why: string;
  /** Absent when there is nothing to tell. */
  callback?: CallbackView;
  values: ValueView[];
}

/** @throws NotFoundError for a user of whom nothing is known. */
export async function showAccount(
  resources: OperatorResources,
  userId: string,
  { kind, status, since, until, limit = DEFAULT_LIMIT }: AccountFilter,
): Promise<AccountView> {
  const { db } = resources;
  const [trackings, callbacks, positions] = await Promise.all([
    db.query<TrackingRow>(FIND_TRACKING, [userId]),
    db.query<CallbackRow>(LIST_CALLBACKS, [
      userId,
      kind === undefined ? CALLBACK_KINDS : [kind],
      since?.getTime() ?? 0,
      until?.getTime() ?? Number.MAX_SAFE_INTEGER,
      status === undefined ? null : STATUS_OF[status],
      limit + 1,
    ]),
    db.query<PositionRow>(LIST_POSITIONS, [userId, limit + 1]),
  ]);
  const [tracking] = trackings.rows;
  if (!tracking && callbacks.rows.length + positions.rows.length === 0) throw new NotFoundError(UNKNOWN);
  return {
    userId,
    ...(tracking ? { tracking: trackingViewOf(resources, tracking) } : {}),
    positions: pageOf(positions.rows, limit, withoutNulls),
    callbacks: pageOf(callbacks.rows, limit, viewOf),
  };
}

/**
 * Why the values of a period are what they are, or why there are none.
 *
 * @param at any time of the period.
 * @throws NotFoundError for a user of whom nothing is known.
 */
export async function explainPeriod(
  resources: OperatorResources,
  userId: string,
  { kind, at }: { kind: CallbackKind; at: Date },
): Promise<PeriodView> {
  const { db } = resources;
  const periodMs = PERIOD_MS[kind];
  const startMs = Math.floor(at.getTime() / periodMs) * periodMs;
  const found = await db.query<CallbackRow>(LIST_CALLBACKS, [userId, [kind], startMs, startMs, null, 1]);
  const [callback] = found.rows.map(viewOf);
  const period = { userId, kind, periodStart: new Date(startMs) };
  if (!callback) {
    const { rows } = await db.query<TrackingRow>(FIND_TRACKING, [userId]);
    if (rows.length === 0) throw new NotFoundError(UNKNOWN);
    return { ...period, why: whyNothing(rows[0]!, period), values: [] };
  }

  const endMs = startMs + periodMs;
  // An hour closes with its last tick, a day with the prices of midnight.
  const moments = [
    ['peak', callback.peakAt.getTime(), callback.peakValue],
    ['bottom', callback.bottomAt.getTime(), callback.bottomValue],
    ['closing', kind === 'hourly' ? endMs - 1 : endMs, callback.closingValue],
  ] as const;
  const { rows } = await db.query<MomentRow>(DERIVE_VALUES, [
    userId,
    moments.map(([what]) => what),
    moments.map(([, atMs]) => atMs),
    moments.map(([, , value]) => value),
  ]);
  return {
    ...period,
    why: whyTold(callback),
    callback,
    values: rows.map((row) => valueOf(row, kind, callback)),
  };
}

const UNKNOWN =
  'that user has no account here: one is tracked from its first position on, until it was closed for long';

function trackingViewOf(resources: OperatorResources, row: TrackingRow): TrackingView {
  const { shard, since, computedUpTo, dailyDate, pausedBy } = row;
  const { setAsideSince, hourStart, failures, reason, nextTryAt } = row;
  const tracking = { since, computedUpTo, dailyDate, ...(pausedBy === null ? {} : { pausedBy }) };
  if (shard !== SET_ASIDE_SHARD) {
    return { ...tracking, shard, ...linkField(resources, accountCallbackWorkflowId(shard)) };
  }
  // The row of one that is set aside is written with its shard.
  const setAside = { since: setAsideSince!, hourStart: hourStart!, failures: failures!, reason: reason! };
  return { ...tracking, setAside: { ...setAside, ...(nextTryAt === null ? {} : { nextTryAt }) } };
}

const STATUS_OF = { told: 'delivered', pending: 'pending', retrying: 'retrying', dead: 'dropped' } as const;
const TELLING_OF = { delivered: 'told', pending: 'pending', retrying: 'retrying', dropped: 'dead' } as const;

const viewOf = ({ status, ...row }: CallbackRow): CallbackView => ({
  ...withoutNulls(row),
  status: TELLING_OF[status],
});

function whyTold(callback: CallbackView): string {
  const { status, settledAt, attempts = 0, lastError, nextAttemptAt } = callback;
  const computed = `it was computed at ${timeOf(callback.computedAt)}`;
  switch (status) {
    case 'told':
      return `${computed}, and told at ${timeOf(settledAt ?? callback.computedAt)}`;
    case 'pending':
      return `${computed}, and is told with the next alarm of its shard`;
    case 'retrying':
      return attempts === 0
        ? `${computed}, was replayed, and is told with the next alarm of its shard`
        : `${computed}; attempt ${attempts} failed because of ${lastError}, the next one is ${nextAttemptAt ? `at ${timeOf(nextAttemptAt)}` : 'due'}`;
    case 'dead':
      return `${computed}, and given up after attempt ${attempts} because of ${lastError}; galaxy-notify callbacks replay --user`;
  }
}

function whyNothing(account: TrackingRow, { kind, periodStart }: Pick<PeriodView, 'kind' | 'periodStart'>) {
  const startMs = periodStart.getTime();
  const endMs = startMs + PERIOD_MS[kind];
  if (account.computedUpTo.getTime() < endMs) {
    return account.shard === SET_ASIDE_SHARD
      ? `the account is set aside because of ${account.reason}; galaxy-notify callbacks take-up`
      : `its hours are computed up to ${timeOf(account.computedUpTo)} only; ${account.pausedBy === null ? 'galaxy-notify callbacks status' : `${account.pausedBy} has paused its shard; galaxy-notify callbacks resume ${account.shard}`}`;
  }
  if (kind === 'daily' && account.dailyDate < periodStart.toISOString().slice(0, 10)) {
    return `its days are settled up to ${account.dailyDate} only: a day waits for all accounts of the shard, and for the retries of the day before`;
  }
  return 'the account had no value then: it held nothing, was closed, or held a symbol without a price; or it was too long ago, and is deleted';
}

function valueOf(row: MomentRow, kind: CallbackKind, callback: CallbackView): ValueView {
  const { what, at, positionAt, cash, coefficients, legs, isDerived } = row;
  const position =
    positionAt === null || cash === null
      ? undefined
      : { at: positionAt, cash, ...(coefficients === null ? {} : { coefficients }) };
  return {
    ...{ what, at, value: row.told, isDerived: isDerived ?? false },
    why: whyValue(row, kind, callback),
    ...(position ? { position } : {}),
    legs: legs.map(({ price, priceAtMs, ...leg }) => ({
      ...leg,
      ...(price === null || priceAtMs === null ? {} : { price, priceAt: new Date(priceAtMs) }),
    })),
  };
}

function whyValue(
  { what, positionAt, cash, coefficients, legs, derived, told, isDerived }: MomentRow,
  kind: CallbackKind,
  callback: CallbackView,
): string {
  const isDayWithoutPrice = what === 'closing' && kind === 'daily' && derived === null;
  if (isDayWithoutPrice && told === callback.peakValue) {
    return 'at midnight the account was closed, or a symbol that it held had no price: the peak of the day stands for it';
  }
  if (positionAt === null) return 'what the account held then is deleted';
  if (coefficients === null) return 'the account is closed then, as far as is known now';
  const missing = legs.find(({ price }) => price === null);
  if (missing) return `the price of ${missing.symbol} at that time is deleted`;
  const sum = `cash ${cash}${legs.map(({ symbol, coefficient, price }) => ` + ${coefficient} × ${price} of ${symbol}`).join('')}`;
  return isDerived
    ? sum
    : `what is known now gives ${derived} (${sum}): a price or position came after it was computed, or is deleted`;
}

interface TrackingRow {
  shard: number;
  since: Date;
  computedUpTo: Date;
  dailyDate: string;
  setAsideSince: Date | null;
  hourStart: Date | null;
  failures: number | null;
  reason: string | null;
  nextTryAt: Date | null;
  pausedBy: string | null;
}

interface CallbackRow {
  kind: CallbackKind;
  periodStart: Date;
  status: keyof typeof TELLING_OF;
  peakValue: string;
  peakAt: Date;
  bottomValue: string;
  bottomAt: Date;
  closingValue: string;
  computedAt: Date;
  settledAt: Date | null;
  attempts: number | null;
  lastError: string | null;
  nextAttemptAt: Date | null;
}

interface PositionRow {
  at: Date;
  cash: string;
  coefficients: Record<string, string> | null;
}

interface MomentRow {
  what: ValueView['what'];
  at: Date;
  told: string;
  positionAt: Date | null;
  cash: string | null;
  coefficients: Record<string, string> | null;
  legs: { symbol: string; coefficient: string; price: string | null; priceAtMs: number | null }[];
  /** null: a price, or what is held, is not known. */
  derived: string | null;
  isDerived: boolean | null;
}

/** $1 user. */
const FIND_TRACKING = `
  SELECT tracking.shard, created_at AS since, to_timestamp(caught_up_to_ms / 1000.0) AS "computedUpTo",
         to_char(daily_date, 'YYYY-MM-DD') AS "dailyDate", set_aside_at AS "setAsideSince",
         to_timestamp(hour_start_ms / 1000.0) AS "hourStart", failures, aside.reason, next_try_at AS "nextTryAt",
         pause.changed_by AS "pausedBy"
    FROM notification.callback_trackings AS tracking
    LEFT JOIN notification.callback_set_aside AS aside USING (user_id)
    LEFT JOIN notification.callback_pauses AS pause ON pause.shard = tracking.shard AND is_paused
   WHERE user_id = $1`;

/** $1 user, $2 kinds, $3 and $4 first and last beginning of a period, epoch ms, $5 status or null, $6 rows at most. */
const LIST_CALLBACKS = `
  SELECT snapshot.kind, to_timestamp(snapshot.period_start_ms / 1000.0) AS "periodStart", status,
         peak_value::text AS "peakValue", to_timestamp(peak_at_ms / 1000.0) AS "peakAt",
         bottom_value::text AS "bottomValue", to_timestamp(bottom_at_ms / 1000.0) AS "bottomAt",
         closing_value::text AS "closingValue", created_at AS "computedAt", settled_at AS "settledAt",
         coalesce(failed.attempts, dead.attempts) AS attempts, coalesce(failed.last_error, dead.last_error) AS "lastError",
         failed.next_attempt_at AS "nextAttemptAt"
    FROM unnest($2::text[]) AS wanted (kind)
   CROSS JOIN LATERAL (
         SELECT *
           FROM notification.callback_snapshots
          WHERE callback_snapshots.kind = wanted.kind AND user_id = $1 AND period_start_ms BETWEEN $3 AND $4
            AND ($5::text IS NULL OR status = $5)
          ORDER BY period_start_ms DESC
          LIMIT $6) AS snapshot
    LEFT JOIN notification.failed_callbacks AS failed
      ON snapshot.status = 'retrying' AND failed.kind = snapshot.kind AND failed.user_id = $1
     AND failed.period_start_ms = snapshot.period_start_ms
    LEFT JOIN notification.callback_dead_letters AS dead
      ON snapshot.status = 'dropped' AND dead.kind = snapshot.kind AND dead.user_id = $1
     AND dead.period_start_ms = snapshot.period_start_ms
   ORDER BY snapshot.period_start_ms DESC, snapshot.kind
   LIMIT $6`;

/** $1 user, $2 rows at most. */
const LIST_POSITIONS = `
  SELECT to_timestamp(at_ms / 1000.0) AS at, cash::text, coefficients
    FROM notification.callback_positions
   WHERE user_id = $1
   ORDER BY at_ms DESC
   LIMIT $2`;

/** $1 user; of moments: $2 what they are, $3 epoch ms, $4 values that are told. */
const DERIVE_VALUES = `
  SELECT what, to_timestamp(moment.at_ms / 1000.0) AS at, trim_scale(told)::text AS told,
         to_timestamp(held.at_ms / 1000.0) AS "positionAt", held.cash::text, held.coefficients,
         coalesce(legs, '[]') AS legs,
         CASE WHEN has_value THEN trim_scale(held.cash + worth)::text END AS derived,
         has_value AND held.cash + worth = told AS "isDerived"
    FROM unnest($2::text[], $3::bigint[], $4::numeric[]) WITH ORDINALITY AS moment (what, at_ms, told, number)
    LEFT JOIN LATERAL (
         SELECT at_ms, cash, coefficients
           FROM notification.callback_positions
          WHERE user_id = $1 AND at_ms <= moment.at_ms
          ORDER BY at_ms DESC
          LIMIT 1) AS held ON true
   CROSS JOIN LATERAL (
         SELECT jsonb_agg(jsonb_build_object('symbol', symbol, 'coefficient', coefficient, 'price', price::text,
                                             'priceAtMs', latest.at_ms) ORDER BY symbol) AS legs,
                coalesce(sum(coefficient::numeric * price), 0) AS worth,
                held.coefficients IS NOT NULL AND count(*) = count(price) AS has_value
           FROM jsonb_each_text(held.coefficients) AS leg (symbol, coefficient)
           LEFT JOIN LATERAL (
                SELECT price, at_ms
                  FROM notification.callback_prices
                 WHERE callback_prices.symbol = leg.symbol COLLATE "C" AND at_ms <= moment.at_ms
                 ORDER BY at_ms DESC
                 LIMIT 1) AS latest ON true) AS derivation
   ORDER BY number`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_TRACKING, LIST_CALLBACKS, LIST_POSITIONS, DERIVE_VALUES };
