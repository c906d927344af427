/** One account: how far its tracking is, and its callbacks with their outcomes. */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import { NotFoundError } from '../errors.ts';
import type { Page, WithoutNulls } from '../lists.ts';
import { DEFAULT_LIMIT, pageOf, withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

export interface AccountFilter {
  /** Bounds of the beginning of the period, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

/** One callback. */
export type CallbackView = WithoutNulls<CallbackRow>;

/** How far an account is. */
export type TrackingView = WithoutNulls<TrackingRow> & {
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
      userId,
      since?.getTime() ?? 0,
      until?.getTime() ?? Number.MAX_SAFE_INTEGER,
      limit + 1,
    ]),
  ]);
  const [tracking] = trackings.rows;
  if (!tracking && callbacks.rows.length === 0) throw new NotFoundError(UNKNOWN);
  return {
    userId,
    ...(tracking ? { tracking: trackingViewOf(resources, tracking) } : {}),
    callbacks: pageOf(callbacks.rows, limit, withoutNulls),
  };
}

const UNKNOWN = 'that user has no account here: no entry about the user has come, or all were long ago';

const trackingViewOf = (resources: OperatorResources, row: TrackingRow): TrackingView => ({
  ...withoutNulls(row),
  ...linkField(resources, accountCallbackWorkflowId(row.shard)),
});

export interface TrackingRow {
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
  /** dropped: given up after its last retry, and not replayed since. */
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
  nextAttemptAt: Date | null;
  /** Entries with other values that came after the first attempt had begun, and are not delivered. */
  lateEntries: number;
  /** The newest of them, and its values by the names of the stream. */
  lateEntryId: string | null;
  lateValues: Record<string, string | number> | null;
}

/** $1 user. */
export const FIND_TRACKING = `
  SELECT shard, to_timestamp(until_ms / 1000.0) AS until, is_waited_for AS "isWaitedFor",
         to_char(caught_up_date, 'YYYY-MM-DD') AS "caughtUpDate", to_char(daily_date, 'YYYY-MM-DD') AS "dailyDate",
         changed_at AS "changedAt"
    FROM notification.callback_trackings
   WHERE user_id = $1`;

/** SQL: the index of snapshots finds those of a user by kind. */
export const KINDS = `ARRAY['hourly', 'daily']`;

/** The newest callbacks of the user $1, with their failures. @param limit of each kind. */
export const snapshotsOf = (where: string, limit: string): string => `
    FROM unnest(${KINDS}) AS wanted (kind)
   CROSS JOIN LATERAL (
         SELECT *
           FROM notification.callback_snapshots
          WHERE callback_snapshots.kind = wanted.kind AND user_id = $1 AND ${where}
          ORDER BY period_start_ms DESC
          LIMIT ${limit}) AS snapshot
    LEFT JOIN notification.failed_callbacks AS failed
      ON snapshot.status = 'retrying' AND failed.kind = snapshot.kind AND failed.user_id = $1
     AND failed.period_start_ms = snapshot.period_start_ms
    LEFT JOIN notification.callback_dead_letters AS dead
      ON snapshot.status = 'dropped' AND dead.kind = snapshot.kind AND dead.user_id = $1
     AND dead.period_start_ms = snapshot.period_start_ms`;

/** $1 user, $2 and $3 first and last beginning of a period, epoch ms, $4 rows at most. */
const LIST_CALLBACKS = `
  SELECT snapshot.kind, to_timestamp(snapshot.period_start_ms / 1000.0) AS "periodStart", status,
         peak_value AS "peakValue", to_timestamp(peak_at_ms / 1000.0) AS "peakAt", bottom_value AS "bottomValue",
         to_timestamp(bottom_at_ms / 1000.0) AS "bottomAt", closing_value AS "closingValue", entry_id AS "entryId",
         created_at AS "takenAt", settled_at AS "settledAt", coalesce(failed.attempts, dead.attempts) AS attempts,
         coalesce(failed.last_error, dead.last_error) AS "lastError", failed.next_attempt_at AS "nextAttemptAt",
         late_entries AS "lateEntries", late_entry_id AS "lateEntryId", late_values AS "lateValues"
    ${snapshotsOf('period_start_ms BETWEEN $2 AND $3', '$4')}
   ORDER BY snapshot.period_start_ms DESC, snapshot.kind
   LIMIT $4`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_TRACKING, LIST_CALLBACKS };
