/**
 * Connections to Redis. The client connects again by itself: when its connection breaks, when the server is not the master any
 * more, as its answers or the sentinels say, and when its password or a certificate changes. A command on a connection that ends
 * may have been done or not. Connections for blocking commands end with the main one.
 */
import { Redis } from 'ioredis';
import { isOfLostRole, reasonOf } from '../activities/reason.ts';
import type { Config } from '../config/load.ts';
import {
  NO_CLUSTER,
  isCluster,
  nameOfPlace,
  reasonsOf,
  redisConnection,
  variableOf,
} from '../config/redis.ts';
import type { ProcessContext } from './context.ts';
import { reach } from './context.ts';

/** Between two looks at where the address leads while the server there takes no writes, ms. */
const LOOK_EVERY_MS = 1_000;

export type RedisConnections = Awaited<ReturnType<typeof connectRedis>>;

/** @returns `redis` for everything but blocking commands. @throws DependencyError when Redis does not answer. */
export async function connectRedis(context: ProcessContext) {
  const { config, endpoints, log, open, renewable } = context;
  const { NOTIFICATION_REDIS_DB: db, NOTIFICATION_REDIS_OPERATION_TIMEOUT: timeout } = config.values;
  const place = endpoints.redis;
  const common = {
    db,
    connectTimeout: timeout,
    lazyConnect: true,
    // Commands fail immediately while Redis is away: a publication that waits in a queue would be sent after its
    // attempt was counted as failed.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
  };
  let access = redisConnection(config, place);
  const readers = new Set<Redis>();
  let isOpen = false;
  let lookAgainAt = 0;
  const ofMain = {
    // Before its first use, an unknown master is an error for the caller; later on the client waits for a sentinel that knows one.
    sentinelRetryStrategy: (attempt: number) => (isOpen ? retryDelay(attempt) : null),
    // Hears from the sentinels that another server is the master, also while the old one still answers.
    failoverDetector: true,
    sentinelReconnectStrategy: retryDelay,
  };
  const redis = new Redis({
    ...{ ...access, ...common, ...ofMain },
    commandTimeout: timeout,
    // A connection that has gone dead without a word is replaced; the system would take a quarter of an hour to notice.
    socketTimeout: timeout,
    retryStrategy: retryDelay,
    // The address may lead to another server by now.
    reconnectOnError(error) {
      if (!isOfLostRole(error) || performance.now() < lookAgainAt) return false;
      lookAgainAt = performance.now() + LOOK_EVERY_MS;
      log.warn({ reason: reasonOf(error) }, 'Redis takes no writes, connecting to where its address leads');
      return true;
    },
  });
  redis.on('error', (error: Error) => log.warn({ reason: reasonOf(error) }, 'Redis connection failed'));
  redis.on('close', endReaders);
  open.add('Redis', () => {
    redis.disconnect();
    endReaders();
  });
  await reach(nameOfPlace(place), variableOf(place), () => connected(redis).then(refuseCluster));
  isOpen = true;
  renewable.push({ what: 'Redis', variables: ['NOTIFICATION_REDIS_'], renew });
  return { redis, openReader };

  /**
   * Opens a connection for blocking commands. It does not reconnect, and ends with the main one: its user opens another one. It
   * breaks when Redis is silent for longer than a command and a time-out; the system would take a quarter of an hour to notice.
   *
   * @param blockMs of one command.
   */
  function openReader(blockMs: number): Redis {
    const reader = new Redis({
      ...{ ...access, ...common },
      socketTimeout: blockMs + timeout,
      enableOfflineQueue: true,
      retryStrategy: () => null,
    });
    reader.on('error', (error: Error) =>
      log.warn({ reason: reasonOf(error) }, 'blocking connection to Redis failed'),
    );
    reader.once('end', () => readers.delete(reader));
    readers.add(reader);
    return reader;
  }

  function endReaders(): void {
    for (const reader of readers) reader.disconnect();
  }

  /** Connects again with the new password and certificates, if Redis takes them. */
  async function renew(next: Config): Promise<void> {
    const fresh = redisConnection(next, place);
    (await connected(new Redis({ ...fresh, ...common }))).disconnect();
    access = fresh;
    Object.assign(redis.options, fresh, ofMain);
    redis.disconnect(true);
  }
}

/** @throws Error for {@link reach} to explain. */
export async function refuseCluster(redis: Pick<Redis, 'info'>): Promise<void> {
  if (isCluster(await redis.info('cluster'))) throw new Error(NO_CLUSTER);
}

/** @throws the client's error when Redis does not take the connection, which is not left open then. */
async function connected(redis: Redis): Promise<Redis> {
  const reason = reasonsOf(redis);
  try {
    await redis.connect();
    await redis.ping();
    return redis;
  } catch (error) {
    redis.disconnect();
    throw reason() ?? error;
  }
}

/** Ms. */
const retryDelay = (attempt: number): number => Math.min(50 * attempt, 1_000);
