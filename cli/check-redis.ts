/** What can be wrong with Redis and its sentinels. */
import { Redis } from 'ioredis';
import { fieldsOf } from '../api/stream-ids.ts';
import { causeOf } from '../client/errors.ts';
import type { Config } from '../config/load.ts';
import type { redisConnection } from '../config/redis.ts';
import { NO_CLUSTER, reasonsOf, redisPlaceOf, sentinelConnection } from '../config/redis.ts';
import type { RedisAddress, RedisSentinels } from '../config/values.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn, warnIf } from './checks.ts';

const SLOW_PING_MS = 100;

export function redisChecks(redis: Redis, reach: () => Promise<void>, minReplicas: number): CheckGroup {
  return [
    ['Redis', () => answers(redis, reach)],
    ['Redis: eviction', () => eviction(redis)],
    ['Redis: persistence', () => persistence(redis)],
    ['Redis: replicas', () => replicas(redis, minReplicas)],
  ];
}

async function answers(redis: Redis, reach: () => Promise<void>): Promise<Diagnosis> {
  // The first command also connects.
  await reach();
  const pingMs = Math.min(await timed(redis), await timed(redis), await timed(redis));
  const { valkey_version: valkey, redis_version: version = '', role, ...info } = await infoOf(redis);
  const detail = `${valkey ? `Valkey ${valkey}` : `version ${version}`}, ping ${pingMs} ms`;
  if (Number.parseInt(version) < 7) return error(detail, 'Redis 7 or later is needed');
  if (info['cluster_enabled'] === '1') return error(detail, NO_CLUSTER);
  if (role !== 'master')
    return error(`${detail}, a replica`, 'point NOTIFICATION_REDIS_MASTER_ADDR at the master');
  return warnIf(pingMs > SLOW_PING_MS, detail, 'each hand-off costs several round trips: is it far away?');
}

/** Round trip in ms. The quickest of a few tells the distance; the others what else this process was doing. */
async function timed(redis: Redis): Promise<number> {
  const began = performance.now();
  await redis.ping();
  return Math.round((performance.now() - began) * 10) / 10;
}

async function eviction(redis: Redis): Promise<Diagnosis> {
  const info = await infoOf(redis);
  const policy = info['maxmemory_policy'] ?? 'unknown';
  const limit = Number(info['maxmemory'] ?? 0);
  const used =
    limit > 0 ? `, ${Math.round((100 * Number(info['used_memory'])) / limit)} % of maxmemory used` : '';
  if (policy !== 'noeviction') {
    return error(
      `maxmemory-policy ${policy}${used}`,
      'set maxmemory-policy noeviction: Redis may drop intents',
    );
  }
  return warnIf(
    limit > 0 && Number(info['used_memory']) > 0.9 * limit,
    `noeviction${used}`,
    'at 100 % Redis takes no intents any more: raise maxmemory, or trim the mail stream',
  );
}

async function persistence(redis: Redis): Promise<Diagnosis> {
  const info = await infoOf(redis);
  if (info['aof_enabled'] !== '1') {
    return warn(
      'appendonly no',
      'set appendonly yes: a crash of Redis loses the intents since its last snapshot',
    );
  }
  return info['aof_last_write_status'] === 'err'
    ? error('the append-only file cannot be written', 'is the disk of Redis full?')
    : ok('appendonly yes');
}

/** Those that follow now. One that is configured and cut off is not among them. */
async function replicas(redis: Redis, minReplicas: number): Promise<Diagnosis> {
  const states = Object.entries(await infoOf(redis)).filter(([name]) => /^slave\d+$/.test(name));
  const online = states.filter(([, state]) => state.includes('state=online')).length;
  if (minReplicas === 0) return ok(`${online} online, none is waited for`);
  const detail = `${online} online, ${minReplicas} must have a hand-off`;
  return online < minReplicas
    ? error(
        detail,
        'routes stay open until replicas follow again, or NOTIFICATION_REDIS_MIN_REPLICAS is lower',
      )
    : ok(detail);
}

/** INFO rather than CONFIG GET, which managed servers refuse. */
async function infoOf(redis: Redis): Promise<Record<string, string>> {
  const lines = (await redis.info()).matchAll(/^(\w+):(.*?)\r?$/gm);
  return Object.fromEntries(Array.from(lines, ([, name, value]) => [name!, value!] as const));
}

interface Answer {
  /** host:port; undefined: it knows no master of that name. */
  master?: string;
  /** What it knows of the master, as it calls it: `flags`, `quorum`, `num-slaves`, `num-other-sentinels`. */
  about: Record<string, string>;
}

/** The sentinels that say where the master of Redis is; none without sentinels. A separate group: while no server answers, only sentinels can be asked. */
export function sentinelChecks(config: Config): CheckGroup[] {
  const place = redisPlaceOf(config.values);
  return place && 'sentinels' in place ? [[['Redis: sentinels', () => sentinels(place, config)]]] : [];
}

/** @throws an Error that says why it does not answer. */
function ask(address: RedisAddress, name: string, config: Config): Promise<Answer> {
  return askOnce(sentinelConnection(config, address), config, async (sentinel) => {
    const found = (await sentinel.call('SENTINEL', 'get-master-addr-by-name', name)) as string[] | null;
    if (!found) return { about: {} };
    const about = fieldsOf((await sentinel.call('SENTINEL', 'master', name)) as string[]);
    return { master: found.join(':'), about };
  }).catch((failure: unknown) => {
    throw new Error(`${address.host}:${address.port}: ${causeOf(failure)}`, { cause: failure });
  });
}

async function sentinels(
  { sentinels: all, master: name }: RedisSentinels,
  config: Config,
): Promise<Diagnosis> {
  const answers = await Promise.allSettled(all.map((address) => ask(address, name, config)));
  const given = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  const silent = answers.flatMap((answer) => (answer.status === 'rejected' ? [answer.reason as Error] : []));
  const masters = [...new Set(given.flatMap(({ master }) => master ?? []))];
  const counted = `${given.length} of ${answers.length} answer`;
  const failures = silent.map(({ message }) => message).join('; ');
  if (given.length === 0) return error(failures, 'is NOTIFICATION_REDIS_SENTINELS right?');
  if (masters.length === 0) {
    return error(
      `${counted}, and know no master ${name}`,
      'NOTIFICATION_REDIS_SENTINELS ends in /name, as SENTINEL MONITOR calls it',
    );
  }
  const { about } = given.find(({ master }) => master !== undefined)!;
  const known = Number(about['num-other-sentinels'] ?? answers.length - 1) + 1;
  const detail = [
    counted,
    `master ${masters.join(' or ')}`,
    `replicas ${about['num-slaves'] ?? 'unknown'}`,
    `quorum ${about['quorum'] ?? 'unknown'} of ${known}`,
    ...(failures === '' ? [] : [failures]),
  ].join(', ');
  if (masters.length > 1)
    return warn(detail, 'they do not agree: a failover goes on, or they were cut apart');
  if (/down/.test(about['flags'] ?? '')) return warn(detail, 'they hold the master for down');
  if (about['num-slaves'] === '0') return warn(detail, 'without a replica there is nothing to fail over to');
  return warnIf(silent.length > 0, detail, 'a failover needs a majority of them: bring the others back');
}

/**
 * Asks a server once, with one attempt to connect.
 *
 * @param server options that lead to it. @throws why it cannot be asked, or does not answer.
 */
export async function askOnce<T>(
  server: ReturnType<typeof redisConnection | typeof sentinelConnection>,
  { values: { NOTIFICATION_REDIS_OPERATION_TIMEOUT: timeoutMs } }: Config,
  question: (redis: Redis) => Promise<T>,
): Promise<T> {
  const redis = new Redis({
    ...server,
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    lazyConnect: true,
    // A server that still loads its data says so in its answer, and a sentinel has none.
    enableReadyCheck: false,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  const reason = reasonsOf(redis);
  return question(redis)
    .catch((error: unknown) => {
      throw reason() ?? error;
    })
    .finally(() => redis.disconnect());
}
