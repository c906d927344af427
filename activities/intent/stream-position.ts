/**
 * Where the reader is in its stream: saved in Redis after each batch, and reported with heartbeats for as long as it
 * works.
 */
import type { Redis } from 'ioredis';
import { countKey, offsetKey, oldestUnprocessedAgeMs, startedKey } from '../../api/intent/stream.ts';
import { STREAM_START } from '../../api/stream-ids.ts';
import { heartbeat } from '../heartbeat.ts';
import type { BridgeProgress, StreamFinding, StreamState } from '../../workflows/intent/reader-contract.ts';

/** How often there may be something to report, ms. */
const REPORT_INTERVAL_MS = 1_000;
/** With nothing to report, ms: each heartbeat is an Action that Temporal Cloud bills. */
const QUIET_HEARTBEAT_MS = 40_000;

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
  /** The last notification that was started until then; Temporal must know it. */
  startedId?: string;
  /** Redis did not know it. */
  isRecalled?: boolean;
}

/** @returns undefined when Redis has none. */
export async function loadPosition(redis: Redis, stream: string): Promise<StreamPosition | undefined> {
  const [offset, count, startedId] = await redis.mget(
    offsetKey(stream),
    countKey(stream),
    startedKey(stream),
  );
  if (!offset) return undefined;
  const [countedAt, entriesPassed] = count?.split(' ') ?? [];
  const isKnown = countedAt === offset && /^[0-9]+$/.test(entriesPassed ?? '');
  return {
    offset,
    entriesPassed: isKnown ? Number(entriesPassed) : undefined,
    ...(startedId ? { startedId } : {}),
  };
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
    if ARGV[3] ~= '' then redis.call('SET', KEYS[3], ARGV[3]) end
  end`;

export async function savePosition(redis: Redis, stream: string, position: StreamPosition): Promise<void> {
  const { offset, entriesPassed = 'unknown', startedId = '' } = position;
  const keys = [offsetKey(stream), countKey(stream), startedKey(stream)];
  await redis.eval(SAVE_POSITION, keys.length, ...keys, offset, entriesPassed, startedId);
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

/** Written by the reading loop alone; heartbeats only show it. */
export interface Progress extends StreamPosition {
  started: number;
  malformed: number;
  ahead: number;
  findings: StreamFinding[];
  /** As the last look saw the stream. */
  seen: StreamState | undefined;
  /** Entries up to here were passed before: what has a row is not started again. */
  readBefore: string;
  /** The last notification of each batch that was started since the last look. */
  startedSinceLook: string[];
}

/**
 * Reports from where the last reader was: each second what is new, and otherwise now and then that it lives. Call
 * `stopReporting` at the end.
 *
 * @param isHeartbeatWanted asks whether Temporal is to hear of the reader now. Never throws.
 */
export async function startProgress(
  redis: Redis,
  stream: string,
  position: StreamPosition,
  isHeartbeatWanted: () => Promise<boolean>,
): Promise<{ progress: Progress; stopReporting: () => void }> {
  const progress: Progress = {
    ...position,
    ...{ started: 0, malformed: 0, ahead: 0, findings: [], seen: undefined },
    ...{ readBefore: STREAM_START, startedSinceLook: [] },
  };
  let handledBefore = 0;
  let reported = '';
  let quietUntilMs = 0;
  const report = async (): Promise<void> => {
    const handled = progress.started + progress.malformed;
    const rate = Math.round((handled - handledBefore) / (REPORT_INTERVAL_MS / 1_000));
    handledBefore = handled;
    // A Redis that does not answer fails the read itself; the heartbeat only leaves the figure out.
    const [lagMs, isWanted] = await Promise.all([
      oldestUnprocessedAgeMs(redis, stream, progress.offset, Date.now()).catch(() => -1),
      isHeartbeatWanted(),
    ]);
    const next = reportOf(stream, progress, lagMs, rate);
    const text = JSON.stringify(next);
    if (text === reported && !isWanted && performance.now() < quietUntilMs) return;
    [reported, quietUntilMs] = [text, performance.now() + QUIET_HEARTBEAT_MS];
    heartbeat(next);
  };
  await report();
  let isReporting = false;
  const timer = setInterval(() => {
    if (isReporting) return;
    isReporting = true;
    void report().finally(() => (isReporting = false));
  }, REPORT_INTERVAL_MS);
  return { progress, stopReporting: () => clearInterval(timer) };
}

function reportOf(stream: string, progress: Progress, lagMs: number, rate: number): BridgeProgress {
  const { offset, started, malformed, ahead, findings, seen } = progress;
  return { stream, offset, lagMs, rate, started, malformed, ahead, findings, ...(seen ? { seen } : {}) };
}
