/**
 * What account callbacks keep of people: trackings, callbacks, refused inputs, and entries of the stream of inputs. They are
 * shown, explained and forgotten user by user.
 */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import { DEFAULT_INPUT_STREAM, INPUT_FIELD } from '../../api/account-callback/input.ts';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { countOf, timeOf } from '../../api/text.ts';
import { accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import { NotFoundError } from '../errors.ts';
import type { Page } from '../lists.ts';
import { DEFAULT_LIMIT, pageOf } from '../lists.ts';
import type { FoundCause, Person, Personal, Question } from '../places.ts';
import { HAS_NAME, hasField, notTaken, streamOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

export interface AccountFilter {
  /** Bounds of the beginning of the period, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

/** One callback. */
export type CallbackView = Given<CallbackRow>;

/** How far an account is. */
export type TrackingView = Given<TrackingRow> & {
  /** The shard's workflow in the Web UI. */
  link?: string;
};

export interface AccountView {
  userId: string;
  /** Absent for a user of whom only hours have come, and for one who was untracked long ago. */
  tracking?: TrackingView;
  /** Newest period first. */
  callbacks: Page<CallbackView>;
}

/** @throws NotFoundError for a user of whom nothing is known. */
export async function showAccount(
  resources: OperatorResources,
  userId: string,
  { since, until, limit = DEFAULT_LIMIT }: AccountFilter,
): Promise<AccountView> {
  const { db } = resources;
  const [trackings, callbacks] = await Promise.all([
    db.query<TrackingRow>(FIND_TRACKING, [userId]),
    db.query<CallbackRow>(LIST_CALLBACKS, [
      ...[userId, limit + 1],
      since?.getTime() ?? 0,
      until?.getTime() ?? Number.MAX_SAFE_INTEGER,
    ]),
  ]);
  const [tracking] = trackings.rows;
  if (!tracking && callbacks.rows.length === 0) throw new NotFoundError(UNKNOWN);
  return {
    userId,
    ...(tracking ? { tracking: trackingViewOf(resources, tracking) } : {}),
    callbacks: pageOf(callbacks.rows, limit, given),
  };
}

const UNKNOWN = 'that user has no account here: no entry about the user has come, or all were long ago';

const trackingViewOf = (resources: OperatorResources, row: TrackingRow): TrackingView => ({
  ...given(row),
  ...linkField(resources, accountCallbackWorkflowId(row.shard)),
});

interface TrackingRow {
  shard: number;
  /** Periods that begin at or after it are not delivered; null: the user takes part. */
  until: Date | null;
  /** Daily callbacks of the shard wait for the next day of this user. */
  isWaitedFor: boolean;
  /** The last day to whose end it has caught up, as `2026-01-31`. */
  caughtUpDate: string;
  /** The last day that was delivered or given up. */
  dailyDate: string;
  /** When it was last tracked, untracked or released, or made progress. */
  changedAt: Date;
}

/** Values are decimals in text, as the producer sent them. */
interface CallbackRow {
  kind: CallbackKind;
  periodStart: Date;
  /** dropped: given up after its last retry. */
  status: 'pending' | 'delivered' | 'retrying' | 'dropped';
  peakValue: string;
  peakAt: Date;
  bottomValue: string;
  bottomAt: Date;
  closingValue: string;
  /** The stream entry that it comes from. */
  entryId: string;
  /** When that entry was taken. */
  takenAt: Date;
  /** When it was delivered, or given up. */
  settledAt: Date | null;
  /** Failed ones; of a callback that is tried again or was given up. */
  attempts: number | null;
  lastError: string | null;
  failedAt: Date | null;
  nextAttemptAt: Date | null;
  shard: number;
  /** Entries with other values that came after the first attempt had begun, and are not delivered. */
  lateEntries: number;
  /** The newest of them, and its values by the names of the stream. */
  lateEntryId: string | null;
  lateValues: Record<string, string | number> | null;
}

/** $1 user. */
const FIND_TRACKING = `
  SELECT shard, to_timestamp(until_ms / 1000.0) AS until, is_waited_for AS "isWaitedFor",
         to_char(caught_up_date, 'YYYY-MM-DD') AS "caughtUpDate", to_char(daily_date, 'YYYY-MM-DD') AS "dailyDate",
         changed_at AS "changedAt"
    FROM notification.callback_trackings
   WHERE user_id = $1`;

/** SQL: the index of snapshots finds those of a user by kind. */
const KINDS = `ARRAY['hourly', 'daily']`;

/** The newest callbacks of the user $1, with their failures, $2 at most. */
const callbacksThat = (where: string): string => `
  SELECT snapshot.kind, to_timestamp(snapshot.period_start_ms / 1000.0) AS "periodStart", status,
         peak_value AS "peakValue", to_timestamp(peak_at_ms / 1000.0) AS "peakAt", bottom_value AS "bottomValue",
         to_timestamp(bottom_at_ms / 1000.0) AS "bottomAt", closing_value AS "closingValue", entry_id AS "entryId",
         created_at AS "takenAt", settled_at AS "settledAt", failed.attempts, failed.last_error AS "lastError",
         failed_at AS "failedAt", failed.next_attempt_at AS "nextAttemptAt", snapshot.shard,
         late_entries AS "lateEntries", late_entry_id AS "lateEntryId", late_values AS "lateValues"
    FROM unnest(${KINDS}) AS wanted (kind)
   CROSS JOIN LATERAL (
         SELECT *
           FROM notification.callback_snapshots
          WHERE callback_snapshots.kind = wanted.kind AND user_id = $1 AND ${where}
          ORDER BY period_start_ms DESC
          LIMIT $2) AS snapshot
    LEFT JOIN notification.failed_callbacks AS failed
      ON failed.kind = snapshot.kind AND failed.user_id = $1 AND failed.period_start_ms = snapshot.period_start_ms
   ORDER BY snapshot.period_start_ms DESC, snapshot.kind
   LIMIT $2`;

/** $3 and $4 first and last beginning of a period, epoch ms. */
const LIST_CALLBACKS = callbacksThat('period_start_ms BETWEEN $3 AND $4');
const FIND_UNTOLD = callbacksThat("period_start_ms >= $3 AND status <> 'delivered'");

/** Pending callbacks are not delivered any more; nothing waits for them. */
export function callbacksOf({ redis }: OperatorResources, person: Person): Personal {
  const { userId, quoted, nested } = person;
  const stream = DEFAULT_INPUT_STREAM;
  const entries = streamOf({
    redis,
    stream,
    userId,
    names: [INPUT_FIELD],
    isOwn: (fields) => hasField(fields[INPUT_FIELD], 'user_id', userId),
  });
  const ofUser = (table: string, ...key: string[]) => ({
    table: `notification.${table}`,
    key: [...key, 'user_id'],
    // The index of a key with the kind finds a user by both.
    where: `${key.includes('kind') ? "kind IN ('hourly', 'daily') AND " : ''}user_id = $1`,
    values: [userId],
    isIndexed: true,
  });
  return {
    places: [
      entries,
      ofUser('callback_trackings'),
      ofUser('failed_callbacks', 'kind', 'period_start_ms'),
      ofUser('callback_snapshots', 'kind', 'period_start_ms'),
      {
        table: 'notification.malformed_account_inputs',
        key: ['stream_entry_id'],
        where: HAS_NAME,
        values: [[...quoted, ...nested]],
      },
    ],
    underWay: [notTaken(entries, 'entry')],
  };
}

/**
 * Says why the portfolio service was told about an account, or was not. The delivered callbacks of a kind are one answer.
 *
 * @param question its time is that of the periods.
 */
export async function findCallbackCauses(
  { db }: Pick<OperatorResources, 'db'>,
  { recipient, since, limit }: Question,
): Promise<FoundCause[]> {
  const sinceMs = since.getTime();
  const [told, open, accounts] = await Promise.all([
    db.query<ToldRow>(COUNT_TOLD, [recipient, sinceMs]),
    db.query<CallbackRow & { status: keyof typeof CAUSE_OF }>(FIND_UNTOLD, [recipient, limit, sinceMs]),
    db.query<TrackingRow>(FIND_ACCOUNT, [recipient]),
  ]);
  return [
    ...told.rows.map(({ kind, callbacks, period, at }): FoundCause => ({
      ...{ cause: 'callback_told', at },
      sentence: `the portfolio service was told ${countOf(callbacks, `${kind} callback`)}, of periods up to ${timeOf(period)}`,
    })),
    ...open.rows.map((row): FoundCause => ({
      ...{ cause: CAUSE_OF[row.status], at: row.failedAt ?? row.takenAt },
      workflowId: accountCallbackWorkflowId(row.shard),
      sentence: `the ${row.kind} callback of ${timeOf(row.periodStart)} ${stateOf(row)}`,
    })),
    ...accounts.rows.map(({ changedAt: at, until, caughtUpDate, shard }): FoundCause =>
      until === null
        ? {
            ...{ cause: 'account_behind', at },
            sentence: `the days of the account have come up to ${caughtUpDate}; daily callbacks of shard ${shard} wait for the next one`,
          }
        : {
            ...{ cause: 'account_untracked', at },
            sentence: `the user takes no part in account callbacks since ${timeOf(until)}`,
          },
    ),
  ];
}

const CAUSE_OF = {
  pending: 'callback_waiting',
  retrying: 'callback_retrying',
  dropped: 'callback_given_up',
} as const;

function stateOf(row: CallbackRow): string {
  const { kind, status, takenAt, shard, lastError: error, nextAttemptAt: nextAt } = row;
  const attempts = row.attempts ?? 0;
  if (status === 'dropped' && row.attempts === null) return 'was dropped: the user is gone';
  if (status === 'dropped')
    return `was given up after ${countOf(attempts, 'attempt')} because of ${error}; galaxy-notify callbacks replay --user`;
  if (status === 'retrying')
    return row.attempts === 0
      ? `was replayed, and is told with the next alarm of shard ${shard}`
      : `has failed ${countOf(attempts, 'time')}, the last time because of ${error}, and is tried again at ${nextAt ? timeOf(nextAt) : 'its time'}`;
  const what =
    kind === 'hourly' ? `the next alarm of shard ${shard}` : `all trackings of shard ${shard} to catch up`;
  return `came at ${timeOf(takenAt)} and waits for ${what}`;
}

interface ToldRow {
  kind: CallbackKind;
  callbacks: number;
  /** The last one. */
  period: Date;
  at: Date;
}

/** $1 user, $2 since, epoch ms. */
const COUNT_TOLD = `
  SELECT snapshot.kind, count(*)::int AS callbacks, to_timestamp(max(period_start_ms) / 1000.0) AS period,
         max(settled_at) AS at
    FROM unnest(${KINDS}) AS wanted (kind)
    JOIN notification.callback_snapshots AS snapshot
      ON snapshot.kind = wanted.kind AND user_id = $1 AND period_start_ms >= $2
   WHERE status = 'delivered'
   GROUP BY snapshot.kind`;

/** $1 user. Nothing of a user who takes part and has caught up to the end of the previous day. */
const FIND_ACCOUNT = `${FIND_TRACKING}
     AND (until_ms IS NOT NULL OR is_waited_for AND caught_up_date < (now() AT TIME ZONE 'UTC')::date - 1)`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_TRACKING, LIST_CALLBACKS, COUNT_TOLD, FIND_UNTOLD, FIND_ACCOUNT };
