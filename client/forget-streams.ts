/**
 * Entries of streams that are about somebody. They are deleted one by one, by what they say; one that its reader has not
 * dealt with yet is left to it.
 */
import type { Redis } from 'ioredis';
import { LAST_ENTRY_ID, STREAM_START, compareEntryIds } from '../api/stream-ids.ts';
import { OperationFailedError } from './errors.ts';
import type { Place } from './forget-places.ts';

/** Entries, and bytes, that Redis looks at in one step, in which it does nothing else. A single entry may have more. */
const STEP = 200;
const STEP_BYTES = 4 << 20;

export interface FoundEntry {
  id: string;
  /** Of no one else. Otherwise it is somebody else's, and names the person. */
  isOwn: boolean;
}

/** How an entry stands with those who read it. */
export type Reading = 'unread' | 'pending' | 'read';

export interface StreamOfPeople {
  redis: Redis;
  stream: string;
  /** Looks at the next entries: the last of them, if there may be more, and those that are about the person. */
  look(after: string): Promise<{ last: string | undefined; found: FoundEntry[] }>;
  /** Which of their own entries can go. @param ids in ascending order. */
  removable(ids: readonly string[]): Promise<ReadonlySet<string>>;
}

export interface StreamPlace extends Place {
  /** Of the last `count` or `forget`: entries of their own that cannot go yet, and entries of others that name them. */
  left(): { own: readonly string[]; mentions: readonly string[] };
}

/** A stream as a place. */
export function streamPlace({ redis, stream, look, removable }: StreamOfPeople): StreamPlace {
  let own: string[] = [];
  let mentions: string[] = [];
  async function pass(remove: boolean): Promise<number> {
    own = [];
    mentions = [];
    let total = 0;
    for (let after = STREAM_START; ;) {
      const { last, found } = await look(after);
      const ids = found.flatMap(({ id, isOwn }) => (isOwn ? [id] : []));
      mentions.push(...found.flatMap(({ id, isOwn }) => (isOwn ? [] : [id])));
      if (ids.length > 0) {
        const doomed = await removable(ids);
        own.push(...ids.filter((id) => !doomed.has(id)));
        total += doomed.size;
        if (remove && doomed.size > 0) await deleteEntries(redis, stream, [...doomed]);
      }
      if (last === undefined) return total;
      after = last;
    }
  }
  return {
    what: stream,
    count: () => pass(false),
    forget: () => pass(true),
    left: () => ({ own, mentions }),
  };
}

async function deleteEntries(redis: Redis, stream: string, ids: readonly string[]): Promise<void> {
  try {
    await redis.xdel(stream, ...ids);
  } catch (error) {
    if (!(error instanceof Error && error.message.startsWith('NOPERM'))) throw error;
    throw new OperationFailedError(
      `the user of Redis may not delete entries of ${stream}: give it the rule of operators (deploy/REDIS.md)`,
      { cause: error },
    );
  }
}

/** @returns how entries stand with all consumer groups of a stream; all are read where there is no group. */
export async function readingOf(
  redis: Redis,
  stream: string,
  ids: readonly string[],
): Promise<{ hasGroups: boolean; reading: Map<string, Reading> }> {
  const groups = (await redis.exists(stream)) === 0 ? [] : await groupsOf(redis, stream);
  const reading = new Map<string, Reading>(ids.map((id) => [id, 'read']));
  for (const { name, delivered } of groups) {
    const pipeline = redis.pipeline();
    for (const id of ids) pipeline.xpending(stream, name, id, id, 1);
    const replies = (await pipeline.exec()) ?? [];
    for (const [index, id] of ids.entries()) {
      const [error, pending] = replies[index]!;
      if (error) throw error;
      if ((pending as unknown[]).length > 0) reading.set(id, 'pending');
      else if (compareEntryIds(id, delivered) > 0 && reading.get(id) !== 'pending') reading.set(id, 'unread');
    }
  }
  return { hasGroups: groups.length > 0, reading };
}

/** Those that every consumer group has acknowledged. Where there is no group, nobody has taken them. */
export async function readByAll(
  redis: Redis,
  stream: string,
  ids: readonly string[],
): Promise<ReadonlySet<string>> {
  const { hasGroups, reading } = await readingOf(redis, stream, ids);
  return new Set(ids.filter((id) => hasGroups && reading.get(id) === 'read'));
}

async function groupsOf(redis: Redis, stream: string): Promise<{ name: string; delivered: string }[]> {
  const groups = (await redis.xinfo('GROUPS', stream)) as unknown[][];
  return groups.map((group) => {
    const value = (name: string) => String(group[group.indexOf(name) + 1]);
    return { name: value('name'), delivered: value('last-delivered-id') };
  });
}

/**
 * ARGV: the entry after which to look, how many. Entries are taken one by one, since only Redis knows how large they are. Behind
 * the last possible id Redis refuses to look. Returns the last entry, or nothing when there are no more.
 */
const EACH_ENTRY = `
  local function eachEntry(work)
    local last, looked, bytes = ARGV[1], 0, 0
    while looked < tonumber(ARGV[2]) and bytes < ${STEP_BYTES} do
      local entry = last ~= '${LAST_ENTRY_ID}' and
        redis.call('XRANGE', KEYS[1], '(' .. last, '+', 'COUNT', 1)[1]
      if not entry then return false end
      last, looked = entry[1], looked + 1
      for _, text in ipairs(entry[2]) do bytes = bytes + #text end
      work(entry)
    end
    return last
  end`;

/**
 * KEYS: stream. ARGV: the entry after which to look, how many, what names the person as an array in JSON, the id as JSON, and
 * where an entry says whom it is for. Returns the last entry that was looked
 * at, or nothing when there are no more; then ids, each with 1 for an entry of the person, 0 for one of others. One that
 * is too long to be decoded is searched for the id in its text.
 */
const FIND = `${EACH_ENTRY}
  local wanted, quoted, field, name = {}, ARGV[4], ARGV[5], ARGV[6]
  for _, one in ipairs(cjson.decode(ARGV[3])) do wanted[one] = true end
  local function ofPath(fields)
    local value = fields[field]
    if not value then return nil end
    if name == '' then return value end
    if name == '/' then return string.match(value, '/(.*)$') end
    if #value > 262144 then return nil end
    local isDecoded, decoded = pcall(cjson.decode, value)
    if not isDecoded or type(decoded) ~= 'table' then return nil end
    if name ~= '*' then return decoded[name] end
    for _, one in ipairs(decoded) do
      if one ~= decoded[1] then return nil end
    end
    return decoded[1]
  end
  local found = {false}
  found[1] = eachEntry(function(entry)
    local fields, isNamed = {}, false
    for i = 1, #entry[2], 2 do
      fields[entry[2][i]] = entry[2][i + 1]
      isNamed = isNamed or string.find(entry[2][i + 1], quoted, 1, true)
    end
    local value = ofPath(fields)
    if type(value) == 'string' and wanted[value] then
      found[#found + 1] = entry[1]
      found[#found + 1] = 1
    elseif isNamed then
      found[#found + 1] = entry[1]
      found[#found + 1] = 0
    end
  end)
  return found`;

/**
 * Looks for entries by where they say whom they are for.
 *
 * @param wanted what they say there of the person.
 * @param path a field; and a name in the JSON that it holds, `*` for the texts of a JSON array, all of which must be it, or
 * `/` for what stands behind the first slash.
 */
export const lookFor =
  (
    { redis, stream, userId }: { redis: Redis; stream: string; userId: string },
    wanted: readonly string[],
    [field, name = '']: readonly [string, string?],
  ) =>
  async (after: string): Promise<{ last: string | undefined; found: FoundEntry[] }> => {
    const values = [after, STEP, JSON.stringify(wanted), JSON.stringify(userId), field, name];
    const [last, ...pairs] = (await redis.eval_ro(FIND, 1, stream, ...values)) as (string | number | null)[];
    const found = pairs.flatMap((id, i) =>
      i % 2 === 0 ? [{ id: String(id), isOwn: pairs[i + 1] === 1 }] : [],
    );
    return { last: last === null || last === undefined ? undefined : String(last), found };
  };

/**
 * KEYS: stream. ARGV: the entry after which to look, how many, names of fields. Returns the last entry, or nothing when there
 * are no more; then of each entry its id and what these fields hold, if it has them and they are not too long.
 */
const READ_FIELDS = `${EACH_ENTRY}
  local result = {false}
  result[1] = eachEntry(function(entry)
    local fields, wanted = {}, {entry[1]}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    for i = 3, #ARGV do
      local value = fields[ARGV[i]]
      wanted[#wanted + 1] = value and #value <= 4096 and value or false
    end
    result[#result + 1] = wanted
  end)
  return result`;

/** The next entries of a stream with these fields of theirs, for who decides by more than whom they are for. */
export async function entriesAfter<Name extends string>(
  redis: Redis,
  stream: string,
  after: string,
  names: readonly Name[],
): Promise<{ last: string | undefined; entries: { id: string; fields: Partial<Record<Name, string>> }[] }> {
  const [last, ...found] = (await redis.eval_ro(READ_FIELDS, 1, stream, after, STEP, ...names)) as [
    string | null,
    ...[id: string, ...values: (string | null)[]][],
  ];
  const entries = found.map(([id, ...values]) => ({
    id,
    fields: Object.fromEntries(
      names.flatMap((name, i) => (values[i] == null ? [] : [[name, values[i]] as const])),
    ) as Partial<Record<Name, string>>,
  }));
  return { last: last ?? undefined, entries };
}
