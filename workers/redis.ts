/**
 * Connections to Redis. When its password or a certificate changes, or the server is not the master any more, as its answers or
 * the sentinels say, a new main connection takes the place of the old one, which ends after its last answer. Those for blocking
 * commands are disconnected then.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { RedisOptions as AnyRedisOptions } from 'ioredis';
import { isOfLostRole, reasonOf } from '../activities/reason.ts';
import type { Config } from '../config/load.ts';
import type { RedisAddress, RedisSentinels } from '../config/variables.ts';
import {
  NO_CLUSTER,
  isCluster,
  nameOfPlace,
  reasonsOf,
  redisConnection,
  sentinelConnection,
  variableOf,
} from '../config/redis.ts';
import type { ProcessContext } from './context.ts';
import { reach, Replaceable } from './context.ts';

/** Replies keep the form that the service reads. */
type RedisOptions = Omit<AnyRedisOptions, 'replyMapping'>;

/** Between two looks at where the address leads while the server there takes no writes, ms. */
const LOOK_EVERY_MS = 1_000;
const GIVE_UP_LOOKING_MS = 30_000;

/** Channel on which a sentinel announces a new master. */
const SWITCHES = '+switch-master';
/** Without a word from the system for as long, ms, a listener asks whether its sentinel is still there. */
const KEEP_ALIVE_MS = 10_000;

/** Remembers its scripts: a connection that takes its place needs them too. */
class ScriptedRedis extends Redis {
  readonly commands: Parameters<Redis['defineCommand']>[] = [];

  override defineCommand(...command: Parameters<Redis['defineCommand']>): void {
    this.commands.push(command);
    super.defineCommand(...command);
  }
}

export interface RedisConnections {
  /** For everything but blocking commands. */
  redis: Redis;
  /**
   * Opens a connection for blocking commands. It does not reconnect, and ends when the main one is replaced: its user opens
   * another one. It breaks when Redis is silent for longer than a command and a time-out; the system would take a quarter of an
   * hour to notice.
   *
   * @param blockMs of one command.
   */
  openReader(blockMs: number): Redis;
}

/** @throws DependencyError when Redis does not answer. */
export async function connectRedis(context: ProcessContext): Promise<RedisConnections> {
  const { endpoints, log, open, renewable } = context;
  const place = endpoints.redis;
  let config = context.config;
  const readers = new Set<Redis>();
  const main = new Replaceable(makeMain(config));
  /** On its way to where the address leads now. */
  let candidate: ScriptedRedis | undefined;
  let lookAgainAt = 0;
  const closing = new AbortController();
  /** What told of another master last: an answer of the server, or the word of a sentinel. */
  let latestSign: object | undefined;
  let listeners: Redis[] = [];
  open.add('Redis', () => {
    closing.abort();
    for (const redis of [...listeners, ...readers, main.current, candidate]) redis?.disconnect();
  });
  await reach(nameOfPlace(place), variableOf(place), () => connected(main.current).then(refuseCluster));
  listen();
  renewable.push({ what: 'Redis', variables: ['NOTIFICATION_REDIS_'], renew });
  return { redis: main.facade, openReader };

  function makeMain(secrets: Config): ScriptedRedis {
    const timeout = config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
    let wasReady = false;
    const redis = new ScriptedRedis({
      ...commonOptions(context, secrets),
      commandTimeout: timeout,
      // A connection that has gone dead without a word is replaced; the system would take a quarter of an hour to notice.
      socketTimeout: timeout,
      retryStrategy: retryDelay,
      // Before its first use, an unknown master is an error for the caller; later on the client waits for a sentinel that knows one.
      ...('sentinels' in place
        ? { sentinelRetryStrategy: (attempt: number) => (wasReady ? retryDelay(attempt) : null) }
        : {}),
      reconnectOnError: (error) => {
        const isNew = !candidate && main.current === redis && performance.now() >= lookAgainAt;
        if (isNew && isOfLostRole(error))
          void followMaster(
            { reason: reasonOf(error) },
            'Redis takes no writes, connecting to where its address leads',
          );
        return false;
      },
    });
    redis.once('ready', () => (wasReady = true));
    redis.on('error', (error: Error) => log.warn({ reason: reasonOf(error) }, 'Redis connection failed'));
    return redis;
  }

  function openReader(blockMs: number): Redis {
    const reader = new Redis({
      ...commonOptions(context, config),
      socketTimeout: blockMs + config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
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

  async function renew(next: Config): Promise<void> {
    const fresh = await connected(makeMain(next));
    config = next;
    listen();
    replaceMain(fresh);
  }

  function replaceMain(next: ScriptedRedis): void {
    for (const command of main.current.commands) next.defineCommand(...command);
    const before = main.replace(next);
    // Behind everything that it was asked; one that is broken already has nothing to answer.
    void before.quit().catch(() => before.disconnect());
    for (const reader of readers) reader.disconnect();
  }

  /**
   * The address may lead to another server by now, or the sentinels have cut the old master off: it may still take writes, which are
   * lost then. Its connection stays until one to the present master is open: its refusals prove that nothing was done. A command on
   * a connection that ends may have been done or not.
   */
  async function followMaster(sign: object, message: string): Promise<void> {
    latestSign = sign;
    log.warn(sign, message);
    // Until a connection is open that was asked for after this: a sentinel that did not know it yet may have sent others back.
    while (latestSign === sign && !closing.signal.aborted) {
      if (!candidate && (await reconnect(main.current))) return;
      await sleep(LOOK_EVERY_MS, undefined, { ref: false });
    }
  }

  /** @returns whether another connection has taken the place of this one. */
  async function reconnect(server: ScriptedRedis): Promise<boolean> {
    lookAgainAt = performance.now() + LOOK_EVERY_MS;
    const looking = makeMain(config);
    candidate = looking;
    // One that loads its data may take any time, and the address may lead elsewhere meanwhile.
    const givingUp = setTimeout(() => looking.disconnect(), GIVE_UP_LOOKING_MS);
    try {
      await connected(looking);
      // Its password or a certificate may have been renewed meanwhile.
      if (main.current === server) replaceMain(looking);
      else looking.disconnect();
      return true;
    } catch {
      // Its 'error' event is logged.
      return false;
    } finally {
      clearTimeout(givingUp);
      candidate = undefined;
    }
  }

  /** Hears from the sentinels that another server is the master, also while the old one still answers. */
  function listen(): void {
    for (const listener of listeners) listener.disconnect();
    listeners = 'sentinels' in place ? place.sentinels.map((sentinel) => listenTo(sentinel, place)) : [];
  }

  function listenTo(address: RedisAddress, { master }: RedisSentinels): Redis {
    const listener = new Redis({
      ...sentinelConnection(config, address),
      connectTimeout: config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT,
      keepAlive: KEEP_ALIVE_MS,
      // A sentinel that restarts, or whose password changes, is listened to again.
      retryStrategy: retryDelay,
      maxRetriesPerRequest: null,
      // What it would ask for is about a server's data.
      enableReadyCheck: false,
    });
    const sentinel = `${address.host}:${address.port}`;
    const note = (error: unknown) =>
      log.debug({ sentinel, reason: reasonOf(error) }, 'a sentinel is not listened to');
    listener.on('error', note);
    listener.on('message', (_, message: string) => {
      const [name, fromHost, fromPort, toHost, toPort] = message.split(' ');
      const change = { from: `${fromHost}:${fromPort}`, to: `${toHost}:${toPort}` };
      if (name === master)
        void followMaster(change, 'sentinels have made another Redis the master, connecting to it');
    });
    // Fails when it is stopped, or its rights do not suffice; the next connection does not ask again.
    listener.subscribe(SWITCHES).catch(note);
    return listener;
  }
}

/** @throws Error for {@link reach} to explain. */
export async function refuseCluster(redis: Pick<Redis, 'info'>): Promise<void> {
  if (isCluster(await redis.info('cluster'))) throw new Error(NO_CLUSTER);
}

/** @throws the client's error when Redis does not take the connection, which is not left open then. */
async function connected(redis: ScriptedRedis): Promise<ScriptedRedis> {
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

function commonOptions({ config: { values }, endpoints }: ProcessContext, secrets: Config): RedisOptions {
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

/** Ms. */
const retryDelay = (attempt: number): number => Math.min(50 * attempt, 1_000);
