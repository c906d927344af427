/**
 * What producers are told about their intents. The transaction that makes something true writes it into the outbox, too:
 * functions and triggers of the database do (migrations/0001-intent.sql). A relay brings the rows to their stream.
 */
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { OutcomeKind, OutcomeRow } from '../../api/intent/outcome.ts';
import { TERMINAL_OUTCOMES, fieldsOfOutcome } from '../../api/intent/outcome.ts';
import { watchEvery } from '../../api/watch.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import { relayedTable } from '../relay.ts';

const SAVE_INTERVAL_MS = 10_000;

/**
 * Has the database tell these kinds, and ends always; or nothing at all. They are saved again and again: a database that
 * falls back has others.
 *
 * @returns when they are saved for the first time. @throws what PostgreSQL fails with.
 */
export async function keepTelling(
  { db, log }: { db: Pool; log: Logger },
  kinds: readonly OutcomeKind[],
): Promise<{ stop(): Promise<void> }> {
  const told = kinds.length === 0 ? [] : [...new Set([...TERMINAL_OUTCOMES, ...kinds])];
  const save = async () => void (await query(db, SAVE_OUTCOMES, [told]));
  await save();
  return watchEvery(SAVE_INTERVAL_MS, save, (error) =>
    log.warn({ reason: reasonOf(error) }, 'kinds of outcomes are not saved'),
  );
}

const SAVE_OUTCOMES = {
  name: 'save_told_outcomes',
  text: 'UPDATE notification.installation SET outcomes = $1::text[] WHERE outcomes <> $1::text[]',
};

/** The outbox of outcomes. */
export const OUTCOMES = relayedTable<{ events: OutcomeRow[]; written_at: Date }>({
  name: 'outcomes',
  table: 'notification.outcomes',
  key: 'outcome_id',
  columns: 'events, written_at',
  size: 'event_count',
  lock: 4207716002,
  entriesOf: ({ events, written_at }) => events.map((event) => fieldsOfOutcome(event, written_at.getTime())),
});
