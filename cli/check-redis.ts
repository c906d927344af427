/** What can be wrong with Redis and the three streams. */
import type { Redis } from 'ioredis';
import { durationOf } from './output.ts';
import type { Check, CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, warn } from './checks.ts';
import { STREAM_START, compareEntryIds, loadOffset } from '../api/intent/stream.ts';

/** An entry that waits longer says that nobody reads, ms. */
const LATE_MS = 60_000;
const SLOW_PING_MS = 100;
/** Trimming is approximate: Redis removes whole nodes of about a hundred entries. */
const TRIMMING_SLACK = 1_000;

export interface RedisSettings {
  intentsStream: string;
  gatewayStream: string;
  gatewayMaxLen: number;
  mailStream: string;
}

export function redisChecks(redis: Redis, settings: RedisSettings, reach: () => Promise<void>): CheckGroup {
  return [
    ['Redis', () => answers(redis, reach)],
    ['Redis: eviction', () => eviction(redis)],
    ['Redis: persistence', () => persistence(redis)],
    ['intents stream', () => intents(redis, settings.intentsStream)],
    outbound(redis, settings.gatewayStream, 'gateway stream', settings.gatewayMaxLen),
    outbound(redis, settings.mailStream, 'mail stream'),
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

async function intents(redis: Redis, stream: string): Promise<Diagnosis> {
  const [type, offset] = await Promise.all([redis.type(stream), loadOffset(redis, stream)]);
  if (type === 'none') {
    return offset === STREAM_START
      ? ok(`${stream} does not exist yet, nothing was ever read`)
      : error(`${stream} is gone, and was read up to ${offset}`, 'Redis lost data: see bridge status');
  }
  if (type !== 'stream')
    return error(`${stream} holds a ${type}`, 'rename that key: the reader needs a stream');
  const [newest] = await redis.xrevrange(stream, '+', '-', 'COUNT', 1);
  const [oldestUnread] = await redis.xrange(stream, `(${offset}`, '+', 'COUNT', 1);
  if (newest && compareEntryIds(offset, newest[0]) > 0 && !oldestUnread) {
    return error(
      `the offset ${offset} is beyond the newest entry ${newest[0]}`,
      'Redis lost data: see bridge status',
    );
  }
  if (!oldestUnread) return ok(`all read, offset ${offset}`);
  const ageMs = Math.max(0, Date.now() - Number(oldestUnread[0].split('-')[0]));
  const detail = `behind by ${durationOf(ageMs)}, offset ${offset}`;
  return ageMs > LATE_MS ? warn(detail, 'nobody reads, or not fast enough: see bridge status') : ok(detail);
}

function outbound(redis: Redis, stream: string, name: string, maxLen?: number): Check {
  return [
    name,
    async () => {
      const type = await redis.type(stream);
      if (type === 'none') return ok(`${stream} does not exist yet, nothing was handed off`);
      if (type !== 'stream') {
        return error(`${stream} holds a ${type}`, 'rename that key: every hand-off fails, and routes die');
      }
      const length = await redis.xlen(stream);
      const detail = `${length} entries${maxLen === undefined ? '' : `, trimmed to about ${maxLen}`}`;
      return maxLen !== undefined && length > maxLen + TRIMMING_SLACK
        ? warn(detail, 'somebody appends without trimming, or the limit was lowered: the next hand-off trims')
        : ok(detail);
    },
  ];
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
