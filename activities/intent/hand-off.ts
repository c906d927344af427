/**
 * The one way in which a route leaves this service: a Lua script that checks what was handed off before, takes the
 * route's lease and appends the entry, all in one step.
 *
 * What the script remembers lives in Redis, next to the stream it guards: if Redis loses one it tends to lose both,
 * and a repeated entry then carries the same `event_id` or `delivery_id`, on which consumers deduplicate.
 */
import { createHash } from 'node:crypto';
import type { Redis, RedisValue, Result } from 'ioredis';
import type { EntryField } from '../../api/intent/outbound-entries.ts';
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

interface Keys {
  lease: string;
  handOff: string;
  voided: string;
}
/** What an attempt holds of its route. */
export interface HeldRoute {
  keys: Pick<Keys, 'handOff' | 'lease'>;
  /** Of the lease; empty without one. */
  token: string;
}
interface Entry {
  stream: string;
  maxLen?: number;
  fields: EntryField[];
}

export type HandOffResult =
  /** Appended now, or by an earlier attempt of the same generation. */
  | { outcome: 'handed_off'; entryId: string }
  /** Another attempt holds the route's lease. */
  | { outcome: 'leased'; expiresInMs: number }
  /** An operator cancelled the route before it was handed off; it never will be. */
  | { outcome: 'closed' }
  /**
   * The attempt began too long ago, before Redis fell back, or before its notification was cancelled: its row may have
   * been settled, and the memory of that may be gone.
   */
  | { outcome: 'late' };

/** When an attempt began, before it looked at its rows, or why Redis does not tell. */
export type Beginning = RedisMoment | { error: unknown };

interface RedisMoment {
  /** Ms since the epoch by Redis' clock. */
  atMs: number;
  /** See HISTORY. */
  history: string;
}

/** What the memory holds instead of an entry id when the route was closed; no entry id looks like it. */
const CLOSED = 'closed';

/** Seed "Redis runtime-coordination state". */
export const leaseKey = (notificationId: string, routeId: string): string =>
  `notification:route_leases:${keySegment(notificationId)}:${keySegment(routeId)}`;

/**
 * A replay that starts a new generation of a route hands off again. The route id names a person, and the key of a process
 * that died may stay for a year: it holds a hash.
 */
export const handOffKey = (notificationId: string, routeId: string, generation: number): string => {
  const route = createHash('sha256').update(`${notificationId}/${routeId}`).digest('base64url');
  return `notification:route_hand_offs:${keySegment(notificationId)}:${route}:${generation}`;
};

/** Until when attempts for a notification are void that have not handed off. */
export const voidedKey = (notificationId: string): string =>
  `notification:voided_attempts:${keySegment(notificationId)}`;

/**
 * What Redis names the history of its data by. A server that was restarted, promoted or put in the place of another begins
 * a new one, since what it holds may be older than what its predecessor had acknowledged. Empty where Redis does not tell.
 */
const HISTORY = `
  local function history()
    local info = redis.pcall('INFO', 'replication')
    return type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or ''
  end`;

const NOW_MS = `
  local time = redis.call('TIME')
  local nowMs = time[1] * 1000 + math.floor(time[2] / 1000)`;

/** Returns epoch ms, and the history. */
const BEGIN = `${HISTORY}${NOW_MS}
  return {string.format('%.0f', nowMs), history()}`;

/** Appends the field, value, ... behind the parameter at `at`, which is the max length or ''. @returns the id, or an error. */
const ADD = `
  local function add(stream, at)
    local command = {'XADD', stream, '*'}
    if ARGV[at] ~= '' then command = {'XADD', stream, 'MAXLEN', '~', ARGV[at], '*'} end
    for i = at + 1, #ARGV do command[#command + 1] = ARGV[i] end
    return redis.pcall(unpack(command))
  end`;

/** KEYS: voided. ARGV: memory ms. */
const VOID = `${NOW_MS}
  redis.call('SET', KEYS[1], string.format('%.0f', nowMs), 'PX', ARGV[1])`;

/**
 * KEYS: hand-off, lease, stream, voided. ARGV: token, lease ms, memory ms, when the attempt began (epoch ms), for how long it
 * may append (ms), the history in which it began, max length or '', field, value, ...
 */
const APPEND = `${HISTORY}${ADD}
  local before = redis.call('GET', KEYS[1])
  if before == 'closed' then return {'closed', ''} end
  if before then return {'handed_off', before} end
  ${NOW_MS}
  local begunMs, voidedMs = tonumber(ARGV[4]), tonumber(redis.call('GET', KEYS[4]) or 0)
  if nowMs > begunMs + ARGV[5] or begunMs <= voidedMs or history() ~= ARGV[6] then return {'late', ''} end
  if not redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return {'leased', tostring(redis.call('PTTL', KEYS[2]))}
  end
  local id = add(KEYS[3], 7)
  if type(id) == 'table' then
    -- A script is not rolled back: without this, the next attempt would wait for a lease without a holder.
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

/** KEYS: hand-off, lease, hand-off, lease, ... ARGV: memory ms, or '' to leave it as it is, token, token, ... */
const END = `
  for i = 1, #KEYS / 2 do
    if ARGV[1] ~= '' then redis.call('PEXPIRE', KEYS[2 * i - 1], ARGV[1]) end
    if redis.call('GET', KEYS[2 * i]) == ARGV[1 + i] then redis.call('DEL', KEYS[2 * i]) end
  end`;

/**
 * KEYS: hand-off, stream. ARGV: the entry as which it was handed off, memory ms, max length or '', field, value, ...
 * What the memory holds may be the entry of a repair that died before it could write the row.
 */
const RESTORE = `${ADD}
  local function isThere(id) return #redis.call('XRANGE', KEYS[2], id, id) > 0 end
  if isThere(ARGV[1]) then return ARGV[1] end
  local before = redis.call('GET', KEYS[1])
  if before and before ~= 'closed' and isThere(before) then return before end
  local id = add(KEYS[2], 3)
  if type(id) ~= 'table' then redis.call('SET', KEYS[1], id, 'PX', ARGV[2]) end
  return id`;

/** The commands that `defineHandOffCommands` adds to a client. */
declare module 'ioredis' {
  interface RedisCommander<Context> {
    handOffBegin(): Result<[atMs: string, history: string], Context>;
    handOffAppend(...args: RedisValue[]): Result<[HandOffResult['outcome'], string], Context>;
    handOffClose(...args: RedisValue[]): Result<string, Context>;
    handOffEnd(...args: RedisValue[]): Result<unknown, Context>;
  }
}

/** Registers scripts with a client; ioredis then sends them by hash and loads them when Redis does not know them. */
export function defineHandOffCommands(redis: Redis): void {
  redis.defineCommand('handOffBegin', { numberOfKeys: 0, lua: BEGIN });
  redis.defineCommand('handOffAppend', { numberOfKeys: 4, lua: APPEND });
  redis.defineCommand('handOffClose', { numberOfKeys: 1, lua: CLOSE });
  redis.defineCommand('handOffEnd', { lua: END });
}

export const handOff = {
  /** @returns Redis' clock and history; to be had before rows are read. Never throws. */
  async begin(redis: Redis): Promise<Beginning> {
    try {
      const [atMs, history] = await redis.handOffBegin();
      return { atMs: Number(atMs), history };
    } catch (error) {
      return { error };
    }
  },

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
    /** The token is opaque, and unique per attempt. */
    lease: { token: string; ttlMs: number },
    { stream, maxLen, fields }: Entry,
    begun: Beginning,
  ): Promise<HandOffResult> {
    if ('error' in begun) throw begun.error;
    const [outcome, value] = await redis.handOffAppend(
      ...[keys.handOff, keys.lease, stream, keys.voided],
      ...[lease.token, lease.ttlMs, REMEMBER_UNSETTLED_MS, begun.atMs, LATE_AFTER_MS, begun.history],
      ...[maxLen ?? '', ...fields.flat()],
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
    const before = await redis.handOffClose(handOffKeyOfRoute, REMEMBER_UNSETTLED_MS);
    return before === CLOSED ? undefined : before;
  },

  /** Makes attempts void that began until now for a notification, whatever became of its rows: they look at them again. */
  async voidAttempts(redis: Redis, notificationId: string): Promise<void> {
    await redis.eval(VOID, 1, voidedKey(notificationId), REMEMBER_SETTLED_MS);
  },

  /** The entry as which each of these generations was handed off, if it was and Redis still remembers. */
  async entriesOf(redis: Redis, handOffKeys: string[]): Promise<(string | undefined)[]> {
    const before = handOffKeys.length === 0 ? [] : await redis.mget(handOffKeys);
    return before.map((entry) => (entry === null || entry === CLOSED ? undefined : entry));
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
    { stream, maxLen, fields }: Entry,
  ): Promise<string> {
    const values = [entryId, REMEMBER_SETTLED_MS, maxLen ?? '', ...fields.flat()];
    return (await redis.eval(RESTORE, 2, handOffKeyOfRoute, stream, ...values)) as string;
  },

  /**
   * Ends attempts: gives their leases back and, once their routes are settled, lets what is remembered of them fade. Never
   * fails: a lease that is not given back expires, and a memory that does not fade expires later.
   */
  async end(redis: Redis, held: readonly HeldRoute[], isSettled: boolean): Promise<void> {
    if (held.length === 0) return;
    const keys = held.flatMap(({ keys: of }) => [of.handOff, of.lease]);
    const values = [isSettled ? REMEMBER_SETTLED_MS : '', ...held.map(({ token }) => token)];
    await redis.handOffEnd(keys.length, ...keys, ...values).catch(() => undefined);
  },
};

// --- Replication: replicas of Redis have what was handed off before rows say so, and a failover to one of them loses nothing
// that is settled. WAIT rather than WAITAOF: what a crash takes from the disk of a server that comes back is put back by the
// repair, while a sync of the disk for each wait would hold every hand-off for up to a second.

interface ReplicationSettings {
  /** 0: nothing is waited for. */
  minReplicas: number;
  timeoutMs: number;
}

/** What the memory must hold for the hand-off to have happened on the server that is asked. */
interface Remembered {
  keys: Pick<Keys, 'handOff'>;
  entryId: string;
}

/** @returns the keys of those hand-offs that enough replicas have; perhaps of others too. Never throws. */
export type ConfirmReplicated = (remembered: Remembered[]) => Promise<ReadonlySet<string>>;

const MARK_KEY = 'notification:replication_mark';

/**
 * WAIT waits for the writes of one connection only, so each follows a small one: replicas that have that have everything
 * from before it. KEYS: hand-offs, mark. ARGV: entry ids. Returns the positions of those that this server does not remember:
 * another one may be the master by now.
 */
const MARK = `
  local missing = {}
  for i, id in ipairs(ARGV) do
    if redis.call('GET', KEYS[i]) ~= id then missing[#missing + 1] = i end
  end
  redis.call('SET', KEYS[#KEYS], '1')
  return missing`;

/**
 * @param openConnection opens one for nothing else: WAIT blocks whatever comes behind it. All that asks during one wait shares
 * the next. A connection that has ended is replaced.
 */
export function createReplication(
  openConnection: () => Redis,
  { minReplicas, timeoutMs }: ReplicationSettings,
): ConfirmReplicated {
  let redis: Redis | undefined;
  let underWay: Promise<unknown> = Promise.resolve();
  let next: { remembered: Remembered[]; confirmed: Promise<ReadonlySet<string>> } | undefined;

  return async (remembered) => {
    if (minReplicas === 0 || remembered.length === 0)
      return new Set(remembered.map(({ keys }) => keys.handOff));
    if (!next) {
      next = { remembered: [], confirmed: underWay.then(ask) };
      underWay = next.confirmed;
    }
    next.remembered.push(...remembered);
    return next.confirmed;
  };

  async function ask(): Promise<ReadonlySet<string>> {
    const { remembered } = next!;
    next = undefined;
    const keys = remembered.map((one) => one.keys.handOff);
    if (!redis || redis.status === 'end') redis = openConnection();
    const answers = await redis
      .pipeline()
      .eval(MARK, keys.length + 1, ...keys, MARK_KEY, ...remembered.map(({ entryId }) => entryId))
      .wait(minReplicas, timeoutMs)
      .exec()
      .catch(() => null);
    const [[markError, missing] = [], [waitError, replicas] = []] = answers ?? [[new Error('no answer')]];
    if (markError || waitError || Number(replicas) < minReplicas) return new Set();
    const unknown = new Set((missing as number[]).map((position) => keys[position - 1]));
    return new Set(keys.filter((key) => !unknown.has(key)));
  }
}
