/**
 * Connections to Redis. When its password or a certificate changes, a new connection takes the place of each old one,
 * which ends once it has answered what it was asked.
 */
import { Redis } from 'ioredis';
import type { RedisOptions as AnyRedisOptions } from 'ioredis';
import { reasonOf } from '../activities/reason.ts';
import type { Config } from '../config/load.ts';
import { redisConnection } from '../config/service.ts';
import type { ProcessContext } from './context.ts';
import { reach } from './context.ts';
import { Replaceable } from './replaceable.ts';

/** Replies keep the form that the service reads. */
type RedisOptions = Omit<AnyRedisOptions, 'replyMapping'>;

type Command = Parameters<Redis['defineCommand']>;

/** Remembers its scripts: a connection that takes its place needs them too. */
class ScriptedRedis extends Redis {
  #commands: Command[] = [];

  override defineCommand(...command: Command): void {
    this.#commands.push(command);
    super.defineCommand(...command);
  }

  takeOverScripts(from: ScriptedRedis): void {
    for (const command of from.#commands) this.defineCommand(...command);
  }
}

/** How the connections of a process differ. */
type Kind = (config: Config) => RedisOptions;

export interface RedisConnections {
  /** For everything but blocking reads. */
  redis: Redis;
  /**
   * Opens a connection for blocking reads. It does not reconnect: its reader opens another one.
   *
   * @param longestSilenceMs after which it breaks; the system would take a quarter of an hour to notice.
   */
  openReader(longestSilenceMs: number): Redis;
}

/** @throws DependencyError when Redis does not answer. */
export async function connectRedis(context: ProcessContext): Promise<RedisConnections> {
  const { endpoints, log, open, renewable } = context;
  let config = context.config;
  const readers = new Map<Replaceable<ScriptedRedis>, Kind>();
  const first = makeMain(config);
  // What connect() rejects with says only that the connection is closed; the reason comes as an event before it.
  let lastError: Error | undefined;
  first.on('error', (error: Error) => (lastError = error));
  const main = new Replaceable(first);
  open.add('Redis', () => main.current.disconnect());
  const { host, port } = endpoints.redis;
  await reach(`Redis at ${host}:${port}`, 'NOTIFICATION_REDIS_MASTER_ADDR', async () => {
    await first.connect().catch((error: unknown) => {
      throw lastError ?? error;
    });
    await first.ping();
  });
  renewable.push({ what: 'Redis', variables: ['NOTIFICATION_REDIS_'], renew });
  return { redis: main.facade, openReader };

  function makeMain(values: Config): ScriptedRedis {
    const redis = new ScriptedRedis(mainOptions(context, values));
    redis.on('error', (error: Error) => log.warn({ reason: reasonOf(error) }, 'Redis connection failed'));
    return redis;
  }

  function makeReader(options: RedisOptions): ScriptedRedis {
    const reader = new ScriptedRedis(options);
    reader.on('error', (error: Error) => log.warn({ reason: reasonOf(error) }, 'stream reader lost Redis'));
    return reader;
  }

  function openReader(longestSilenceMs: number): Redis {
    const kind = (values: Config) => readerOptions(context, values, longestSilenceMs);
    const reader = new Replaceable(makeReader(kind(config)));
    readers.set(reader, kind);
    reader.current.once('end', () => readers.delete(reader));
    return reader.facade;
  }

  async function renew(next: Config): Promise<void> {
    await replace(main, await connected(makeMain(next)));
    config = next;
    for (const [reader, kind] of readers) {
      const fresh = await connected(makeReader(kind(next)));
      // It may have ended meanwhile, and its owner with it.
      if (!readers.delete(reader)) {
        fresh.disconnect();
        continue;
      }
      await replace(reader, fresh);
      readers.set(reader, kind);
      fresh.once('end', () => readers.delete(reader));
    }
  }
}

/** @throws the client's error when Redis does not take the connection. */
async function connected(redis: ScriptedRedis): Promise<ScriptedRedis> {
  let lastError: Error | undefined;
  redis.on('error', (error: Error) => (lastError = error));
  try {
    await redis.connect();
    await redis.ping();
    return redis;
  } catch (error) {
    redis.disconnect();
    throw lastError ?? error;
  }
}

async function replace(held: Replaceable<ScriptedRedis>, next: ScriptedRedis): Promise<void> {
  next.takeOverScripts(held.current);
  const before = held.replace(next);
  // Behind everything that it was asked; one that is broken already has nothing to answer.
  void before.quit().catch(() => before.disconnect());
}

function commonOptions({ config: { values }, endpoints }: ProcessContext, secrets: Config) {
  return {
    ...redisConnection(secrets, endpoints.redis),
    db: values.NOTIFICATION_REDIS_DB,
    connectTimeout: values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
    lazyConnect: true,
    // Commands fail immediately while Redis is away: a publication that waits in a queue would be sent after its
    // attempt was counted as failed.
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
  };
}

function mainOptions(context: ProcessContext, secrets: Config): RedisOptions {
  const timeout = context.config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  return {
    ...commonOptions(context, secrets),
    commandTimeout: timeout,
    // A connection that has gone dead without a word is replaced; the system would take a quarter of an hour to notice.
    socketTimeout: timeout,
    retryStrategy: (attempt) => Math.min(50 * attempt, 1_000),
    // The address may lead to another server by now. What was asked fails, and its caller asks again.
    reconnectOnError: isOfLostRole,
  };
}

function readerOptions(context: ProcessContext, secrets: Config, longestSilenceMs: number): RedisOptions {
  return {
    ...commonOptions(context, secrets),
    socketTimeout: longestSilenceMs,
    enableOfflineQueue: true,
    retryStrategy: () => null,
  };
}

/**
 * Whether an answer says that this server is not the master any more, or not a usable one: after a switchover that cut no
 * connection, it would go on answering so for ever.
 */
const isOfLostRole = ({ message }: Error): boolean => /^(READONLY|MASTERDOWN|LOADING)\b/.test(message);
