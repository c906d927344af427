/**
 * Publishes one intent and prints its notification id.
 *
 *   node publish.mjs redis://127.0.0.1:6379 user-1 [idempotency key]
 */
import { Redis } from 'ioredis';
import { InvalidIntentError, newGameTurnReady, publishIntent } from 'galaxy-notify';

const [url = 'redis://127.0.0.1:6379', userId = 'user-1', key = `example/${Date.now()}`] =
  process.argv.slice(2);
// An intent that waits for a server which is away would hold the caller up: fail, and repeat it with the same key.
const redis = new Redis(url, { maxRetriesPerRequest: 1 });
redis.on('error', () => undefined);
try {
  const intent = newGameTurnReady({
    idempotencyKey: key,
    recipientUserIds: [userId],
    // Of the event, so that a repeat has the same.
    occurredAt: new Date('2026-11-22T12:00Z'),
    payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: 54 },
  });
  console.log(await publishIntent(redis, intent));
} catch (error) {
  console.error(error instanceof InvalidIntentError ? `${error.code}: ${error.message}` : error.message);
  process.exitCode = 1;
} finally {
  redis.disconnect();
}
