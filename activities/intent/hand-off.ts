/**
 * The one way in which a route leaves this service: a Lua script that checks what was handed off before, takes the
 * route's lease and appends the entry, all in one step.
 *
 * What the script remembers lives in Redis, next to the stream it guards: if Redis loses one it tends to lose both,
 * and a repeated entry then carries the same `event_id` or `delivery_id`, on which consumers deduplicate.
 */
import type { Redis } from 'ioredis';
import type { EntryField } from '../../api/intent/hand-off.ts';
import { keySegment } from '../../api/intent/stream.ts';

/**
 * How long a hand-off is remembered while its route is not settled in PostgreSQL, which may be away for any time; what a
 * process leaves behind that dies right after settling goes in the end. And after it was settled: attempts that began
 * before are too late by then.
 */
const REMEMBER_UNSETTLED_MS = 366 * 24 * 3_600_000;
const REMEMBER_SETTLED_MS = 600_000;
/**
 * An attempt that takes longer appends nothing: what it knows of its row may be older than the memory. Half, so that
 * nothing hangs on a moment.
 */
const LATE_AFTER_MS = REMEMBER_SETTLED_MS / 2;
/** How long an answer of Redis' clock is used again as the beginning of further attempts, ms. */
const CLOCK_REUSE_MS = 5_000;

interface Keys {
  lease: string;
  handOff: string;
}
interface Lease {
  /** Opaque, unique per attempt. */
  token: string;
  ttlMs: number;
}

export type HandOffOutcome =
  /** Appended now, or by an earlier attempt of the same generation. */
  | { outcome: 'handed_off'; entryId: string }
  /** Another attempt holds the route's lease. */
  | { outcome: 'leased'; expiresInMs: number }
  /** An operator cancelled the route before it was handed off; it never will be. */
  | { outcome: 'closed' }
  /** The attempt began too long ago: its row may have been settled, and the memory of that may be gone. */
  | { outcome: 'late' };

/** When an attempt began, before it looked at its rows: ms since the epoch by Redis' clock, or why it does not tell. */
export type Beginning = { atMs: number } | { error: unknown };

/** What the memory holds instead of an entry id when the route was closed; no entry id looks like it. */
const CLOSED = 'closed';

/** Seed "Redis runtime-coordination state". */
export const leaseKey = (notificationId: string, routeId: string): string =>
  `notification:route_leases:${keySegment(notificationId)}:${keySegment(routeId)}`;

/** A replay that starts a new generation of a route hands off again. */
export const handOffKey = (notificationId: string, routeId: string, generation: number): string =>
  `notification:route_hand_offs:${keySegment(notificationId)}:${keySegment(routeId)}:${generation}`;

/**
 * KEYS: hand-off, lease, stream. ARGV: token, lease ms, memory ms, until when the attempt may append (epoch ms), max length
 * or '', field, value, ...
 */
const APPEND = `
  local before = redis.call('GET', KEYS[1])
  if before == 'closed' then return {'closed', ''} end
  if before then return {'handed_off', before} end
  local time = redis.call('TIME')
  if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[4]) then return {'late', ''} end
  if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return {'leased', tostring(redis.call('PTTL', KEYS[2]))}
  end
  local command = {'XADD', KEYS[3]}
  if ARGV[5] ~= '' then
    command[3], command[4], command[5] = 'MAXLEN', '~', ARGV[5]
  end
  command[#command + 1] = '*'
  for i = 6, #ARGV do command[#command + 1] = ARGV[i] end
  local id = redis.pcall(unpack(command))
  if type(id) == 'table' and id.err then
    -- A script is not rolled back: without this, the next attempt would wait for a lease that nobody holds.
    redis.call('DEL', KEYS[2])
    return id
  end
  redis.call('SET', KEYS[1], id, 'PX', ARGV[3])
  return {'handed_off', id}`;

/** KEYS: hand-off. ARGV: memory ms. Returns what is remembered from now on: the entry id, or that it is closed. */
const CLOSE = `
  local before = redis.call('GET', KEYS[1])
  redis.call('SET', KEYS[1], before or 'closed', 'PX', ARGV[1])
  return before or 'closed'`;

/** KEYS: hand-off, lease. ARGV: token, memory ms or '' to leave that as it is. */
const RELEASE = `
  if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end`;

/**
 * KEYS: hand-off, stream. ARGV: the entry as which it was handed off, memory ms, max length or '', field, value, ...
 * What the memory holds may be the entry of a repair that died before it could write the row.
 */
const RESTORE = `
  local function isThere(id) return #redis.call('XRANGE', KEYS[2], id, id) > 0 end
  if isThere(ARGV[1]) then return ARGV[1] end
  local before = redis.call('GET', KEYS[1])
  if before and before ~= 'closed' and isThere(before) then return before end
  local command = {'XADD', KEYS[2]}
  if ARGV[3] ~= '' then
    command[3], command[4], command[5] = 'MAXLEN', '~', ARGV[3]
  end
  command[#command + 1] = '*'
  for i = 4, #ARGV do command[#command + 1] = ARGV[i] end
  local id = redis.call(unpack(command))
  redis.call('SET', KEYS[1], id, 'PX', ARGV[2])
  return id`;

/** The commands that `defineHandOffCommands` adds to a client. */
interface HandOffCommands {
  handOffAppend(...args: (string | Buffer | number)[]): Promise<[HandOffOutcome['outcome'], string]>;
  handOffClose(...args: (string | number)[]): Promise<string>;
  handOffRelease(...args: (string | number)[]): Promise<unknown>;
  handOffRestore(...args: (string | Buffer | number)[]): Promise<string>;
}

/** Registers the scripts with a client; ioredis then sends them by hash and loads them when Redis does not know them. */
export function defineHandOffCommands(redis: Redis): void {
  redis.defineCommand('handOffAppend', { numberOfKeys: 3, lua: APPEND });
  redis.defineCommand('handOffClose', { numberOfKeys: 1, lua: CLOSE });
  redis.defineCommand('handOffRelease', { numberOfKeys: 2, lua: RELEASE });
  redis.defineCommand('handOffRestore', { numberOfKeys: 2, lua: RESTORE });
}

export const handOff = {
  /**
   * Appends an entry to a stream unless this generation of the route was handed off already.
   *
   * @param begun from before the route's row was read.
   * @throws the Redis client's error when Redis did not answer; the entry may then have been appended or not, and the
   * next attempt finds out.
   */
  async append(
    redis: Redis,
    keys: Keys,
    lease: Lease,
    entry: { stream: string; maxLen?: number; fields: EntryField[] },
    begun: Beginning,
  ): Promise<HandOffOutcome> {
    if ('error' in begun) throw begun.error;
    const [outcome, value] = await (redis as unknown as HandOffCommands).handOffAppend(
      keys.handOff,
      keys.lease,
      entry.stream,
      lease.token,
      lease.ttlMs,
      REMEMBER_UNSETTLED_MS,
      begun.atMs + LATE_AFTER_MS,
      entry.maxLen ?? '',
      ...entry.fields.flat(),
    );
    if (outcome === 'leased') return { outcome, expiresInMs: Number(value) };
    return outcome === 'handed_off' ? { outcome, entryId: value } : { outcome };
  },

  /**
   * Makes sure that a generation is never handed off from now on, not even by an attempt that is still running.
   *
   * @returns the entry id when that came too late.
   */
  async close(redis: Redis, handOffKeyOfRoute: string): Promise<string | undefined> {
    const before = await (redis as unknown as HandOffCommands).handOffClose(
      handOffKeyOfRoute,
      REMEMBER_UNSETTLED_MS,
    );
    return before === CLOSED ? undefined : before;
  },

  /** The entry as which a generation was handed off, if it was and Redis still remembers. */
  async entryOf(redis: Redis, handOffKeyOfRoute: string): Promise<string | undefined> {
    const before = await redis.get(handOffKeyOfRoute);
    return before === null || before === CLOSED ? undefined : before;
  },

  /**
   * Appends the entry of a settled route again unless its stream has it.
   *
   * @param entryId as which it was handed off.
   * @returns the entry that the stream has now. @throws what Redis fails with; the next attempt finds out.
   */
  async restore(
    redis: Redis,
    handOffKeyOfRoute: string,
    entryId: string,
    entry: { stream: string; maxLen?: number; fields: EntryField[] },
  ): Promise<string> {
    return (redis as unknown as HandOffCommands).handOffRestore(
      handOffKeyOfRoute,
      entry.stream,
      entryId,
      REMEMBER_SETTLED_MS,
      entry.maxLen ?? '',
      ...entry.fields.flat(),
    );
  },

  /** Ends an attempt: gives the lease back and, if the route is settled, lets the memory of the hand-off fade. */
  async release(redis: Redis, keys: Keys, lease: Lease, isSettled: boolean): Promise<void> {
    await (redis as unknown as HandOffCommands).handOffRelease(
      keys.handOff,
      keys.lease,
      lease.token,
      isSettled ? REMEMBER_SETTLED_MS : '',
    );
  },

  /** Lets what is remembered of settled routes fade. */
  async fade(redis: Redis, handOffKeys: string[]): Promise<void> {
    await Promise.all(handOffKeys.map((key) => redis.pexpire(key, REMEMBER_SETTLED_MS)));
  },
};

/** Redis' clock, as this process has heard of it last. */
export function createRedisClock(redis: Redis) {
  let heard: { atMs: number; at: number } | undefined;
  return {
    /** @returns a time that is not after now, nor long ago; to be had before rows are read. Never throws. */
    async begin(): Promise<Beginning> {
      if (heard && performance.now() - heard.at < CLOCK_REUSE_MS) return heard;
      const at = performance.now();
      try {
        const [seconds, microseconds] = (await redis.time()).map(Number) as [number, number];
        heard = { atMs: seconds * 1_000 + Math.floor(microseconds / 1_000), at };
        return heard;
      } catch (error) {
        return { error };
      }
    },

    /** Redis says that it is later than this process thought. */
    forget(): void {
      heard = undefined;
    },
  };
}
