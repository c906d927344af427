/**
 * The watch over the stream of outcomes. A Redis that was restarted, switched or restored may have lost events that it had
 * acknowledged. Rows whose entry is gone are put back to those that wait; the relay, which stands still meanwhile, then goes
 * on with the oldest.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { OutboundRow, SettlingClock } from '../outbound-state.ts';
import {
  CLEAR_OUTBOUND,
  LOAD_OUTBOUND,
  READ_SETTLED,
  SUSPECT_OUTBOUND,
  databaseOf,
  lookAtOutbound,
  savingOf,
  seenOf,
  suspectValues,
  suspicionOf,
  valuesOf,
} from '../outbound-state.ts';
import { query } from '../postgres.ts';
import type { RelayedRow } from '../relayed-rows.ts';
import { putBackLost } from '../relayed-rows.ts';
import { watchEvery } from '../watch.ts';

const LOOK_INTERVAL_MS = 2_000;

interface OutcomeWatchResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  outcomeStream: { stream: string };
  /** Until every relay from before a suspicion has its rows written, ms. */
  settlingMs: number;
}

interface RelayedOutcome extends RelayedRow {
  /** Relayed when the stream had perhaps not been seen whole. */
  is_recent: boolean;
}

/** Looks at the stream for as long as the process runs; any number of processes may. */
export function watchOutcomes(resources: OutcomeWatchResources): { stop(): Promise<void> } {
  const { db, redis, log, settlingMs } = resources;
  const { stream } = resources.outcomeStream;
  const stopping = new AbortController();
  const running = watchEvery(LOOK_INTERVAL_MS, look, (reason) =>
    log.warn({ stream, reason }, 'stream of outcomes not looked at'),
  );
  return {
    async stop() {
      stopping.abort();
      await running.stop();
    },
  };

  async function look(): Promise<void> {
    // The row before the stream: an entry that a relay appends in between is in neither, or in the stream alone.
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    const now = await lookAtOutbound(redis, stream);
    const suspicion = row && suspicionOf(seenOf(row), now);
    if (suspicion !== undefined) {
      const [isNew] = await query(db, SUSPECT_OUTBOUND, suspectValues(stream, row!, now, suspicion));
      if (isNew)
        log.warn({ stream, reason: suspicion }, 'stream of outcomes may have lost some, they are checked');
    } else if (row?.suspect_since) {
      await restore(row);
    } else if (!row || valuesOf(seenOf(row)).join(' ') !== valuesOf(now).join(' ')) {
      await query(db, SAVE_SEEN, [stream, ...valuesOf(now), row?.last_entry_id ?? null]);
    }
  }

  async function restore(suspect: OutboundRow): Promise<void> {
    const [clock] = await query<SettlingClock>(db, READ_SETTLED, [suspect.suspect_since, settlingMs]);
    if (clock!.settles_in_ms > 0) return;
    const restored = await putBackLost<RelayedOutcome>(resources, {
      ...{ stream, suspect, list: LIST_RELAYED, putBack: PUT_BACK, signal: stopping.signal },
      mayEnd: (page, missing) => !page.at(-1)!.is_recent && missing.length === 0,
    });
    // What was lost, or written down of a relay from before, while it was looked for: then all of it is done again.
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    const now = await lookAtOutbound(redis, stream);
    if (suspicionOf(seenOf(row!), now) !== undefined) return;
    const values = [stream, ...valuesOf(now), clock!.now, suspect.suspect_since];
    const [cleared] = await query(db, CLEAR_OUTBOUND, values);
    if (cleared) log.warn({ stream, restored }, 'lost outcomes are relayed again');
  }
}

/** Unless a relay has moved it on since it was loaded: $8 its last entry as it was loaded; null for a new row. */
const SAVE_SEEN = savingOf('save_seen_outcome_stream', 'old.last_entry_id = $8');

/**
 * The next older rows that were relayed. $1 and $2 the last one of the page before, $3 when the stream was last seen
 * whole, $4 rows at most, $5 from when on they are wanted.
 */
const LIST_RELAYED = {
  name: 'list_relayed_outcomes',
  text: `
    SELECT outcome_id::text AS id, relayed_at::text, entry_id,
           relayed_at >= $3::timestamptz - interval '1 minute' AS is_recent
      FROM notification.outcomes AS outcome
     WHERE relayed_at <= $1::timestamptz AND relayed_at >= $5::timestamptz
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
