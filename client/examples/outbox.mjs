/**
 * Writes an intent in a transaction, brings it to the stream, and prints where it stands.
 *
 *   node outbox.mjs postgres://shop@127.0.0.1/shop redis://127.0.0.1:6379 user-1 [idempotency key]
 */
import { Redis } from 'ioredis';
import pg from 'pg';
import { newGameTurnReady } from 'galaxy-notify';
import { outboxStatus, publishToOutbox, readOutboxSql, relayOnce } from 'galaxy-notify/outbox';

const [dsn, url = 'redis://127.0.0.1:6379', userId = 'user-1', key = `example/${Date.now()}`] =
  process.argv.slice(2);
const db = new pg.Pool({ connectionString: dsn });
const redis = new Redis(url, { maxRetriesPerRequest: 1 });
redis.on('error', () => undefined);
try {
  // Once, and again after an update of the client: a migration of your own may do the same.
  await db.query(await readOutboxSql());

  const client = await db.connect();
  try {
    await client.query('BEGIN');
    // … the business change …
    await publishToOutbox(
      client,
      newGameTurnReady({
        idempotencyKey: key,
        recipientUserIds: [userId],
        occurredAt: new Date('2026-11-22T12:00Z'),
        payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
      }),
    );
    await client.query('COMMIT');
  } finally {
    client.release();
  }

  // In a service: startOutboxRelay, or galaxy-notify outbox relay beside it.
  await relayOnce({ db, redis });
  console.log((await outboxStatus(db)).counts);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  redis.disconnect();
  await db.end();
}
