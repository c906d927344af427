/**
 * The outbox's side of Redis. Each batch that a relay appends has a number, and Redis keeps the number of the last one
 * beside the stream, written in the same step. Redis loses the end of what it was told, never a part in the middle: so
 * whatever was lost, the number says from which batch on.
 */
import type { Redis } from 'ioredis';
import { keySegment, offsetKey } from '../../api/intent/stream.ts';

/** Holds the number of the last batch of an outbox. */
export const batchKey = (outboxId: string): string => `notification:outbox_batches:${keySegment(outboxId)}`;

export interface OutboxStream {
  redis: Redis;
  stream: string;
  outboxId: string;
}

/** Redis has the batches up to this number, and none of those behind it. */
export interface Loss {
  knownBatch: number;
}

/** Whether Redis has what it must have. A stream that is gone had all batches in it. */
const FIND_LOSS = `
  local required = tonumber(ARGV[1])
  if required > 0 then
    local known = redis.call('GET', KEYS[2])
    if redis.call('EXISTS', KEYS[1]) == 0 then return {'lost', '0'} end
    if not known or tonumber(known) < required then return {'lost', known or '0'} end
  end`;

/**
 * Appends entries in their order, and ends with the first one that Redis does not take.
 * KEYS: stream, batches. ARGV: the batch that must be there, the number of this one; then for each entry how many names
 * and values it has, and these.
 */
const APPEND = `${FIND_LOSS}
  local ids, at = {'appended'}, 3
  while at <= #ARGV do
    local count = tonumber(ARGV[at])
    local id = redis.pcall('XADD', KEYS[1], '*', unpack(ARGV, at + 1, at + count))
    if type(id) == 'table' and id.err then
      if #ids == 1 then return id end
      break
    end
    ids[#ids + 1] = id
    at = at + count + 1
  end
  redis.call('SET', KEYS[2], ARGV[2])
  return ids`;

/**
 * Of entries in their order, those that the service's offset has passed: 1 for each that is in the stream, 0 for one that
 * is not. Ids are compared as strings of equal length, because Lua's numbers cannot hold 64 bits.
 * KEYS: stream, batches, offset. ARGV: the batch that must be there, ids.
 */
const FIND_PRESENT = `${FIND_LOSS}
  local function comparable(id)
    local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
    return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #sequence) .. sequence
  end
  local offset, passed = redis.call('GET', KEYS[3]), {'passed'}
  if not offset then return passed end
  for i = 2, #ARGV do
    if comparable(ARGV[i]) > comparable(offset) then break end
    passed[#passed + 1] = #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i])
  end
  return passed`;

/**
 * Appends a batch in one step, unless Redis has lost an earlier one.
 *
 * @param required the batch that Redis must have; 0 when nothing can be lost.
 * @returns the ids of the entries, of the first ones when Redis did not take all of them.
 * @throws what Redis fails with, before it has appended anything, or without saying whether it has.
 */
export async function appendBatch(
  { redis, stream, outboxId }: OutboxStream,
  { required, batch, entries }: { required: number; batch: number; entries: readonly string[][] },
): Promise<Loss | { ids: string[] }> {
  const args = entries.flatMap((entry) => [entry.length, ...entry]);
  const reply = await redis.eval(APPEND, 2, stream, batchKey(outboxId), required, batch, ...args);
  const [kind, ...rest] = reply as [string, ...string[]];
  return kind === 'lost' ? { knownBatch: Number(rest[0]) } : { ids: rest };
}

/**
 * Finds which of the oldest entries of an outbox the stream still has.
 *
 * @param ids in the order of the stream.
 * @returns for each of the first ones, which the offset has passed, whether the stream has it.
 */
export async function findPresent(
  { redis, stream, outboxId }: OutboxStream,
  { required, ids }: { required: number; ids: readonly string[] },
): Promise<Loss | { present: boolean[] }> {
  const keys = [stream, batchKey(outboxId), offsetKey(stream)];
  const reply = await redis.eval_ro(FIND_PRESENT, keys.length, ...keys, required, ...ids);
  const [kind, ...rest] = reply as [string, ...(string | number)[]];
  return kind === 'lost' ? { knownBatch: Number(rest[0]) } : { present: rest.map((count) => count === 1) };
}
