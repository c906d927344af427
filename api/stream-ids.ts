/**
 * Ids of entries, and which entries a stream has, without what they hold: an entry may have any size, so a script returns
 * its id alone. It copies the entry within Redis, hence one entry a call.
 */

/** Before the first entry of every stream. */
export const STREAM_START = '0-0';
/** The last id that a stream can have. Redis refuses ranges that begin behind it. */
export const LAST_ENTRY_ID = '18446744073709551615-18446744073709551615';
/** Ids that run further ahead of the clock of Redis than clocks differ, ms: a producer chose one. */
const MOST_AHEAD_MS = 86_400_000;

/**
 * When an entry was appended, as its id says. Producers choose ids, so the answer is never later than now: an id ahead of
 * the clock is no time.
 */
export const timeOfEntry = (id: string, nowMs = Date.now()): Date =>
  new Date(Math.min(Number(id.split('-')[0]), nowMs));

/** 2001-09-09 in epoch ms: ids from here on are taken for times, as XADD gives them; below, they were made by hand. */
const FIRST_CLOCK_MS = 1_000_000_000_000;

/** The time in an id, epoch ms by the clock of Redis; undefined for an id that is no time. */
export function clockOfEntry(id: string): number | undefined {
  const ms = Number(id.split('-')[0]);
  return ms >= FIRST_CLOCK_MS ? ms : undefined;
}

/** Orders entry ids: `<ms>-<sequence>`, both unsigned 64 bit, so compared as big integers. */
export function compareEntryIds(left: string, right: string): number {
  const [leftMs = 0n, leftSequence = 0n] = left.split('-').map(BigInt);
  const [rightMs = 0n, rightSequence = 0n] = right.split('-').map(BigInt);
  if (leftMs !== rightMs) return leftMs < rightMs ? -1 : 1;
  if (leftSequence === rightSequence) return 0;
  return leftSequence < rightSequence ? -1 : 1;
}

export const later = (one: string, other: string): string => (compareEntryIds(one, other) < 0 ? other : one);
export const sooner = (one: string, other = one): string => (compareEntryIds(one, other) < 0 ? one : other);

/** For scripts: names and values that Redis returns one after the other, as a table. */
export const FIELDS_OF = `
  local function fieldsOf(reply)
    local fields = {}
    for i = 1, #reply, 2 do fields[reply[i]] = reply[i + 1] end
    return fields
  end`;

/** What this needs of a Redis client, with rights to read alone. */
interface Scripting {
  eval_ro(script: string, keys: number, ...args: string[]): Promise<unknown>;
}

/** Asks for an id by a script; undefined without one. @throws the error of Redis. */
const idBy =
  (script: string) =>
  async (redis: Scripting, stream: string, ...args: string[]): Promise<string | undefined> => {
    const id = await redis.eval_ro(script, 1, stream, ...args);
    return typeof id === 'string' ? id : undefined;
  };

/** KEYS: stream. ARGV: bounds. */
const findId = idBy(`
  local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', 1)[1]
  return found and found[1]`);

/** @returns the id of the oldest entry behind `id`, if any. @throws the error of Redis. */
export async function entryIdAfter(
  redis: Scripting,
  stream: string,
  id: string,
): Promise<string | undefined> {
  return id === LAST_ENTRY_ID ? undefined : findId(redis, stream, `(${id}`, '+');
}

/**
 * The id of the last entry that was ever appended, deleted ones included; undefined without a stream. The first and the last
 * entry, which XINFO tells whole, stay in Redis.
 */
export const lastGeneratedId: (redis: Scripting, stream: string) => Promise<string | undefined> =
  idBy(`${FIELDS_OF}
  if redis.call('EXISTS', KEYS[1]) == 0 then return false end
  return fieldsOf(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id']`);

/**
 * What an operator hears of a stream whose ids are more than a day ahead of Redis: Redis gives all later entries ids behind
 * the last one, and none behind LAST_ENTRY_ID.
 *
 * @param nowMs by the clock of Redis, epoch ms.
 */
export function idsAhead(lastId: string, nowMs: number): string | undefined {
  if (compareEntryIds(lastId, `${nowMs + MOST_AHEAD_MS}-0`) <= 0) return undefined;
  return lastId === LAST_ENTRY_ID
    ? `the stream has used its last id, and takes no entries: a producer chose ${lastId}`
    : `the ids run ahead of the clock: a producer chose one, and the last is ${lastId}`;
}

/** Whether the stream has this entry. @throws what Redis fails with. */
export async function hasEntry(redis: Scripting, stream: string, id: string): Promise<boolean> {
  return (await findId(redis, stream, id, id)) !== undefined;
}

/** Names and values that Redis returns one after the other. */
export const pairsOf = <Value>(reply: readonly Value[]): [name: Value, value: Value][] =>
  reply.flatMap((name, i) => (i % 2 === 0 ? [[name, reply[i + 1]!]] : []));

export const fieldsOf = <Value>(reply: readonly Value[]): Record<string, Value> =>
  Object.fromEntries(pairsOf(reply).map(([name, value]) => [String(name), value]));

/** Consumer group of all processes on the streams of mobile push jobs and of account values. */
export const CONSUMER_GROUP = 'notifications';

/** Stream of events about errors of subscriptions, for clients. */
export const EVENTS_STREAM = 'notification:subscription-events';
