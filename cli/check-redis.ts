/** What can be wrong with Redis. */
import type { Redis } from 'ioredis';
import { NO_CLUSTER } from '../api/redis-cluster.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';

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
  const info = await infoOf(redis);
  const name = info['valkey_version']
    ? `Valkey ${info['valkey_version']}`
    : `version ${info['redis_version']}`;
  const detail = `${name}, ping ${pingMs} ms`;
  if (Number(info['redis_version']?.split('.')[0]) < 7) return error(detail, 'Redis 7 or later is needed');
  if (info['cluster_enabled'] === '1') return error(detail, NO_CLUSTER);
  if (info['role'] !== 'master')
    return error(`${detail}, a replica`, 'point NOTIFICATION_REDIS_MASTER_ADDR at the master');
  return pingMs > SLOW_PING_MS
    ? warn(detail, 'each hand-off costs several round trips: is it far away?')
    : ok(detail);
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
  return limit > 0 && Number(info['used_memory']) > 0.9 * limit
    ? warn(
        `noeviction${used}`,
        'at 100 % Redis takes no intents any more: raise maxmemory, or trim the mail stream',
      )
    : ok(`noeviction${used}`);
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
  const text = await redis.info();
  return Object.fromEntries(
    text.split('\r\n').flatMap((line) => {
      const at = line.indexOf(':');
      return at < 1 ? [] : [[line.slice(0, at), line.slice(at + 1)]];
    }),
  );
}
