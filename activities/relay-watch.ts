/**
 * The watch over a stream that an outbox is relayed to. A Redis that was restarted, switched or restored may have lost
 * entries that it had acknowledged. Rows whose entry is gone are put back to those that wait, and relayed again with the
 * same ids.
 */
import type { OutboundRow } from './outbound-state.ts';
import {
  CLEAR_OUTBOUND,
  LOAD_OUTBOUND,
  SAVE_OUTBOUND,
  SUSPECT_OUTBOUND,
  lookAtOutbound,
  missingIn,
  seenOf,
  suspicionOf,
  valuesOf,
  wantedFromOf,
} from './outbound-state.ts';
import { query } from './postgres.ts';
import type { Outbox, RelayResources } from './relay.ts';
import { relay } from './relay.ts';
import { watchEvery } from './watch.ts';

const LOOK_INTERVAL_MS = 2_000;
/** Rows that are looked for together. */
const PAGE_SIZE = 500;

interface RelayWatch extends RelayResources {
  outbox: Outbox;
  /** Until every relay from before a suspicion has its rows written, ms. */
  settlingMs: number;
}

interface RelayedRow {
  id: string;
  relayed_at: string;
  entry_id: string | null;
}

/** Looks at the stream for as long as the process runs; any number of processes may. */
export function watchRelayed(resources: RelayWatch): { stop(): Promise<void> } {
  const { db, redis, log, outbox, settlingMs } = resources;
  const { stream, what } = outbox;
  return watchEvery(LOOK_INTERVAL_MS, look, (reason) =>
    log.warn({ stream, reason }, `stream of ${what} not looked at`),
  );

  async function look(): Promise<void> {
    // Before the stream: what is relayed between the two looks has not been seen by either then.
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream]);
    const now = await lookAtOutbound(redis, stream);
    if (row?.suspect_since) return restore(row);
    const values = valuesOf(now);
    if (row && valuesOf(seenOf(row)).join(' ') === values.join(' ')) return;
    const suspicion = row && suspicionOf(seenOf(row), now);
    if (suspicion === undefined) {
      await query(db, SAVE_OUTBOUND, [stream, ...values]);
      return;
    }
    const [isNew] = await query(db, SUSPECT_OUTBOUND, [stream, suspicion]);
    if (isNew)
      log.warn({ stream, reason: suspicion }, `stream of ${what} may have lost some, they are checked`);
  }

  /** Two processes that do this find the same; a row that was put back by one is not there for the other. */
  async function restore(suspect: OutboundRow): Promise<void> {
    const [clock] = await query<{ now: string; is_settled: boolean }>(db, READ_SETTLED, [
      suspect.suspect_since,
      settlingMs,
    ]);
    if (!clock!.is_settled) return;
    const begunWith = await lookAtOutbound(redis, stream);
    const wantedFrom = wantedFromOf(seenOf(suspect), begunWith);
    let restored = 0;
    let before = { relayed_at: 'infinity', id: '0' };
    for (let goesOn = true; goesOn;) {
      const page = await query<RelayedRow>(db, outbox.listRelayed, [
        ...[before.relayed_at, before.id, suspect.seen_at],
        PAGE_SIZE,
      ]);
      const { missing } = await missingIn(redis, stream, wantedFrom, page);
      const put = await query(db, outbox.putBack, [
        missing.map(({ id }) => id),
        missing.map(({ entry_id }) => entry_id),
      ]);
      restored += put.length;
      before = page.at(-1) ?? before;
      goesOn = page.length === PAGE_SIZE;
    }
    await relay(resources, outbox, { isMending: true });
    await query(db, CLEAR_OUTBOUND, [stream, ...valuesOf(begunWith), clock!.now, suspect.suspect_since]);
    log.warn({ stream, restored }, `lost ${what} are relayed again`);
  }
}

/** $1 since when it is suspected, $2 how long ago that must be, ms. */
const READ_SETTLED = {
  name: 'read_settled',
  text: `
    SELECT clock_timestamp()::text AS now,
           $1::timestamptz < clock_timestamp() - $2::int * interval '1 millisecond' AS is_settled`,
};
