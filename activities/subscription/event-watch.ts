/**
 * The watch over the stream of events. A Redis that was restarted, switched or restored may have lost events that it had
 * acknowledged. Those whose entry is gone are put back to the ones that wait, and relayed again with the same `event_id`.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { OutboundLook, OutboundRow, SettlingClock } from '../outbound-state.ts';
import {
  CLEAR_OUTBOUND,
  LOAD_OUTBOUND,
  READ_SETTLED,
  SAVE_OUTBOUND,
  SUSPECT_OUTBOUND,
  databaseOf,
  lookAtOutbound,
  seenOf,
  suspectValues,
  suspicionOf,
  valuesOf,
} from '../outbound-state.ts';
import { query } from '../postgres.ts';
import { putBackLost } from '../relayed-rows.ts';
import { watchEvery } from '../watch.ts';
import type { EventResources } from './events.ts';
import { EVENTS_STREAM } from '../../api/stream-ids.ts';
import { relayEvents } from './events.ts';

const LOOK_INTERVAL_MS = 2_000;

interface EventWatchResources extends EventResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  /** Until every relay from before a suspicion has its rows written, ms. */
  settlingMs: number;
}

/** Looks at the stream for as long as the process runs; any number of processes may. */
export function watchEvents(resources: EventWatchResources): { stop(): Promise<void> } {
  const { db, redis, log, settlingMs } = resources;
  const stream = EVENTS_STREAM;
  /** As its row says that it was last seen whole. */
  let saved = '';
  return watchEvery(LOOK_INTERVAL_MS, look, (reason) =>
    log.warn({ stream, reason }, 'stream of events not looked at'),
  );

  async function look(): Promise<void> {
    const now = await lookAtOutbound(redis, stream);
    const values = valuesOf(now);
    if (saved === values.join(' ')) return;
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    const suspicion = row && suspicionOf(seenOf(row), now);
    if (suspicion === undefined) {
      if (row?.suspect_since) return restore(row, now);
      await query(db, SAVE_OUTBOUND, [stream, ...values]);
      saved = values.join(' ');
      return;
    }
    saved = '';
    const [isNew] = await query(db, SUSPECT_OUTBOUND, suspectValues(stream, row!, now, suspicion));
    if (isNew)
      log.warn({ stream, reason: suspicion }, 'stream of events may have lost some, they are checked');
  }

  async function restore(suspect: OutboundRow, begunWith: OutboundLook): Promise<void> {
    const [clock] = await query<SettlingClock>(db, READ_SETTLED, [suspect.suspect_since, settlingMs]);
    if (clock!.settles_in_ms > 0) return;
    const restored = await putBackLost(resources, {
      ...{ stream, suspect, list: LIST_RELAYED, putBack: PUT_BACK },
    });
    await relayEvents(resources);
    await query(db, CLEAR_OUTBOUND, [stream, ...valuesOf(begunWith), clock!.now, suspect.suspect_since]);
    log.warn({ stream, restored }, 'lost subscription events are relayed again');
  }
}

/**
 * The next older events that were relayed. $1 and $2 the last one of the page before, $3 when the stream was last seen
 * whole, $4 rows at most, $5 from when on they are wanted.
 */
const LIST_RELAYED = {
  name: 'list_relayed_subscription_events',
  text: `
    SELECT event_id::text AS id, relayed_at::text, entry_id
      FROM subscriptions.events AS event
     WHERE relayed_at <= $1::timestamptz AND relayed_at >= greatest($5::timestamptz, $3::timestamptz - interval '1 day')
       AND (relayed_at, event_id) < ($1::timestamptz, $2::bigint)
     ORDER BY event.relayed_at DESC, event.event_id DESC
     LIMIT $4`,
};

/** $1 events, $2 the entries as which they were relayed. */
const PUT_BACK = {
  name: 'put_back_subscription_events',
  text: `
    UPDATE subscriptions.events AS event
       SET relayed_at = NULL, entry_id = NULL
      FROM unnest($1::bigint[], $2::text[]) AS lost (event_id, entry_id)
     WHERE event.event_id = lost.event_id AND event.entry_id = lost.entry_id
    RETURNING 1`,
};
