/**
 * Ids of entries, and which entries a stream has, without what they hold: an entry may have any size, so a script returns
 * its id alone. It copies the entry within Redis, hence one entry a call.
 */

/** Before the first entry of every stream. */
export const STREAM_START = '0-0';

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

/** What this needs of a Redis client, with rights to read alone. */
interface Scripting {
  eval_ro(script: string, keys: number, ...args: string[]): Promise<unknown>;
}

/** KEYS: stream. ARGV: XRANGE or XREVRANGE, its bounds. */
const FIND_ID = `
  local found = redis.call(ARGV[1], KEYS[1], ARGV[2], ARGV[3], 'COUNT', 1)[1]
  return found and found[1]`;

/** @returns the id of the oldest entry behind `id`; undefined when there is none. @throws what Redis fails with. */
export const entryIdAfter = (redis: Scripting, stream: string, id: string): Promise<string | undefined> =>
  findId(redis, stream, 'XRANGE', `(${id}`, '+');

/** @returns the id of the newest entry; undefined when there is none. @throws what Redis fails with. */
export const newestEntryId = (redis: Scripting, stream: string): Promise<string | undefined> =>
  findId(redis, stream, 'XREVRANGE', '+', '-');

/** KEYS: stream. The first and the last entry, which XINFO tells whole, stay in Redis. */
const LAST_GENERATED = `
  if redis.call('EXISTS', KEYS[1]) == 0 then return false end
  local all = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #all, 2 do
    if all[i] == 'last-generated-id' then return all[i + 1] end
  end`;

/** @returns the id of the last entry that was ever appended, deleted ones included; undefined without a stream. */
export async function lastGeneratedId(redis: Scripting, stream: string): Promise<string | undefined> {
  const id = await redis.eval_ro(LAST_GENERATED, 1, stream);
  return typeof id === 'string' ? id : undefined;
}

/** Whether the stream has this entry. @throws what Redis fails with. */
export async function hasEntry(redis: Scripting, stream: string, id: string): Promise<boolean> {
  return (await findId(redis, stream, 'XRANGE', id, id)) !== undefined;
}

async function findId(
  redis: Scripting,
  stream: string,
  ...command: [name: string, from: string, to: string]
): Promise<string | undefined> {
  const id = await redis.eval_ro(FIND_ID, 1, stream, ...command);
  return typeof id === 'string' ? id : undefined;
}
