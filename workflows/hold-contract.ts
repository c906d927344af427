/**
 * Holds: what operators pause and resume. A row of `notification.holds` is the truth. Operators' programs and the workflows
 * that steer by the row change it, both with the same statement. Pure.
 */
export type HoldKind = 'channel' | 'producer';

export interface HoldKey {
  kind: HoldKind;
  name: string;
}

/** Updates of a workflow that steers by a hold. Argument: HoldRequest or ResumeRequest. */
export const PAUSE_UPDATE = 'pause';
export const RESUME_UPDATE = 'resume';

/** Waiting items per second that are released after a resume, unless the operator names a rate, and the highest rate. */
export const DEFAULT_DRAIN_RATE = 50;
export const MAX_DRAIN_RATE = 10_000;
/** Longest reason and name of an operator, characters. */
const MAX_TEXT = 500;

export interface HoldRequest {
  /** Shown to other operators. */
  reason?: string;
  /** Default: `operator`. */
  requestedBy?: string;
}

export interface ResumeRequest extends HoldRequest {
  /** Waiting routes that are released per second. Default: DEFAULT_DRAIN_RATE. */
  ratePerSecond?: number;
}

/** What a row says. A key without a row was never paused. */
export interface Hold {
  isPaused: boolean;
  reason?: string;
  requestedBy?: string;
  /** When it was paused or resumed last, by the clock of PostgreSQL, epoch ms; 0 without a row. */
  sinceMs: number;
  /** Waiting routes that are released per second, while a resume still releases some. */
  drainRate?: number;
}

/** @returns why a request cannot be stored; undefined when it can. */
export function problemOfHold(request: unknown): string | undefined {
  if (request === undefined || request === null) return undefined;
  if (typeof request !== 'object') return 'the argument must be an object';
  const { ratePerSecond: rate } = request as ResumeRequest;
  if (rate !== undefined && !(Number.isFinite(rate) && rate > 0 && rate <= MAX_DRAIN_RATE)) {
    return `ratePerSecond must be a number above 0, at most ${MAX_DRAIN_RATE}`;
  }
  return problemOfTexts(request, 'reason', 'requestedBy');
}

/** @returns which field is given and is not a text that can be stored. */
export function problemOfTexts(request: object, ...fields: string[]): string | undefined {
  const isText = (value: unknown) =>
    // NUL cannot be stored.
    typeof value === 'string' && value.length <= MAX_TEXT && !value.includes('\0');
  const refused = fields.find((field) => {
    const value = (request as Record<string, unknown>)[field];
    return value !== undefined && !isText(value);
  });
  return refused === undefined ? undefined : `${refused} must be a text of at most ${MAX_TEXT} characters`;
}

/** SQL: a Hold as the column `hold`, of a row or of none. */
export const HOLD = `
  json_strip_nulls(json_build_object(
    'isPaused', coalesce(is_paused, false), 'reason', reason, 'requestedBy', changed_by, 'drainRate', drain_rate,
    'sinceMs', coalesce((extract(epoch FROM changed_at) * 1000)::bigint, 0))) AS hold`;

/**
 * SQL; the answer is a `hold`. Changes the row, and notes the author among the actions of operators unless the row says the same
 * already. For its values see `holdValues`.
 */
export const SET_HOLD = `
  WITH noted AS (
    INSERT INTO notification.operator_actions (action, target, requested_by, detail)
    SELECT $1::text || CASE WHEN $3 THEN 's pause' ELSE 's resume' END, $2, $5, $4
     WHERE NOT EXISTS (
           SELECT FROM notification.holds
            WHERE kind = $1 AND name = $2 AND is_paused = $3 AND changed_by = $5 AND reason IS NOT DISTINCT FROM $4)
  )
  INSERT INTO notification.holds (kind, name, is_paused, reason, changed_by, changed_at, drain_rate)
  VALUES ($1::text, $2::text, $3::boolean, $4::text, $5::text, clock_timestamp(), $6::double precision)
  ON CONFLICT (kind, name) DO UPDATE
     SET is_paused = excluded.is_paused, reason = excluded.reason, changed_by = excluded.changed_by,
         changed_at = excluded.changed_at, drain_rate = excluded.drain_rate
  RETURNING ${HOLD}`;

/** @returns the values of SET_HOLD. A resume begins a drain. */
export function holdValues(
  { kind, name }: HoldKey,
  isPaused: boolean,
  { reason, requestedBy = 'operator', ratePerSecond = DEFAULT_DRAIN_RATE }: ResumeRequest,
): unknown[] {
  const drainRate = isPaused ? null : ratePerSecond;
  return [kind, name, isPaused, reason ?? null, requestedBy, drainRate];
}
