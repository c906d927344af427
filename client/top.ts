/**
 * Everything that is under way, at one glance: what comes in, goes out, waits and died of each kind of work. A reading is
 * repeated every few seconds on tables of any size, so each statement reads a bounded number of rows by an index.
 */
import { given } from '../api/given.ts';
import { CHANNELS } from '../api/intent/catalog.ts';
import { loadOffset, oldestUnprocessedAgeMs, undecided } from '../api/intent/stream.ts';
import { causeOf } from './errors.ts';
import type { OperatorResources } from './resources.ts';

/** Rates are means over this time, s. */
const RATE_WINDOW_S = 10;
/** Rows are counted up to here where an index alone has them, and up to the smaller number where the rows are read. */
const COUNTED_AT_MOST = 100_000;
const READ_AT_MOST = 10_000;

/** Something that waits. */
interface Wait {
  what: string;
  /** Absent where only the time is known. */
  count?: number;
  /** How long the oldest has waited, or has been due, ms; 0: none is late. */
  oldestMs: number;
}

export interface TopOfKind {
  kind: 'intent' | 'mobile-push' | 'symbol-config' | 'account-callback' | 'subscription';
  /** Taken per second. Absent where no index tells. */
  arrivedPerSecond?: number;
  /** Handed off or acknowledged per second. Absent as above. */
  donePerSecond?: number;
  /** Only what waits. */
  waits: Wait[];
  /** Given up and not replayed since, by the reason, most frequent first: of the newest READ_AT_MOST. */
  dead: { failure: string; count: number }[];
  /** Why something could not be read. */
  unknown: string[];
}

export interface Top {
  at: Date;
  kinds: TopOfKind[];
}

/** Null where it is not known. */
type Row =
  | { what: string; count: number | null; oldestMs: number }
  | { failure: string; count: number }
  | { arrived: number | null; done: number | null };

/** A statement that selects the fields of a Row, or a function. */
type Read = string | ((resources: OperatorResources) => Promise<Row>);

interface Kind {
  kind: TopOfKind['kind'];
  /** Each is made alone: while its server is away, the others are shown. */
  reads: readonly Read[];
}

const WINDOW_BEGIN = `now() - interval '${RATE_WINDOW_S} seconds'`;

/** SQL: how long ago a time is, ms; 0 for a time to come, and for none. `float8`, which the driver returns as a number. */
const ageMs = (time: string): string =>
  `coalesce(greatest(0, extract(epoch FROM clock_timestamp() - ${time}) * 1000), 0)::float8`;

/** Waiting rows. @param from a table, a condition, and the order of an index. */
const waiting = (what: string, since: string, from: string, most = READ_AT_MOST): string => `
  SELECT '${what}' AS what, count(${since})::float8 AS count, ${ageMs(`min(${since})`)} AS "oldestMs"
    FROM (SELECT ${since} FROM ${from} LIMIT ${most}) AS first`;

/** Rows by their failure; those without one are not dead. @param from as above. */
const dead = (failure: string, from: string, most = READ_AT_MOST): string => `
  SELECT failure, count(*)::float8 AS count
    FROM (SELECT ${failure} AS failure FROM ${from} LIMIT ${most}) AS newest
   WHERE failure IS NOT NULL
   GROUP BY 1`;

/** How many rows have a time within the window. */
const recent = (table: string, column: string): string => `
  (SELECT count(*)::float8
     FROM (SELECT FROM ${table} WHERE ${column} > ${WINDOW_BEGIN} ORDER BY ${column} DESC
            LIMIT ${COUNTED_AT_MOST}) AS newest)`;

const KINDS: readonly Kind[] = [
  {
    kind: 'intent',
    reads: [
      `
        SELECT ${recent('notification.records', 'accepted_at')} AS arrived,
               ${recent('notification.routes', 'published_at')} AS done`,
      ...CHANNELS.map((channel) =>
        waiting(
          channel,
          'next_attempt_at',
          `notification.routes WHERE channel = '${channel}' AND next_attempt_at IS NOT NULL ORDER BY next_attempt_at`,
          COUNTED_AT_MOST,
        ),
      ),
      waiting('not accepted yet', 'read_at', undecided(READ_AT_MOST)),
      waiting(
        'events for producers',
        'written_at',
        'notification.outcomes WHERE relayed_at IS NULL ORDER BY outcome_id',
      ),
      dead(
        "coalesce(last_error_classification, 'unknown')",
        `notification.routes WHERE status = 'dead_letter'
          ORDER BY dead_lettered_at DESC, notification_id DESC, route_id DESC`,
      ),
      async ({ redis, intentsStream }) => {
        const offset = await loadOffset(redis, intentsStream);
        const oldestMs = await oldestUnprocessedAgeMs(redis, intentsStream, offset, Date.now());
        return { what: 'not read yet', count: null, oldestMs };
      },
    ],
  },
  {
    kind: 'mobile-push',
    reads: [
      // No index has when a job ended. Therefore the jobs of the last ten minutes are read.
      `
        SELECT count(*) FILTER (WHERE created_at > ${WINDOW_BEGIN})::float8 AS arrived,
               count(*) FILTER (WHERE status <> 'pending' AND updated_at > ${WINDOW_BEGIN})::float8 AS done
          FROM (SELECT created_at, updated_at, status
                  FROM notifications.notification_log
                 WHERE created_at > now() - interval '10 minutes'
                 ORDER BY created_at DESC
                 LIMIT ${READ_AT_MOST}) AS newest`,
      // A replay opens an old job again, and touches its row.
      waiting(
        'jobs',
        'updated_at',
        "notifications.notification_log WHERE status = 'pending' ORDER BY created_at",
      ),
      // PostgreSQL does not conclude the condition of the index from the list of states.
      `
        SELECT coalesce(error_code, asked.status) AS failure, count(*)::float8 AS count
          FROM unnest(ARRAY['failed', 'partial', 'max_retries', 'malformed']) AS asked (status)
         CROSS JOIN LATERAL (
           SELECT error_code
             FROM notifications.notification_log AS job
            WHERE job.status = asked.status AND job.status NOT IN ('sent', 'no_tokens')
            ORDER BY job.created_at DESC
            LIMIT ${READ_AT_MOST}
         ) AS newest
         GROUP BY 1`,
    ],
  },
  {
    // Targets are tried forever, so no symbol dies.
    kind: 'symbol-config',
    reads: [
      `
        SELECT NULL AS arrived, count(*)::float8 AS done
          FROM notification.symbol_targets
         WHERE acknowledged_at > ${WINDOW_BEGIN}`,
      // One that no push has failed at may be one that no push reaches.
      `
        SELECT 'targets in ' || geo AS what, count(*)::float8 AS count,
               ${ageMs('min(coalesce(failing_since, created_at))')} AS "oldestMs"
          FROM notification.symbol_targets
          LEFT JOIN (SELECT version, created_at FROM notification.symbol_snapshots ORDER BY version DESC LIMIT 1) AS newest
            ON true
         WHERE consecutive_failures > 0 OR acknowledged_version IS DISTINCT FROM newest.version
         GROUP BY geo
         ORDER BY geo`,
    ],
  },
  {
    kind: 'account-callback',
    reads: [
      // Those of a day wait until all users of their shard have caught up to its end, for which they have two hours.
      waiting(
        'callbacks',
        'since',
        `(SELECT *, CASE kind
                      WHEN 'daily' THEN greatest(created_at, to_timestamp(period_start_ms / 1000.0) + interval '26 hours')
                      ELSE created_at
                    END AS since
            FROM notification.callback_snapshots) AS snapshot
          WHERE status = 'pending' ORDER BY shard, kind, period_start_ms, position`,
      ),
      waiting(
        'callbacks to be repeated',
        'next_attempt_at',
        'notification.failed_callbacks WHERE next_attempt_at IS NOT NULL ORDER BY shard, next_attempt_at',
        COUNTED_AT_MOST,
      ),
      dead(
        'left(last_error, 80)',
        `notification.failed_callbacks WHERE next_attempt_at IS NULL
          ORDER BY failed_at DESC, kind, user_id, period_start_ms`,
      ),
    ],
  },
  {
    // Of all agents, as the pools of the workers find them.
    kind: 'subscription',
    reads: [
      waiting(
        'of messaging routers',
        'action_ts',
        `subscriptions.ntf_subscriptions WHERE smp_action IS NOT NULL AND NOT smp_failed
            ORDER BY agent_id, smp_host, smp_port, action_ts, conn_id`,
      ),
      waiting(
        'of notification routers',
        'action_ts',
        `subscriptions.ntf_subscriptions WHERE ntf_action IS NOT NULL AND NOT ntf_failed AND action_ts <= now()
            ORDER BY action_ts`,
      ),
      waiting('tokens to be deleted', 'created_at', 'subscriptions.ntf_tokens_to_delete ORDER BY created_at'),
      waiting('events', 'created_at', 'subscriptions.events WHERE relayed_at IS NULL ORDER BY event_id'),
      // The reason for which a worker gave up is in its history alone.
      ...(
        [
          ['given up', 'action_ts IS NULL'],
          ['key that does not open', '(ntf_failed OR smp_failed)'],
        ] as const
      ).map(([failure, condition]) =>
        dead(
          `'${failure}'`,
          `subscriptions.ntf_subscriptions WHERE ${condition} ORDER BY agent_id, conn_id`,
          COUNTED_AT_MOST,
        ),
      ),
    ],
  },
];

/** Never throws: what a server did not tell is missing, and said in `unknown` of its kind. */
export async function top(resources: OperatorResources): Promise<Top> {
  const kinds = await Promise.all(KINDS.map((kind) => readKind(resources, kind)));
  return { at: new Date(), kinds };
}

async function readKind(resources: OperatorResources, { kind, reads }: Kind): Promise<TopOfKind> {
  const rowsOf = async (read: Read): Promise<Row[]> =>
    typeof read === 'string' ? (await resources.db.query<Row>(read)).rows : [await read(resources)];
  const found = await Promise.allSettled(reads.map(rowsOf));
  const causes = found.flatMap((one) => (one.status === 'rejected' ? [causeOf(one.reason)] : []));
  const of: TopOfKind = { kind, waits: [], dead: [], unknown: [...new Set(causes)] };
  for (const row of found.flatMap((one) => (one.status === 'fulfilled' ? one.value : []))) {
    if ('failure' in row) of.dead.push(row);
    else if ('what' in row) {
      if ((row.count ?? row.oldestMs) > 0) of.waits.push(given(row));
    } else {
      if (row.arrived !== null) of.arrivedPerSecond = row.arrived / RATE_WINDOW_S;
      if (row.done !== null) of.donePerSecond = row.done / RATE_WINDOW_S;
    }
  }
  of.dead.sort((one, other) => other.count - one.count);
  return of;
}

/** Of tests, which plan them. */
export const STATEMENTS: readonly string[] = KINDS.flatMap(({ reads }) => reads).filter(
  (read) => typeof read === 'string',
);
