/** Ids of stream entries and the persisted progress of the reader (seed "Redis runtime-coordination state"). */
import type { Redis } from 'ioredis';
import { keySegment } from './redis-keys.ts';

/** Where a stream is read from when no progress was ever saved. */
export const STREAM_START = '0-0';

/** Orders entry ids: `<ms>-<sequence>`, both unsigned 64 bit, so compared as big integers. */
export function compareEntryIds(left: string, right: string): number {
  const [leftMs = 0n, leftSequence = 0n] = left.split('-').map(BigInt);
  const [rightMs = 0n, rightSequence = 0n] = right.split('-').map(BigInt);
  if (leftMs !== rightMs) return leftMs < rightMs ? -1 : 1;
  if (leftSequence === rightSequence) return 0;
  return leftSequence < rightSequence ? -1 : 1;
}

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

const offsetKey = (stream: string): string => `notification:stream_offsets:${keySegment(stream)}`;

export async function loadOffset(redis: Redis, stream: string): Promise<string> {
  return (await redis.get(offsetKey(stream))) ?? STREAM_START;
}

/**
 * Saves progress, forwards only: a reader that was replaced and wakes up late must not move it back. Ids are compared
 * as strings of equal length, because Lua's numbers cannot hold 64 bits. Never expires.
 */
const SAVE_OFFSET = `
  local function comparable(id)
    local ms, sequence = string.match(id, '^(%d+)-(%d+)$')
    return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #sequence) .. sequence
  end
  local saved = redis.call('GET', KEYS[1])
  if not saved or comparable(ARGV[1]) > comparable(saved) then
    redis.call('SET', KEYS[1], ARGV[1])
  end`;

export async function saveOffset(redis: Redis, stream: string, offset: string): Promise<void> {
  await redis.eval(SAVE_OFFSET, 1, offsetKey(stream), offset);
}
