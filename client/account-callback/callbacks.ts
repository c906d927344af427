/** Account callbacks: progress of each shard, failed callbacks, and dead letters (workflows/account-callback/workflow.ts). */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackState } from '../../workflows/account-callback/contract.ts';
import {
  CALLBACK_STATUS_QUERY,
  RUN_NOW_UPDATE,
  accountCallbackWorkflowId,
  IS_OVERDUE,
} from '../../workflows/account-callback/contract.ts';
import { runTransaction } from '../../api/postgres-transaction.ts';
import type { Requester } from '../actions.ts';
import { byAuthor, noteAction } from '../actions.ts';
import { clockOf, conditionsOf, listOf, spanOf } from '../lists.ts';
import { NotFoundError } from '../errors.ts';
import type { Listing, Page } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { bounded, query } from '../temporal.ts';
import type { AccountFilter } from './places.ts';
import { showAccount } from './places.ts';

/** Dead letters that one statement opens again. */
const REPLAY_BATCH = 500;

interface ShardRow {
  shard: number;
  /** Users who take part. */
  users: number;
  /** The last day to whose end all trackings have caught up, as `2026-01-31`; null when no tracking is waited for. */
  caughtUpDate: string | null;
  /** Trackings that are waited for and have not caught up to the end of the previous day. */
  behind: number;
  /** Not tried yet. */
  pending: number;
  /** To be tried again. */
  failed: number;
  nextRetryAt: Date | null;
  /** Given up. */
  deadLetters: number;
}

export interface ShardStatus extends Given<ShardRow> {
  /** What the workflow says; absent when it did not answer within 3 s. */
  live?: CallbackState;
  link?: string;
}

export interface CallbackFilter {
  kind?: CallbackKind;
  userId?: string;
  /** Bounds of the last failure, both included. */
  since?: Date;
  until?: Date;
}

interface FailedRow {
  kind: CallbackKind;
  userId: string;
  periodStart: Date;
  /** Failed ones so far; 0 for one that is replayed and was not tried yet. */
  attempts: number;
  lastError: string;
  failedAt: Date;
  /** Null for a dead letter. */
  nextAttemptAt: Date | null;
  shard: number;
}

export type FailedCallbackView = Given<Omit<FailedRow, 'shard'>> & { link?: string };

/** A tracking that did not catch up in time: daily callbacks of its shard wait for it. */
export interface OverdueView {
  userId: string;
  shard: number;
  /** The last day to whose end it has caught up, as `2026-01-31`. */
  caughtUpDate: string;
  /** When it was tracked, or made progress. */
  changedAt: Date;
}

export interface MalformedInputFilter {
  code?: string;
  /** Bounds of the time of recording, both included. */
  since?: Date;
  until?: Date;
  limit?: number;
}

/** A stream entry that is no input. */
export interface MalformedInput {
  entryId: string;
  code: string;
  message: string;
  recordedAt: Date;
  /** The fields of the entry, cut where they are long. */
  rawFields: Record<string, string>;
}

export interface CallbackReplayOptions {
  requestedBy: string;
  /** Dead letters at most, the oldest first. */
  limit?: number;
}

export function callbackOperations(resources: OperatorResources) {
  const { temporal, db } = resources;

  return {
    /** Malformed entries, newest first. */
    malformed: (filter: MalformedInputFilter = {}): Promise<Page<MalformedInput>> =>
      listOf<MalformedInput, MalformedInputFilter>(db, MALFORMED, filter),

    /** Each shard, with what its rows and its workflow say. */
    async status(): Promise<ShardStatus[]> {
      const { rows } = await db.query<ShardRow>(LIST_SHARDS);
      return Promise.all(
        rows.map(async (row) => {
          const workflowId = accountCallbackWorkflowId(row.shard);
          const live = await query<CallbackState>(temporal, workflowId, CALLBACK_STATUS_QUERY);
          return { ...given({ ...row, live }), ...linkField(resources, workflowId) };
        }),
      );
    },

    /**
     * One account: how far its tracking is, and its callbacks with their outcomes.
     *
     * @throws NotFoundError for a user of whom nothing is known.
     */
    show: (userId: string, filter: AccountFilter = {}) => showAccount(resources, userId, filter),

    /** Callbacks that will be tried again, or with `dead` those that were given up, the latest failure first. */
    failed: ({ dead, ...filter }: CallbackFilter & { dead?: boolean; limit?: number } = {}) =>
      listOf(
        db,
        dead ? DEAD_LETTERS : FAILED,
        filter,
        ({ shard, ...row }: FailedRow): FailedCallbackView => ({
          ...given(row),
          ...linkField(resources, accountCallbackWorkflowId(shard)),
        }),
      ),

    /** How many dead letters a replay with this filter would replay. */
    async countReplayable(filter: CallbackFilter): Promise<number> {
      const { where, values } = conditionsOf(REPLAYABLE, filter);
      const count = `SELECT count(*)::int AS dead FROM ${FAILED.from} ${where}`;
      return (await db.query<{ dead: number }>(count, values)).rows[0]!.dead;
    },

    /**
     * Makes dead letters that match due immediately, the oldest first, each with its old content and a fresh ladder of
     * retries. Only dead letters that were dropped before the run began are taken. A replayed callback is not dead any
     * more, so the same call continues with the rest.
     *
     * @returns how many.
     * @throws NotFoundError when none matches.
     */
    replay: (filter: CallbackFilter, options: CallbackReplayOptions): Promise<number> =>
      byAuthor(resources, { action: 'callbacks replay', requestedBy: options.requestedBy }, () =>
        replay(filter, options),
      ),

    /** Trackings that did not catch up in time, the furthest behind first. */
    overdue: (filter: { limit?: number } = {}) => listOverdue(db, filter),

    /**
     * Daily callbacks wait for these trackings no longer, until the next day or `track` of the user comes.
     *
     * @param userIds trackings that are waited for, or `overdue`: all that did not catch up in time.
     * @returns how many.
     * @throws NotFoundError when it does not exist.
     */
    async release(userIds: readonly string[] | 'overdue', { requestedBy }: Requester = {}): Promise<number> {
      const rows = await runTransaction(db, async (client) => {
        const users = userIds === 'overdue' ? null : userIds;
        const found = await client.query<{ shard: number }>(RELEASE, [users]);
        const { length } = found.rows;
        if (length === 0) throw new NotFoundError('daily callbacks wait for no such tracking');
        // Without the users, who may want to be forgotten.
        const detail = `${length} tracking${length === 1 ? '' : 's'}`;
        await noteAction(client, { action: 'callbacks release', requestedBy, detail });
        return found.rows;
      });
      await Promise.allSettled([...new Set(rows.map(({ shard }) => shard))].map(wake));
      return rows.length;
    },
  };

  async function replay(filter: CallbackFilter, options: CallbackReplayOptions): Promise<number> {
    const { limit = Infinity } = options;
    const before = { ...filter, startedAt: await clockOf(db) };
    const conditions = conditionsOf<typeof before>(REPLAYABLE, before);
    const shards = new Set<number>();
    let done = 0;
    while (done < limit) {
      const batch = Math.min(REPLAY_BATCH, limit - done);
      const { rows } = await db.query<{ shard: number }>(REPLAY(conditions), [...conditions.values, batch]);
      for (const { shard } of rows) shards.add(shard);
      done += rows.length;
      if (rows.length < batch) break;
    }
    if (done === 0) throw new NotFoundError('no dead callback matches');
    // They are due. A worker that is away finds them with its next alarm.
    await Promise.allSettled([...shards].map(wake));
    return done;
  }

  /** Starts an alarm and does not wait for its end. */
  async function wake(shard: number): Promise<void> {
    const handle = temporal.workflow.getHandle(accountCallbackWorkflowId(shard));
    await bounded(temporal, () => handle.startUpdate(RUN_NOW_UPDATE, { waitForStage: 'ACCEPTED' }));
  }
}

/** Trackings that did not catch up in time, the furthest behind first. */
export const listOverdue = (
  db: OperatorResources['db'],
  filter: { limit?: number },
): Promise<Page<OverdueView>> => listOf<OverdueView, object>(db, OVERDUE, filter);

const LIST_SHARDS = `
  SELECT shard.number AS shard, users.count AS users, users."caughtUpDate", users.behind,
         (SELECT count(*)::int FROM notification.callback_snapshots
           WHERE shard = shard.number AND status = 'pending') AS pending,
         failed.*
    FROM notification.callback_settings
   CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
   CROSS JOIN LATERAL (
     SELECT (count(*) FILTER (WHERE until_ms IS NULL))::int AS count,
            to_char(min(caught_up_date) FILTER (WHERE is_waited_for), 'YYYY-MM-DD') AS "caughtUpDate",
            (count(*) FILTER (WHERE is_waited_for
                                AND caught_up_date < (now() AT TIME ZONE 'UTC')::date - 1))::int AS behind
       FROM notification.callback_trackings
      WHERE shard = shard.number
   ) AS users
   CROSS JOIN LATERAL (
     SELECT count(next_attempt_at)::int AS failed, min(next_attempt_at) AS "nextRetryAt",
            (count(*) FILTER (WHERE next_attempt_at IS NULL))::int AS "deadLetters"
       FROM notification.failed_callbacks
      WHERE shard = shard.number
   ) AS failed
   ORDER BY shard.number`;

const OVERDUE: Listing<object> = {
  columns: `user_id AS "userId", shard, to_char(caught_up_date, 'YYYY-MM-DD') AS "caughtUpDate", changed_at AS "changedAt"`,
  from: 'notification.callback_trackings',
  order: 'caught_up_date, user_id',
  always: IS_OVERDUE,
};

/** $1 users, or null: those who are overdue. */
const RELEASE = `
  UPDATE notification.callback_trackings
     SET is_waited_for = false, changed_at = clock_timestamp()
   WHERE is_waited_for AND (user_id = ANY($1::text[]) OR $1::text[] IS NULL AND ${IS_OVERDUE})
  RETURNING shard`;

const FAILED: Listing<CallbackFilter> = {
  columns: `kind, user_id AS "userId", to_timestamp(period_start_ms / 1000.0) AS "periodStart", attempts, shard,
         last_error AS "lastError", failed_at AS "failedAt", next_attempt_at AS "nextAttemptAt"`,
  from: 'notification.failed_callbacks',
  order: 'failed_at DESC, kind, user_id, period_start_ms',
  always: 'next_attempt_at IS NOT NULL',
  filters: { kind: 'kind = ?', userId: 'user_id = ?', ...spanOf('failed_at') },
};

const DEAD_LETTERS = { ...FAILED, always: 'next_attempt_at IS NULL' };

const MALFORMED: Listing<MalformedInputFilter> = {
  columns: `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message,
            recorded_at AS "recordedAt", raw_fields AS "rawFields"`,
  from: 'notification.malformed_account_inputs',
  order: 'recorded_at DESC, stream_entry_id DESC',
  filters: { code: 'failure_code = ?', ...spanOf('recorded_at') },
};

const REPLAYABLE = {
  ...DEAD_LETTERS,
  filters: { ...FAILED.filters, startedAt: 'failed_at <= ?::timestamptz' },
};

/** A replayed callback is due since it was given up: that is in the past for every clock. */
const REPLAY = ({ where, next }: ReturnType<typeof conditionsOf>) => `
  WITH chosen AS MATERIALIZED (
    SELECT kind, user_id, period_start_ms
      FROM notification.failed_callbacks
     ${where}
     ORDER BY failed_at, kind, user_id, period_start_ms
     LIMIT ${next}
       FOR UPDATE SKIP LOCKED
  ), opened AS (
    UPDATE notification.callback_snapshots AS snapshot
       SET status = 'retrying', settled_at = NULL
      FROM chosen
     WHERE snapshot.kind = chosen.kind AND snapshot.user_id = chosen.user_id
       AND snapshot.period_start_ms = chosen.period_start_ms
  )
  UPDATE notification.failed_callbacks AS failed
     SET attempts = 0, next_attempt_at = failed_at
    FROM chosen
   WHERE failed.kind = chosen.kind AND failed.user_id = chosen.user_id
     AND failed.period_start_ms = chosen.period_start_ms
  RETURNING shard`;
