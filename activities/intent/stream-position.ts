/** The persisted progress of the reader. */
import type { Redis } from 'ioredis';
import { STREAM_START, countKey, offsetKey } from '../../api/intent/stream.ts';

/**
 * The offset after a batch: the last id of the unbroken run of entries that are durably done, so that nothing which
 * is not done lies before it.
 *
 * @param offset where the batch began.
 * @param batch entries in stream order, each with whether it is durably started or recorded.
 */
export function contiguousOffset(offset: string, batch: readonly { id: string; done: boolean }[]): string {
  const firstOpen = batch.findIndex(({ done }) => !done);
  const doneCount = firstOpen === -1 ? batch.length : firstOpen;
  return batch[doneCount - 1]?.id ?? offset;
}

/** Where the reader is in a stream. */
export interface StreamPosition {
  /** Id of the last entry that was passed. */
  offset: string;
  /** How many entries were ever added up to the offset; undefined when nobody counted. */
  entriesPassed: number | undefined;
}

export async function loadPosition(redis: Redis, stream: string): Promise<StreamPosition> {
  const [offset, count] = await redis.mget(offsetKey(stream), countKey(stream));
  if (!offset) return { offset: STREAM_START, entriesPassed: 0 };
  const [countedAt, entriesPassed] = count?.split(' ') ?? [];
  const isKnown = countedAt === offset && /^[0-9]+$/.test(entriesPassed ?? '');
  return { offset, entriesPassed: isKnown ? Number(entriesPassed) : undefined };
}

/**
 * Saves progress, forwards only: a reader that was replaced and wakes up late must not move it back. Ids are compared
 * as strings of equal length, because Lua's numbers cannot hold 64 bits. Never expires.
 */
const SAVE_POSITION = `
  local function comparable(id)
    local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
    return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #sequence) .. sequence
  end
  local saved = redis.call('GET', KEYS[1])
  if not saved or comparable(ARGV[1]) >= comparable(saved) then
    redis.call('SET', KEYS[1], ARGV[1])
    redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. ARGV[2])
  end`;

export async function savePosition(redis: Redis, stream: string, position: StreamPosition): Promise<void> {
  const { offset, entriesPassed = 'unknown' } = position;
  await redis.eval(SAVE_POSITION, 2, offsetKey(stream), countKey(stream), offset, entriesPassed);
}

/** An offset that is not the caller's stays: another reader has moved it, or Redis fell back together with it. */
const REWIND_OFFSET = `
  local saved = redis.call('GET', KEYS[1])
  if saved and saved ~= ARGV[1] then return saved end
  redis.call('SET', KEYS[1], ARGV[2])
  redis.call('DEL', KEYS[2])
  return ARGV[2]`;

/**
 * The one way back: moves the saved offset from where the reader holds it to an earlier entry.
 *
 * @returns where to read on from: `to`, or the saved offset when it was not `from`.
 */
export async function rewindOffset(redis: Redis, stream: string, from: string, to: string): Promise<string> {
  return String(await redis.eval(REWIND_OFFSET, 2, offsetKey(stream), countKey(stream), from, to));
}
