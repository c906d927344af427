/**
 * `npm run outage`: until Ctrl-C, no push event can be handed off, so that dead letters and their replay can be tried out.
 * It touches the Redis of a running `npm start` alone, never one that is configured.
 */
import { Redis } from 'ioredis';
import { onInterrupt } from '../api/interrupts.ts';
import { loadConfig } from '../config/load.ts';
import { readStackEndpoints } from '../config/operator.ts';

/**
 * Puts something that is not a stream in the place of the stream of push events. E-mail goes on.
 *
 * @returns what puts the stream back; an outage whose program was killed is ended by the next one.
 */
export async function breakPushEvents(redis: Redis, stream: string): Promise<() => Promise<void>> {
  const kept = `${stream}:kept`;
  const isBroken = (await redis.type(stream)) === 'string';
  if (!isBroken && (await redis.exists(stream)) === 1) await redis.rename(stream, kept);
  await redis.set(stream, 'not a stream');
  return async () => {
    await redis.del(stream);
    if ((await redis.exists(kept)) === 1) await redis.rename(kept, stream);
  };
}

async function main(): Promise<void> {
  const { values } = loadConfig();
  const address = readStackEndpoints(values.NOTIFICATION_DATA_DIR)?.redisAddr;
  if (address === undefined) {
    console.error('There is no embedded Redis to break: npm start brings one along.');
    process.exitCode = 1;
    return;
  }
  const redis = new Redis(`redis://${address}`);
  const restore = await breakPushEvents(redis, values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM);
  console.log('No push event can be handed off. Ctrl-C ends the outage.');
  // Signals alone do not keep the process; the connection does.
  await new Promise((resolve) => void onInterrupt(resolve));
  await restore();
  redis.disconnect();
  console.log('\nPush events can be handed off again.');
}

if (import.meta.main) await main();
