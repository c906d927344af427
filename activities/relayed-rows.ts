/**
 * Rows of an outbox whose entries a stream has lost: they are put back to those that wait, from the newest to older ones.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { OutboundRow } from './outbound-state.ts';
import { missingIn } from './outbound-state.ts';
import type { Statement } from './postgres.ts';
import { query } from './postgres.ts';

/** Rows that are looked for together. */
const PAGE_SIZE = 500;

export interface RelayedRow {
  id: string;
  relayed_at: string;
  entry_id: string | null;
}

interface Loss<Row extends RelayedRow> {
  stream: string;
  suspect: OutboundRow;
  /**
   * Lists the next older rows that were relayed. $1 and $2 time and id of the last one of the page before, $3 when the
   * stream was last seen whole, $4 rows at most, $5 from when on rows are wanted.
   */
  list: Statement;
  /** Puts back and returns what still has its entry: $1 ids, $2 entries. */
  putBack: Statement;
  /** Whether rows older than those of a full page need no look. */
  mayEnd?: (page: readonly Row[], missing: readonly Row[]) => boolean;
  signal?: AbortSignal;
}

/**
 * Two processes that do this find the same; a row that was put back by one is not there for the other.
 *
 * @returns how many were put back. @throws what Redis and PostgreSQL fail with, and the reason of the signal.
 */
export async function putBackLost<Row extends RelayedRow>(
  { db, redis }: { db: Pool; redis: Redis },
  { stream, suspect, list, putBack, mayEnd = () => false, signal }: Loss<Row>,
): Promise<number> {
  let count = 0;
  let before = { relayed_at: 'infinity', id: '0' };
  for (let goesOn = true; goesOn;) {
    signal?.throwIfAborted();
    const page = await query<Row>(db, list, [
      before.relayed_at,
      before.id,
      suspect.seen_at,
      PAGE_SIZE,
      suspect.wanted_since,
    ]);
    const { missing } = await missingIn(redis, stream, suspect, page);
    const put = await query(db, putBack, [
      missing.map(({ id }) => id),
      missing.map(({ entry_id }) => entry_id),
    ]);
    count += put.length;
    before = page.at(-1) ?? before;
    goesOn = page.length === PAGE_SIZE && !mayEnd(page, missing);
  }
  return count;
}
