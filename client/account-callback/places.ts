/** What account callbacks keep of people: trackings, callbacks, refused inputs, and entries of the stream of inputs. */
import { DEFAULT_INPUT_STREAM, INPUT_FIELD } from '../../api/account-callback/input.ts';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import { accountCallbackWorkflowId } from '../../workflows/account-callback/contract.ts';
import type { FoundCause, Question } from '../causes.ts';
import { countOf, timeOf } from '../causes.ts';
import type { TrackingRow } from './account.ts';
import { FIND_TRACKING, KINDS, snapshotsOf } from './account.ts';
import type { Person, Personal } from '../places.ts';
import { HAS_NAME, hasField, notTaken, streamOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';

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
      ofUser('callback_dead_letters', 'kind', 'period_start_ms'),
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
    db.query<OpenRow>(FIND_UNTOLD, [recipient, sinceMs, limit]),
    db.query<TrackingRow>(FIND_ACCOUNT, [recipient]),
  ]);
  return [
    ...told.rows.map(({ kind, callbacks, period, at }): FoundCause => ({
      ...{ cause: 'callback_told', at },
      sentence: `the portfolio service was told ${countOf(callbacks, `${kind} callback`)}, of periods up to ${timeOf(period)}`,
    })),
    ...open.rows.map((row): FoundCause => ({
      ...{ cause: CAUSE_OF[row.status], at: row.at, workflowId: accountCallbackWorkflowId(row.shard) },
      sentence: `the ${row.kind} callback of ${timeOf(row.period)} ${stateOf(row)}`,
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

function stateOf(row: OpenRow): string {
  const { kind, status, at, shard, error, nextAt } = row;
  const attempts = row.attempts ?? 0;
  if (status === 'dropped')
    return `was given up after ${countOf(attempts, 'attempt')} because of ${error}; galaxy-notify callbacks replay --user`;
  if (status === 'retrying')
    return row.attempts === 0
      ? `was replayed, and is told with the next alarm of shard ${shard}`
      : `has failed ${countOf(attempts, 'time')}, the last time because of ${error}, and is tried again at ${nextAt ? timeOf(nextAt) : 'its time'}`;
  const what =
    kind === 'hourly' ? `the next alarm of shard ${shard}` : `all trackings of shard ${shard} to catch up`;
  return `came at ${timeOf(at)} and waits for ${what}`;
}

interface ToldRow {
  kind: CallbackKind;
  callbacks: number;
  /** The last one. */
  period: Date;
  at: Date;
}

interface OpenRow {
  kind: CallbackKind;
  period: Date;
  shard: number;
  status: 'pending' | 'retrying' | 'dropped';
  at: Date;
  attempts: number | null;
  error: string | null;
  nextAt: Date | null;
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

/** $1 user, $2 since, epoch ms, $3 limit. */
const FIND_UNTOLD = `
  SELECT snapshot.kind, to_timestamp(snapshot.period_start_ms / 1000.0) AS period, snapshot.shard, status,
         coalesce(failed.failed_at, dead.dropped_at, created_at) AS at, coalesce(failed.attempts, dead.attempts) AS attempts,
         coalesce(failed.last_error, dead.last_error) AS error, failed.next_attempt_at AS "nextAt"
    ${snapshotsOf("period_start_ms >= $2 AND status <> 'delivered'", '$3')}`;

/** $1 user. Nothing of a user who takes part and has caught up to the end of the previous day. */
const FIND_ACCOUNT = `${FIND_TRACKING}
     AND (until_ms IS NOT NULL OR is_waited_for AND caught_up_date < (now() AT TIME ZONE 'UTC')::date - 1)`;

/** Of tests, which plan them. */
export const STATEMENTS = { COUNT_TOLD, FIND_UNTOLD, FIND_ACCOUNT };
