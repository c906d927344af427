/**
 * Prints what becomes of intents, one line an event, until it is interrupted.
 *
 *   node outcomes.mjs redis://127.0.0.1:6379 [group]
 */
import { Redis } from 'ioredis';
import { readOutcomes } from 'galaxy-notify/outcomes';

const [url = 'redis://127.0.0.1:6379', group = 'example'] = process.argv.slice(2);
const redis = new Redis(url, { maxRetriesPerRequest: 1 });
redis.on('error', () => undefined);
const signal = { aborted: false };
process.once('SIGINT', () => (signal.aborted = true));
try {
  for await (const outcome of readOutcomes(redis, { group, consumer: 'example', signal })) {
    console.log(JSON.stringify(outcome));
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  redis.disconnect();
}
