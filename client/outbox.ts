/**
 * The outbox for producers: an intent is written in the transaction of the business change, and a relay brings it to the
 * service. What the transaction rolls back is never told; what it commits is told, also when Redis loses everything.
 *
 * ```ts
 * await client.query('BEGIN');
 * await client.query('UPDATE games SET turn = 54 WHERE id = $1', ['game-7']);
 * await publishToOutbox(client, newGameTurnReady({ … }));
 * await client.query('COMMIT');
 *
 * const relay = await startOutboxRelay({ db, redis }); // in one process or several; or galaxy-notify outbox relay
 * ```
 */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { envelopeOf } from '../api/intent/entry.ts';
import type { NotificationIntent } from './notificationintent.ts';

export { startOutboxRelay, relayOnce } from './intent/outbox-relay.ts';
export type { OutboxCounts, OutboxLog, OutboxRelay, OutboxRelayOptions } from './intent/outbox-relay.ts';
export { OutboxUnusableError, outboxStatus } from './intent/outbox-rows.ts';
export type { OutboxState, OutboxStatus } from './intent/outbox-rows.ts';

/** The part of a client of PostgreSQL that writing needs; those of `pg` have it. */
export interface OutboxWriter {
  query(text: string, values: unknown[]): Promise<{ rows: { id: string }[] }>;
}

/**
 * Writes an intent into the outbox, in the transaction that the client is in.
 *
 * @returns the number of the row. @throws what PostgreSQL fails with; the transaction is then to be rolled back.
 */
export async function publishToOutbox(client: OutboxWriter, intent: NotificationIntent): Promise<string> {
  const { rows } = await client.query('SELECT notification_outbox.publish($1::jsonb) AS id', [
    JSON.stringify(envelopeOf(intent)),
  ]);
  return String(rows[0]!.id);
}

/** @returns the text of outbox.sql, which makes the outbox in a producer's database or brings it up to date. */
export function readOutboxSql(): Promise<string> {
  return readFile(fileURLToPath(new URL('outbox.sql', import.meta.url)), 'utf8');
}
