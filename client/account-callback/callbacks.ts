/** Account callbacks: how far each shard has come, what failed, and what was given up (workflows/account-callback/workflow.ts). */
import type { CallbackKind } from '../../api/account-callback/callback.ts';
import type { CallbackState, ShardPauseRequest } from '../../workflows/account-callback/contract.ts';
import {
  CALLBACK_STATUS_QUERY,
  HOUR_MS,
  PAUSE_SHARD_UPDATE,
  RESUME_SHARD_UPDATE,
  RUN_NOW_UPDATE,
  SET_ASIDE_SHARD,
  accountCallbackWorkflowId,
} from '../../workflows/account-callback/contract.ts';
import { runTransaction } from '../../api/postgres-transaction.ts';
import type { Requester } from '../actions.ts';
import { byAuthor, noteAction } from '../actions.ts';
import { clockOf } from '../bulk-replay.ts';
import { NotFoundError } from '../errors.ts';
import type { Candidate, Conditions, Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf, withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ANSWER_LIMIT_MS, ask, query } from '../temporal.ts';
import type { AccountFilter } from './account.ts';
import { explainPeriod, showAccount } from './account.ts';
import { malformedInputOperations } from './malformed.ts';

/** An alarm computes and delivers, ms; it does not wait for targets that hang. */
const RUN_LIMIT_MS = 60_000;
/** Dead letters that one statement opens again. */
const REPLAY_BATCH = 500;

export interface ShardStatus {
  shard: number;
  users: number;
  /** Before this time, all hours of all users are computed; absent without users. */
  caughtUpTo?: Date;
  /** The last day that is settled for all users, as `2026-01-31`; absent without users. */
  dailyDate?: string;
  /** Computed, and not tried yet. */
  pending: number;
  /** To be tried again. */
  failed: number;
  nextRetryAt?: Date;
  /** Given up, and not replayed since. */
  deadLetters: number;
  /** It computes and tells nothing until somebody resumes it. */
  paused?: { since: Date; by: string; reason?: string };
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

export interface FailedCallbackView {
  kind: CallbackKind;
  userId: string;
  periodStart: Date;
  /** Failed ones so far; 0 for one that is replayed and was not tried yet. */
  attempts: number;
  lastError: string;
  failedAt: Date;
  /** Absent for a dead letter. */
  nextAttemptAt?: Date;
  /** Of a dead letter, if it was. */
  replayedAt?: Date;
  link?: string;
}

/** An account that is set aside: an hour of it could not be computed, and it must not hold up the others. */
export interface SetAsideView {
  userId: string;
  /** Start of the hour that failed last. */
  hourStart: Date;
  /** In a row. */
  failures: number;
  reason: string;
  setAsideAt: Date;
  /** Absent: it rests until an operator takes it up. */
  nextTryAt?: Date;
}

export interface SymbolView {
  symbol: string;
  /** Time of its last price. */
  lastPriceAt: Date;
  /** Since then no hour waits for it; absent: hours wait, until it has been silent for long. */
  forgottenAt?: Date;
}

/** The settings of the service that its operators need. */
export interface TakeUpOptions {
  /** How long ago an hour may be that is told, ms: `NOTIFICATION_CALLBACK_SNAPSHOT_RETENTION`. */
  maxAgeMs: number;
}

export interface CallbackReplayOptions {
  requestedBy: string;
  /** Dead letters at most, the oldest first. */
  limit?: number;
  /** Called after each batch with the number of those replayed so far. */
  onReplayed?: (done: number) => void;
  /** Stops the run after the batch at hand. */
  signal?: AbortSignal;
}

export function callbackOperations(resources: OperatorResources) {
  const { temporal, db } = resources;

  return {
    malformed: malformedInputOperations(resources),

    /** Each shard, with what its rows and its workflow say. */
    async status(): Promise<ShardStatus[]> {
      const { rows } = await db.query<StatusRow>(LIST_SHARDS);
      return Promise.all(
        rows.map(async ({ pausedSince, pausedBy, pauseReason, ...row }) => {
          const workflowId = accountCallbackWorkflowId(row.shard);
          const live = await query<CallbackState>(temporal, workflowId, CALLBACK_STATUS_QUERY);
          const paused = pauseViewOf({ pausedSince, pausedBy, pauseReason }, live);
          return {
            ...withoutNulls(row),
            ...(paused ? { paused } : {}),
            ...(live ? { live } : {}),
            ...linkField(resources, workflowId),
          };
        }),
      );
    },

    /**
     * One account: how far it is, what it holds, and what was told of it or is to be told.
     *
     * @throws NotFoundError for a user of whom nothing is known.
     */
    show: (userId: string, filter: AccountFilter = {}) => showAccount(resources, userId, filter),

    /**
     * Why the values of an hour or a day of an account are what they are, or why there are none.
     *
     * @param period its kind, and any time in it.
     * @throws NotFoundError for a user of whom nothing is known.
     */
    explain: (userId: string, period: { kind: CallbackKind; at: Date }) =>
      explainPeriod(resources, userId, period),

    /** Callbacks that will be tried again, the latest failure first. */
    failed: (filter: CallbackFilter & { limit?: number } = {}) => list(LIST_FAILED, 'failed_at', filter),

    /** Callbacks that were given up, the newest first. A replay leaves them as they are, with its time. */
    deadLetters: (filter: CallbackFilter & { limit?: number } = {}) =>
      list(LIST_DEAD_LETTERS, 'dropped_at', filter),

    /** How many dead letters a replay with this filter would replay. */
    async countReplayable(filter: CallbackFilter): Promise<number> {
      const given = conditions(replayable(filter));
      const { rows } = await db.query<{ dead: number }>(COUNT_REPLAYABLE(given), given.values);
      return rows[0]!.dead;
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
      byAuthor(
        resources,
        { action: 'callbacks replay', requestedBy: options.requestedBy },
        () => replay(filter, options),
        (replayed) => ({ detail: `${replayed} callbacks` }),
      ),

    /** Accounts that are set aside, the latest first. */
    async setAside({ limit = DEFAULT_LIMIT }: { limit?: number } = {}): Promise<Page<SetAsideView>> {
      const { rows } = await db.query<SetAsideRow>(LIST_SET_ASIDE, [limit + 1]);
      return pageOf(rows, limit, withoutNulls);
    },

    /**
     * Computes an account again that was set aside, from the hour on that failed, or that is not too old to be told.
     *
     * @param userId default: all of them.
     * @returns how many.
     * @throws NotFoundError when there is none.
     */
    async takeUp(
      userId: string | undefined,
      { maxAgeMs, requestedBy }: TakeUpOptions & Requester,
    ): Promise<number> {
      const rows = await runTransaction(db, async (client) => {
        const found = await client.query<{ shard: number }>(TAKE_UP, [userId ?? null, Date.now() - maxAgeMs]);
        const { length } = found.rows;
        if (length === 0) throw new NotFoundError('no such account is set aside');
        // Without the user, who may want to be forgotten.
        const detail = `${length} account${length === 1 ? '' : 's'}`;
        await noteAction(client, { action: 'callbacks take-up', requestedBy, detail });
        return found.rows;
      });
      await Promise.allSettled([...new Set(rows.map(({ shard }) => shard))].map(wake));
      return rows.length;
    },

    /** Symbols, those first whose last price is the oldest: hours wait for them. */
    async symbols({ limit = DEFAULT_LIMIT }: { limit?: number } = {}): Promise<Page<SymbolView>> {
      const { rows } = await db.query<SymbolRow>(LIST_SYMBOLS, [limit + 1]);
      return pageOf(rows, limit, withoutNulls);
    },

    /**
     * No hour waits for the next price of a symbol any more. Its last price stays in force for whoever holds it; a new
     * one makes it known again.
     *
     * @throws NotFoundError for a symbol that never had a price.
     */
    async forgetSymbol(symbol: string, { requestedBy }: Requester = {}): Promise<void> {
      await runTransaction(db, async (client) => {
        const { rowCount } = await client.query(FORGET_SYMBOL, [symbol]);
        if (rowCount === 0) throw new NotFoundError('there is no price of that symbol');
        await noteAction(client, { action: 'callbacks forget', target: symbol, requestedBy });
      });
    },

    /**
     * Runs the pipeline of a shard now instead of at its next alarm.
     *
     * @returns its state afterwards.
     * @throws OperationFailedError when it does not run, or has not ended its alarm within a minute.
     */
    run,

    /**
     * Pauses a shard: it computes and tells nothing until somebody resumes it, over restarts.
     *
     * @param request its `requestedBy` is kept, and listed with the actions.
     * @returns its state once nothing is being computed or told any more.
     * @throws NotFoundError; OperationFailedError when what had begun has not ended within a minute, or nobody takes it.
     */
    pause: (shard: number, request: ShardPauseRequest = {}) => steer(shard, 'pause', request),

    /**
     * Resumes a shard: what waited is computed and told in order, each once.
     *
     * @returns its state.
     * @throws NotFoundError; OperationFailedError when nobody takes it.
     */
    resume: (shard: number, request: ShardPauseRequest = {}) => steer(shard, 'resume', request),
  };

  async function replay(filter: CallbackFilter, options: CallbackReplayOptions): Promise<number> {
    const { requestedBy, limit = Infinity, onReplayed, signal } = options;
    const startedAt = await clockOf(db);
    const shards = new Set<number>();
    let done = 0;
    while (done < limit && !signal?.aborted) {
      const given = conditions([...replayable(filter), ['dropped_at <= ?::timestamptz', startedAt]]);
      const batch = Math.min(REPLAY_BATCH, limit - done);
      const { rows } = await db.query<{ shard: number }>(REPLAY(given), [
        ...given.values,
        batch,
        requestedBy,
      ]);
      for (const { shard } of rows) shards.add(shard);
      done += rows.length;
      onReplayed?.(done);
      if (rows.length < batch) break;
    }
    if (done === 0) throw new NotFoundError('no dead callback matches');
    // They are due. A worker that is away finds them with its next alarm.
    await Promise.allSettled([...shards].map(wake));
    return done;
  }

  async function steer(
    shard: number,
    verb: 'pause' | 'resume',
    request: ShardPauseRequest,
  ): Promise<CallbackState> {
    const { rows } = await db.query(FIND_SHARD, [shard]);
    if (rows.length === 0) throw new NotFoundError(`there is no shard ${shard}`);
    const update = verb === 'pause' ? PAUSE_SHARD_UPDATE : RESUME_SHARD_UPDATE;
    const { requestedBy, reason } = request;
    const action = {
      ...{ action: `callbacks ${verb}`, target: `shard ${shard}`, requestedBy, detail: reason },
    };
    const steering = () =>
      ask(
        temporal,
        {
          workflowId: accountCallbackWorkflowId(shard),
          limitMs: RUN_LIMIT_MS,
          ifSilent: 'it may still be made, see callbacks status: what had begun to be told ends first',
          ifNotRunning: 'a service with the role account-callback starts it',
        },
        (handle) => handle.executeUpdate<CallbackState, [ShardPauseRequest]>(update, { args: [request] }),
      );
    return byAuthor(resources, action, steering);
  }

  async function list(
    statement: (given: Conditions) => string,
    time: string,
    { limit = DEFAULT_LIMIT, ...filter }: CallbackFilter & { limit?: number },
  ): Promise<Page<FailedCallbackView>> {
    const given = conditions(matching(filter, time));
    const { rows } = await db.query<FailedRow>(statement(given), [...given.values, limit + 1]);
    return pageOf(rows, limit, ({ shard, ...row }) => ({
      ...withoutNulls(row),
      ...linkField(resources, accountCallbackWorkflowId(shard)),
    }));
  }

  function run(shard: number, { requestedBy }: Requester = {}): Promise<CallbackState> {
    const action = { action: 'callbacks run', target: `shard ${shard}`, requestedBy };
    return byAuthor(resources, action, () =>
      ask(temporal, { ...asked(shard), limitMs: RUN_LIMIT_MS }, (handle) =>
        handle.executeUpdate<CallbackState, []>(RUN_NOW_UPDATE),
      ),
    );
  }

  /** Starts an alarm and does not wait for its end. */
  async function wake(shard: number): Promise<void> {
    await ask(temporal, { ...asked(shard), limitMs: ANSWER_LIMIT_MS }, (handle) =>
      handle.startUpdate(RUN_NOW_UPDATE, { waitForStage: 'ACCEPTED' }),
    );
  }
}

/** The workflow rests as well when PostgreSQL was put back to before the pause, and knows nothing of it. */
function pauseViewOf(
  { pausedSince, pausedBy, pauseReason }: Pick<StatusRow, 'pausedSince' | 'pausedBy' | 'pauseReason'>,
  live: CallbackState | undefined,
): ShardStatus['paused'] {
  if (pausedSince !== null && pausedBy !== null) {
    return { since: pausedSince, by: pausedBy, ...(pauseReason === null ? {} : { reason: pauseReason }) };
  }
  if (!live?.paused) return undefined;
  const { sinceMs, requestedBy, reason } = live.paused;
  return { since: new Date(sinceMs), by: requestedBy, ...(reason === undefined ? {} : { reason }) };
}

const asked = (shard: number) => ({
  workflowId: accountCallbackWorkflowId(shard),
  ifSilent: 'its alarm may still be under way; is a process with the role account-callback running?',
  ifNotRunning: 'a service with the role account-callback starts it',
});

const matching = ({ kind, userId, since, until }: CallbackFilter, time: string): Candidate[] => [
  ['kind = ?', kind],
  ['user_id = ?', userId],
  [`${time} >= ?`, since],
  [`${time} <= ?`, until],
];

const replayable = (filter: CallbackFilter): Candidate[] => [
  ['replayed_at IS NULL'],
  ...matching(filter, 'dropped_at'),
];

interface StatusRow {
  shard: number;
  users: number;
  caughtUpTo: Date | null;
  dailyDate: string | null;
  pending: number;
  failed: number;
  nextRetryAt: Date | null;
  deadLetters: number;
  pausedSince: Date | null;
  pausedBy: string | null;
  pauseReason: string | null;
}

const FIND_SHARD = 'SELECT FROM notification.callback_settings WHERE $1::int >= 0 AND $1::int < shards';

const LIST_SHARDS = `
  WITH dead AS MATERIALIZED (
    SELECT mod(('x' || substr(md5(user_id), 1, 7))::bit(28)::integer, shards) AS shard, count(*)::int AS count
      FROM notification.callback_dead_letters CROSS JOIN notification.callback_settings
     WHERE replayed_at IS NULL
     GROUP BY 1
  )
  SELECT shard.number AS shard, users.count AS users, users."caughtUpTo", users."dailyDate",
         (SELECT count(*)::int FROM notification.callback_snapshots
           WHERE shard = shard.number AND status = 'pending') AS pending,
         failed.count AS failed, failed."nextRetryAt",
         coalesce((SELECT count FROM dead WHERE dead.shard = shard.number), 0) AS "deadLetters",
         pause.changed_at AS "pausedSince", pause.changed_by AS "pausedBy", pause.reason AS "pauseReason"
    FROM notification.callback_settings
   CROSS JOIN LATERAL generate_series(0, shards - 1) AS shard (number)
    LEFT JOIN notification.callback_pauses AS pause ON pause.shard = shard.number AND is_paused
   CROSS JOIN LATERAL (
     SELECT count(*)::int AS count, to_timestamp(min(caught_up_to_ms) / 1000.0) AS "caughtUpTo",
            to_char(min(daily_date), 'YYYY-MM-DD') AS "dailyDate"
       FROM notification.callback_trackings
      WHERE shard = shard.number
   ) AS users
   CROSS JOIN LATERAL (
     SELECT count(*)::int AS count, min(next_attempt_at) AS "nextRetryAt"
       FROM notification.failed_callbacks
      WHERE shard = shard.number
   ) AS failed
   ORDER BY shard.number`;

type SetAsideRow = Omit<SetAsideView, 'nextTryAt'> & { nextTryAt: Date | null };
type SymbolRow = Omit<SymbolView, 'forgottenAt'> & { forgottenAt: Date | null };

const LIST_SET_ASIDE = `
  SELECT user_id AS "userId", to_timestamp(hour_start_ms / 1000.0) AS "hourStart", failures, reason,
         set_aside_at AS "setAsideAt", next_try_at AS "nextTryAt"
    FROM notification.callback_set_aside
    JOIN notification.callback_trackings USING (user_id)
   WHERE shard = ${SET_ASIDE_SHARD}
   ORDER BY set_aside_at DESC, user_id
   LIMIT $1`;

/** $1 user or null, $2 the earliest hour that is told, epoch ms. Failures are counted anew. */
const TAKE_UP = `
  WITH taken AS (
    UPDATE notification.callback_trackings
       SET shard = notification.callback_shard(user_id),
           caught_up_to_ms = greatest(caught_up_to_ms, $2::bigint / ${HOUR_MS} * ${HOUR_MS})
     WHERE shard = ${SET_ASIDE_SHARD} AND ($1::text IS NULL OR user_id = $1)
    RETURNING user_id, shard
  ), cleared AS (
    DELETE FROM notification.callback_set_aside AS aside USING taken WHERE aside.user_id = taken.user_id
  )
  SELECT shard FROM taken`;

const LIST_SYMBOLS = `
  SELECT symbol, to_timestamp(last_at_ms / 1000.0) AS "lastPriceAt", forgotten_at AS "forgottenAt"
    FROM notification.callback_symbols
   ORDER BY forgotten_at IS NOT NULL, last_at_ms, symbol
   LIMIT $1`;

const FORGET_SYMBOL = `
  UPDATE notification.callback_symbols SET forgotten_at = coalesce(forgotten_at, clock_timestamp()) WHERE symbol = $1`;

interface FailedRow {
  kind: CallbackKind;
  userId: string;
  shard: number;
  periodStart: Date;
  attempts: number;
  lastError: string;
  failedAt: Date;
  nextAttemptAt: Date | null;
  replayedAt: Date | null;
}

const LIST_FAILED = ({ where, next }: Conditions) => `
  SELECT kind, user_id AS "userId", shard, to_timestamp(period_start_ms / 1000.0) AS "periodStart", attempts,
         last_error AS "lastError", failed_at AS "failedAt", next_attempt_at AS "nextAttemptAt", NULL AS "replayedAt"
    FROM notification.failed_callbacks
   ${where}
   ORDER BY failed_at DESC, kind, user_id, period_start_ms
   LIMIT ${next}`;

const LIST_DEAD_LETTERS = ({ where, next }: Conditions) => `
  SELECT kind, user_id AS "userId", notification.callback_shard(user_id) AS shard,
         to_timestamp(period_start_ms / 1000.0) AS "periodStart", attempts, last_error AS "lastError",
         dropped_at AS "failedAt", NULL AS "nextAttemptAt", replayed_at AS "replayedAt"
    FROM notification.callback_dead_letters
   ${where}
   ORDER BY dropped_at DESC, kind, user_id, period_start_ms
   LIMIT ${next}`;

const COUNT_REPLAYABLE = ({ where }: Conditions) => `
  SELECT count(*)::int AS dead FROM notification.callback_dead_letters ${where}`;

/**
 * A replayed callback is due since it was dropped: that is in the past for every clock. The parameters after those of the
 * filter are the limit and who asks.
 */
const REPLAY = ({ where, values, next }: Conditions) => `
  WITH chosen AS MATERIALIZED (
    SELECT kind, user_id, period_start_ms, last_error, dropped_at
      FROM notification.callback_dead_letters
     ${where}
     ORDER BY dropped_at, kind, user_id, period_start_ms
     LIMIT ${next}
       FOR UPDATE SKIP LOCKED
  ), marked AS (
    UPDATE notification.callback_dead_letters AS dead
       SET replayed_at = clock_timestamp(), replayed_by = $${values.length + 2}
      FROM chosen
     WHERE dead.kind = chosen.kind AND dead.user_id = chosen.user_id
       AND dead.period_start_ms = chosen.period_start_ms
  ), opened AS (
    UPDATE notification.callback_snapshots AS snapshot
       SET status = 'retrying', settled_at = NULL
      FROM chosen
     WHERE snapshot.kind = chosen.kind AND snapshot.user_id = chosen.user_id
       AND snapshot.period_start_ms = chosen.period_start_ms
  )
  INSERT INTO notification.failed_callbacks AS failed
    (kind, user_id, period_start_ms, shard, attempts, next_attempt_at, last_error, failed_at)
  SELECT kind, user_id, period_start_ms, notification.callback_shard(user_id), 0, dropped_at, last_error, dropped_at
    FROM chosen
  ON CONFLICT (kind, user_id, period_start_ms) DO UPDATE SET attempts = 0, next_attempt_at = excluded.next_attempt_at
  RETURNING shard`;
