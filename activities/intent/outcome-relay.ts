/** From the outbox of outcomes to their stream; and what becomes of rows and tallies that have done their work. */
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import type { OutcomeKind, OutcomeRow } from '../../api/intent/outcome.ts';
import { fieldsOfOutcome } from '../../api/intent/outcome.ts';
import { query } from '../postgres.ts';
import { watchRelayed } from '../relay-watch.ts';
import type { Outbox, OutboxRow, RelayResources } from '../relay.ts';
import { relay } from '../relay.ts';
import { MAX_RUN_MS, deletionOf, inBatches } from '../retention.ts';
import { run } from '../transactions.ts';
import { watchEvery } from '../watch.ts';
import type { IntentMetrics } from './metrics.ts';
import type { Outcomes } from './outcomes.ts';
import { END_LEFT_TALLIES } from './outcomes.ts';

/** Between two looks for rows to relay: an event is late by as much at most, if nothing is in its way. */
const RELAY_INTERVAL_MS = 200;
/** Rows that are relayed together, and their events unless there is one row only. */
const ROWS_TOGETHER = 200;
const EVENTS_TOGETHER = 500;
/** A tally that is so old and has no open route was not told of by whoever closed the last one, ms. */
const LEFT_AFTER_MS = 600_000;
/** Tallies that are looked at together. */
const TALLIES_TOGETHER = 200;

export interface OutcomeStream {
  stream: string;
  /** Approximate length to which it is trimmed. */
  maxLen: number;
}

interface StoredRow extends OutboxRow {
  events: OutcomeRow[];
  written_at: Date;
}

interface RelayOfOutcomes extends RelayResources {
  metrics: IntentMetrics;
  outcomeStream: OutcomeStream;
}

/** The outbox of outcomes, and its stream. */
export const outboxOfOutcomes = ({ metrics, outcomeStream }: RelayOfOutcomes): Outbox => ({
  ...outcomeStream,
  what: 'outcomes',
  lock: LOCK_RELAY,
  load: LOAD_OUTCOMES,
  loadValues: [ROWS_TOGETHER, EVENTS_TOGETHER],
  entriesOf: (row) => {
    const { events, written_at } = row as StoredRow;
    return events.map((event) => fieldsOfOutcome(event, written_at.getTime()));
  },
  mark: MARK_RELAYED,
  areLeft: ARE_OUTCOMES_LEFT,
  listRelayed: LIST_RELAYED,
  putBack: PUT_BACK,
  isOrdered: true,
  async afterwards(client: PoolClient, rows: readonly OutboxRow[]) {
    const events = (rows as StoredRow[]).flatMap((row) => row.events);
    for (const [, kind] of events) metrics.outcomeRelayed({ kind });
    const ended = events.flatMap(([, kind, id]) => (ENDS_OF_TALLIES.includes(kind) ? [id] : []));
    if (ended.length > 0) await run(client, FORGET_TALLIES, [ended]);
  },
});

const ENDS_OF_TALLIES: readonly OutcomeKind[] = ['settled', 'cancelled', 'expired'];

/**
 * Relays outcomes for as long as the process runs, and watches their stream. Any number of processes may: one at a time
 * relays.
 *
 * @param settlingMs until every relay from before a suspicion has its rows written.
 */
export function relayOutcomes(resources: RelayOfOutcomes & { settlingMs: number }): {
  stop(): Promise<void>;
} {
  const { db, log } = resources;
  const outbox = outboxOfOutcomes(resources);
  const watch = watchRelayed({ ...resources, outbox });
  const running = watchEvery(
    RELAY_INTERVAL_MS,
    async () => {
      const [left] = await query<{ is_any: boolean }>(db, ARE_OUTCOMES_LEFT, []);
      if (left?.is_any) await relay(resources, outbox);
    },
    (reason) => log.warn({ stream: outbox.stream, reason }, 'outcomes are not relayed, and wait'),
  );
  return {
    async stop() {
      await Promise.all([running.stop(), watch.stop()]);
    },
  };
}

interface Upkeep {
  db: Pool;
  log: Logger;
  outcomes: Outcomes;
}

/**
 * Ends what nobody has told the end of: the last route was closed by a process without outcomes, or by a release before
 * them. Takes away tallies that are left over.
 *
 * @throws ApplicationFailure of PostgreSQL, and the reason of a stop.
 */
export async function endLeftTallies({ db, log, outcomes }: Upkeep): Promise<void> {
  if (!outcomes.isOn) return;
  let after = '';
  let ended = 0;
  await inBatches(TALLIES_TOGETHER, MAX_RUN_MS, async (limit) => {
    const page = await query<{ notification_id: string; is_left: boolean; is_done: boolean }>(
      db,
      LIST_TALLIES,
      [after, LEFT_AFTER_MS, limit],
    );
    const left = page.filter(({ is_left }) => is_left).map(({ notification_id }) => notification_id);
    const done = page.filter(({ is_done }) => is_done).map(({ notification_id }) => notification_id);
    if (left.length > 0) await outcomes.run(db, END_LEFT_TALLIES, [left]);
    if (done.length > 0) await query(db, FORGET_TALLIES, [done]);
    ended += left.length;
    after = page.at(-1)?.notification_id ?? after;
    return page.length >= limit;
  });
  if (ended > 0) log.warn({ notifications: ended }, 'outcomes were told that nobody had told');
}

/** No other lock has this number; the lock ends with the transaction. */
const LOCK_RELAY = {
  name: 'lock_outcome_relay',
  text: 'SELECT pg_try_advisory_xact_lock(4207716002) AS is_ours',
};

/** $1 rows at most, $2 events at most, unless the first row has more. */
const LOAD_OUTCOMES = {
  name: 'load_outcomes',
  text: `
    SELECT id, events, written_at
      FROM (SELECT outcome_id::text AS id, events, written_at, event_count,
                   sum(event_count) OVER (ORDER BY page.outcome_id) AS total
              FROM (SELECT outcome_id, events, written_at, event_count
                      FROM notification.outcomes
                     WHERE relayed_at IS NULL
                     ORDER BY outcome_id
                     LIMIT $1) AS page
             ORDER BY page.outcome_id) AS summed
     WHERE total <= $2::int OR total = event_count`,
};

const ARE_OUTCOMES_LEFT = {
  name: 'are_outcomes_left',
  text: 'SELECT min(outcome_id) IS NOT NULL AS is_any FROM notification.outcomes WHERE relayed_at IS NULL',
};

/** $1 rows, $2 their last entries. */
const MARK_RELAYED = {
  name: 'mark_outcomes_relayed',
  text: `
    UPDATE notification.outcomes AS outcome
       SET relayed_at = clock_timestamp(), entry_id = relayed.entry_id
      FROM unnest($1::bigint[], $2::text[]) AS relayed (outcome_id, entry_id)
     WHERE outcome.outcome_id = relayed.outcome_id`,
};

/** Of those whose end is told. A cancellation before acceptance stays for a while, in case that it is being accepted. $1 notifications. */
const FORGET_TALLIES = {
  name: 'forget_outcome_tallies',
  text: `
    DELETE FROM notification.outcome_tallies
     WHERE notification_id = ANY ($1::text[]) AND open < 1
       AND (routes > 0 OR counted_at < now() - ${LEFT_AFTER_MS} * interval '1 millisecond')`,
};

/** $1 the last notification of the page before, $2 age in ms, $3 rows at most. */
const LIST_TALLIES = {
  name: 'list_left_outcome_tallies',
  text: `
    SELECT notification_id, is_old AND open < 1 OR NOT has_record AS is_done,
           is_old AND open > 0 AND has_record
             AND NOT EXISTS (SELECT FROM notification.routes
                              WHERE routes.notification_id = tally.notification_id AND next_attempt_at IS NOT NULL) AS is_left
      FROM (SELECT notification_id, open, counted_at < now() - $2::bigint * interval '1 millisecond' AS is_old
              FROM notification.outcome_tallies
             WHERE notification_id > $1
             ORDER BY notification_id
             LIMIT $3) AS tally
     CROSS JOIN LATERAL (
       SELECT EXISTS (SELECT FROM notification.records
                       WHERE records.notification_id = tally.notification_id) OR NOT is_old AS has_record
     ) AS of_tally
     ORDER BY notification_id`,
};

/**
 * The next older rows that were relayed, back to a day before the stream was last seen whole. $1 and $2 the last one of
 * the page before, $3 when the stream was last seen whole, $4 rows at most.
 */
const LIST_RELAYED = {
  name: 'list_relayed_outcomes',
  text: `
    SELECT outcome_id::text AS id, relayed_at::text, entry_id
      FROM notification.outcomes AS outcome
     WHERE relayed_at <= $1::timestamptz AND relayed_at >= $3::timestamptz - interval '1 day'
       AND (relayed_at, outcome_id) < ($1::timestamptz, $2::bigint)
     ORDER BY outcome.relayed_at DESC, outcome.outcome_id DESC
     LIMIT $4`,
};

/** $1 rows, $2 the entries as which they were relayed. */
const PUT_BACK = {
  name: 'put_back_outcomes',
  text: `
    UPDATE notification.outcomes AS outcome
       SET relayed_at = NULL, entry_id = NULL
      FROM unnest($1::bigint[], $2::text[]) AS lost (outcome_id, entry_id)
     WHERE outcome.outcome_id = lost.outcome_id AND outcome.entry_id = lost.entry_id
    RETURNING 1`,
};

/** Relayed ones. */
export const DELETE_RELAYED = deletionOf({
  name: 'delete_relayed_outcomes',
  table: 'notification.outcomes',
  key: 'outcome_id',
  since: 'relayed_at',
  condition: 'relayed_at IS NOT NULL',
});

/** Those that nobody relays any more, since outcomes were switched off. $1 age in ms, $2 rows at most. */
export const DELETE_UNRELAYED = {
  name: 'delete_unrelayed_outcomes',
  text: `
    WITH expired AS (
      SELECT outcome_id
        FROM (SELECT outcome_id, written_at
                FROM notification.outcomes
               WHERE relayed_at IS NULL
               ORDER BY outcome_id
               LIMIT $2) AS oldest
       WHERE written_at < now() - $1::bigint * interval '1 millisecond'
    ), deleted AS (
      DELETE FROM notification.outcomes AS old USING expired WHERE old.outcome_id = expired.outcome_id
      RETURNING 1
    )
    SELECT count(*)::int AS deleted FROM deleted`,
};
