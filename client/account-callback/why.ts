/** Why the portfolio service was told about an account of a user, or was not. */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import type { Answer, Question } from '../causes.ts';
import { countOf, timeOf } from '../causes.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

/**
 * What was told counts as one answer of each kind of callback.
 *
 * @param question its time is that of the periods.
 */
export async function callbackAnswers(
  resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>,
  { recipient, since, limit }: Question,
): Promise<Answer[]> {
  const [told, open, accounts] = await Promise.all([
    resources.db.query<ToldRow>(COUNT_TOLD, [recipient, since.getTime()]),
    resources.db.query<OpenRow>(FIND_UNTOLD, [recipient, since.getTime(), limit]),
    resources.db.query<AccountRow>(FIND_ACCOUNT, [recipient]),
  ]);
  return [
    ...told.rows.map(({ callbacks, kind, lastPeriod, lastAt }): Answer => ({
      kind: 'account-callback',
      cause: 'callback_told',
      at: lastAt,
      sentence: `the portfolio service was told ${countOf(callbacks, `${kind} callback`)}, of periods up to ${timeOf(lastPeriod)}`,
    })),
    ...open.rows.map((row): Answer => ({
      ...answerOfUntold(row),
      ...linkField(resources, accountCallbackWorkflowId(row.shard)),
    })),
    ...accounts.rows.map(answerOfAccount),
  ];
}

function answerOfUntold(row: OpenRow): Answer {
  const what = `the ${row.kind} callback of ${timeOf(row.period)}`;
  switch (row.status) {
    case 'pending':
      return {
        kind: 'account-callback',
        cause: 'callback_waiting',
        at: row.createdAt,
        sentence: `${what} came at ${timeOf(row.createdAt)} and waits for ${row.kind === 'hourly' ? `the next alarm of shard ${row.shard}` : `all trackings of shard ${row.shard} to catch up`}${pauseOf(row)}`,
      };
    case 'retrying':
      return {
        kind: 'account-callback',
        cause: 'callback_retrying',
        at: row.failedAt ?? row.createdAt,
        sentence:
          row.attempts === 0
            ? `${what} was replayed, and is told with the next alarm of shard ${row.shard}`
            : `${what} has failed ${countOf(row.attempts ?? 0, 'time')}, the last time because of ${row.lastError}, and is tried again at ${row.nextAt ? timeOf(row.nextAt) : 'its time'}${pauseOf(row)}`,
      };
    case 'dropped':
      return {
        kind: 'account-callback',
        cause: 'callback_given_up',
        at: row.droppedAt ?? row.createdAt,
        sentence: `${what} was given up after ${countOf(row.deadAttempts ?? 0, 'attempt')} because of ${row.deadError}; galaxy-notify callbacks replay --user`,
      };
  }
}

function answerOfAccount(row: AccountRow): Answer {
  const isUntracked = row.until !== null;
  return {
    kind: 'account-callback',
    cause: isUntracked ? 'account_untracked' : 'account_behind',
    at: row.changedAt,
    sentence: isUntracked
      ? `the user takes no part in account callbacks since ${timeOf(row.until!)}`
      : `the days of the account have come up to ${row.caughtUpDate}; daily callbacks of shard ${row.shard} wait for the next one${pauseOf(row)}`,
  };
}

const pauseOf = ({ shard, pausedBy }: Pick<OpenRow, 'shard' | 'pausedBy'>): string =>
  pausedBy === null ? '' : `, which ${pausedBy} has paused; galaxy-notify callbacks resume ${shard}`;

interface ToldRow {
  kind: CallbackKind;
  callbacks: number;
  lastPeriod: Date;
  lastAt: Date;
}

interface OpenRow {
  kind: CallbackKind;
  period: Date;
  shard: number;
  status: 'pending' | 'retrying' | 'dropped';
  createdAt: Date;
  attempts: number | null;
  lastError: string | null;
  nextAt: Date | null;
  failedAt: Date | null;
  deadAttempts: number | null;
  deadError: string | null;
  droppedAt: Date | null;
  /** Of the shard, while it is paused. */
  pausedBy: string | null;
}

interface AccountRow {
  shard: number;
  until: Date | null;
  caughtUpDate: string;
  changedAt: Date;
  pausedBy: string | null;
}

const KINDS = `unnest(ARRAY['hourly', 'daily']) AS wanted (kind)`;

/** $1 user, $2 since, epoch ms. */
const COUNT_TOLD = `
  SELECT snapshot.kind, count(*)::int AS callbacks, to_timestamp(max(period_start_ms) / 1000.0) AS "lastPeriod",
         max(settled_at) AS "lastAt"
    FROM ${KINDS}
    JOIN notification.callback_snapshots AS snapshot
      ON snapshot.kind = wanted.kind AND user_id = $1 AND period_start_ms >= $2
   WHERE status = 'delivered'
   GROUP BY snapshot.kind`;

/** $1 user, $2 since, epoch ms, $3 limit. */
const FIND_UNTOLD = `
  SELECT snapshot.kind, to_timestamp(snapshot.period_start_ms / 1000.0) AS period, snapshot.shard, status,
         created_at AS "createdAt", failed.attempts, failed.last_error AS "lastError",
         failed.next_attempt_at AS "nextAt", failed.failed_at AS "failedAt", dead.attempts AS "deadAttempts",
         dead.last_error AS "deadError", dead.dropped_at AS "droppedAt",
         pause.changed_by AS "pausedBy"
    FROM ${KINDS}
   CROSS JOIN LATERAL (
         SELECT *
           FROM notification.callback_snapshots
          WHERE callback_snapshots.kind = wanted.kind AND user_id = $1 AND period_start_ms >= $2
            AND status <> 'delivered'
          ORDER BY period_start_ms DESC
          LIMIT $3) AS snapshot
    LEFT JOIN notification.callback_pauses AS pause ON pause.shard = snapshot.shard AND pause.is_paused
    LEFT JOIN notification.failed_callbacks AS failed
      ON failed.kind = snapshot.kind AND failed.user_id = $1 AND failed.period_start_ms = snapshot.period_start_ms
    LEFT JOIN notification.callback_dead_letters AS dead
      ON dead.kind = snapshot.kind AND dead.user_id = $1 AND dead.period_start_ms = snapshot.period_start_ms`;

/** $1 user. Nothing of a user who takes part and has caught up to the end of the previous day. */
const FIND_ACCOUNT = `
  SELECT tracking.shard, to_timestamp(until_ms / 1000.0) AS until,
         to_char(caught_up_date, 'YYYY-MM-DD') AS "caughtUpDate", tracking.changed_at AS "changedAt",
         pause.changed_by AS "pausedBy"
    FROM notification.callback_trackings AS tracking
    LEFT JOIN notification.callback_pauses AS pause ON pause.shard = tracking.shard AND is_paused
   WHERE user_id = $1
     AND (until_ms IS NOT NULL OR is_waited_for AND caught_up_date < (now() AT TIME ZONE 'UTC')::date - 1)`;

/** Of tests, which plan them. */
export const STATEMENTS = { COUNT_TOLD, FIND_UNTOLD, FIND_ACCOUNT };
