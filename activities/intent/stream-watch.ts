/**
 * The reader's watch over its stream: checks it, says what it finds, and reads again what may have been missed.
 *
 * Any of the stores may fall back to an earlier state. A PostgreSQL that does has forgotten rows and offset together, so
 * reading goes on from there. Redis then lacks entries, or has others: the entries from some time before the last look in
 * health are read again, and those that have a row are left alone.
 */
import type { Redis } from 'ioredis';
import { offsetKey } from '../../api/intent/stream.ts';
import {
  STREAM_START,
  clockOfEntry,
  compareEntryIds,
  idsAhead,
  later,
  sooner,
  timeOfEntry,
} from '../../api/stream-ids.ts';
import type { StreamFinding, StreamFindingKind, StreamState } from '../../workflows/intent/contract.ts';
import { readStream } from '../outbound-state.ts';
import { reasonOf } from '../reason.ts';
import type { StreamMemory } from '../stream-memory.ts';
import { recall, remember } from '../stream-memory.ts';
import type { StreamPosition } from './entries.ts';
import { OffsetMovedError, loadPosition, moveOffset } from './entries.ts';
import type { IntentResources } from './resources.ts';

/** A few cheap commands; each second, so that an operator hears of a loss while its cause can still be seen. */
const CHECK_INTERVAL_MS = 1_000;
/** How far before an entry reading begins again, ms: longer than clocks differ. */
const MARGIN_MS = 3_600_000;

/** These last until an operator fixes them and are reported once; the others are events. */
const LASTING: readonly StreamFindingKind[] = ['stream_missing', 'eviction_enabled', 'stream_ids_ahead'];
/** After these, entries may have lower ids than the offset, which XREAD would never return. */
const OF_REDIS: readonly StreamFindingKind[] = ['stream_missing', 'stream_regressed'];

type WatchResources = Pick<IntentResources, 'db' | 'redis' | 'log' | 'metrics' | 'retention'>;

/** Where one reader is. Written by its reading loop alone; heartbeats only show it. */
export interface Progress extends StreamPosition {
  /** Intents that got a row. */
  taken: number;
  malformed: number;
  findings: StreamFinding[];
  /** As the last look saw the stream. */
  seen: StreamState | undefined;
  /** Redis has a copy of a later offset: PostgreSQL has forgotten that. */
  isForgotten: boolean;
}

/**
 * Where the last reader was, as PostgreSQL says. One that has forgotten the stream altogether is read from some time before
 * the copy of the offset.
 *
 * @throws ApplicationFailure of PostgreSQL; what Redis fails with.
 */
export async function openProgress(
  { db, redis, retention }: Pick<WatchResources, 'db' | 'redis' | 'retention'>,
  stream: string,
): Promise<Progress> {
  const copy = await redis.get(offsetKey(stream));
  const start =
    copy === null ? STREAM_START : rewindPoint(copy, copy, retention.recordRetentionMs, Date.now());
  const position = await loadPosition(db, stream, start);
  return {
    ...position,
    ...{ taken: 0, malformed: 0, findings: [], seen: undefined },
    isForgotten: copy !== null && compareEntryIds(copy, position.offset) > 0,
  };
}

/**
 * Prepares the checks of one reader.
 *
 * @returns checks the stream when that is due, and may move `progress` back. To be called between reads: what is being
 * handled would move the offset too. It throws OffsetMovedError; a check that fails otherwise is made again.
 */
export function watchStream(
  { db, redis, log, metrics, retention }: WatchResources,
  stream: string,
  progress: Progress,
): () => Promise<void> {
  const owner = { db, redis, role: 'intent', stream };
  let dueAtMs = 0;
  let lastCheckFailed = false;

  return async () => {
    if (performance.now() < dueAtMs) return;
    dueAtMs = performance.now() + CHECK_INTERVAL_MS;
    try {
      await check();
      lastCheckFailed = false;
    } catch (error) {
      if (error instanceof OffsetMovedError) throw error;
      if (!lastCheckFailed) log.warn({ stream, reason: reasonOf(error) }, 'stream not checked');
      lastCheckFailed = true;
    }
  };

  async function check(): Promise<void> {
    const [inspection, memory] = await Promise.all([inspectStream(redis, stream), recall(owner)]);
    // PostgreSQL has fallen back, or another reader has begun.
    if (memory.passedId !== progress.offset)
      throw new OffsetMovedError(`${progress.offset} is not the offset any more`);
    progress.seen ??= memory.seen;
    const { offset } = progress;
    const { problems, entriesPassed } = diagnose(inspection, progress, progress.seen);
    if (memory.postgres === 'regressed' || progress.isForgotten) {
      const message = `PostgreSQL fell back to an earlier state: it knows of entries up to ${offset}. Reading goes on from there, and what it has forgotten is done again under the same ids`;
      problems.push({ kind: 'postgres_regressed', message });
    }
    const news = problems.filter(({ kind }) => !LASTING.includes(kind) || !findingOf(kind));

    const from = whereToReadFrom(inspection, memory, new Set(news.map(({ kind }) => kind)));
    if (from !== undefined) {
      await moveOffset(db, stream, offset, { offset: from, entriesPassed: undefined });
      progress.offset = from;
      log.warn({ stream, offset, read_from: from }, 'stream is read again');
    }
    // The next reader must not find the same loss again.
    else if (entriesPassed !== progress.entriesPassed)
      await moveOffset(db, stream, offset, { offset, entriesPassed });
    const seen = stateToRemember(inspection, problems);
    await remember(owner, { passedId: undefined, seen }, memory);
    // One that was saved late, or lost by Redis, would mislead producers.
    if (progress.offset !== STREAM_START) await redis.set(offsetKey(stream), progress.offset);
    // Only now: had something failed, the next check must find all this again.
    progress.entriesPassed = from === undefined ? entriesPassed : undefined;
    progress.seen = seen;
    progress.isForgotten = false;
    progress.findings = progress.findings.filter(
      ({ kind }) => !LASTING.includes(kind) || problems.some((problem) => problem.kind === kind),
    );
    for (const problem of news) report(problem, offset);
  }

  function findingOf(wanted: StreamFindingKind): StreamFinding | undefined {
    return progress.findings.find(({ kind }) => kind === wanted);
  }

  /** @returns undefined when there is no reason to go back. */
  function whereToReadFrom(
    { stream: state }: Inspection,
    { rewindTo }: StreamMemory,
    found: ReadonlySet<StreamFindingKind>,
  ): string | undefined {
    const { offset } = progress;
    const last = state?.lastGeneratedId ?? STREAM_START;
    const lost = OF_REDIS.some((kind) => found.has(kind))
      ? rewindPoint(
          sooner(offset, state && last),
          later(offset, last),
          retention.recordRetentionMs,
          Date.now(),
        )
      : undefined;
    const from = sooner(sooner(offset, lost), rewindTo);
    return from === offset ? undefined : from;
  }

  function report({ kind, message }: Problem, offset: string): void {
    const sinceMs = findingOf(kind)?.sinceMs ?? Date.now();
    progress.findings = [
      ...progress.findings.filter((finding) => finding.kind !== kind),
      { kind, message, sinceMs },
    ];
    log.error({ stream, offset, kind, reason: message }, 'stream finding');
    metrics.streamFinding({ kind });
  }
}

function stateToRemember({ stream }: Inspection, problems: Problem[]): Progress['seen'] {
  if (stream) {
    const { length: _length, firstEntryId: _firstEntryId, ...state } = stream;
    return state;
  }
  // That there was one, and nothing that the next stream of this name would fall short of.
  return problems.some(({ kind }) => kind === 'stream_missing')
    ? { lastGeneratedId: STREAM_START, maxDeletedEntryId: STREAM_START, entriesAdded: 0 }
    : undefined;
}

// --- What is wrong with a stream.

/** What Redis says at one moment. */
export interface Inspection {
  /** Undefined when the key does not exist. */
  stream: (StreamState & { length: number; firstEntryId: string }) | undefined;
  /** Undefined when Redis does not tell. */
  maxmemoryPolicy: string | undefined;
  /** By the clock of Redis, epoch ms; undefined without a stream. */
  redisMs?: number;
}

export type Problem = Pick<StreamFinding, 'kind' | 'message'>;

export interface Diagnosis {
  problems: Problem[];
  /** The reader's count, put right: what was lost is passed too. */
  entriesPassed: number | undefined;
}

/** @throws as {@link readStream}. */
export async function inspectStream(redis: Redis, stream: string): Promise<Inspection> {
  const [found, info] = await Promise.all([
    readStream(redis, stream),
    // From INFO rather than CONFIG, which managed Redis forbids. Without either, the rest is still worth knowing.
    redis.info('memory').catch(() => ''),
  ]);
  const maxmemoryPolicy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1];
  return { stream: found?.state, ...(found ? { redisMs: found.redisMs } : {}), maxmemoryPolicy };
}

/**
 * What is wrong with a stream. Pure.
 *
 * @param seen what an earlier check saw, of this reader or the one before.
 */
export function diagnose(inspection: Inspection, position: StreamPosition, seen?: StreamState): Diagnosis {
  const { stream, redisMs, maxmemoryPolicy = 'noeviction' } = inspection;
  const problems: Problem[] = [];
  if (maxmemoryPolicy !== 'noeviction') {
    problems.push({
      kind: 'eviction_enabled',
      message: `Redis may drop the stream when its memory is full: set maxmemory-policy to noeviction, it is ${maxmemoryPolicy}`,
    });
  }
  if (stream === undefined) {
    const wasThere = position.offset !== STREAM_START || seen !== undefined;
    if (wasThere) {
      problems.push({
        kind: 'stream_missing',
        message: `the stream does not exist although it was read up to ${position.offset}: find out who deleted or evicted it; entries that were not read must be published again`,
      });
    }
    return { problems, entriesPassed: wasThere ? undefined : position.entriesPassed };
  }
  const ahead = redisMs === undefined ? undefined : idsAhead(stream.lastGeneratedId, redisMs);
  if (ahead !== undefined) {
    problems.push({
      kind: 'stream_ids_ahead',
      message: `${ahead}; set it back: NotificationStreamIdsAhead in the runbook`,
    });
  }
  const regression = regressionOf(stream, position.offset, seen);
  if (regression !== undefined) {
    problems.push({
      kind: 'stream_regressed',
      message: `Redis lost data: ${regression}. The stream is read again; what Redis lost must be published again, and consumers may miss entries too`,
    });
    return { problems, entriesPassed: undefined };
  }
  const { lost, entriesPassed } = lossOf(stream, position, seen);
  if (lost !== undefined) {
    problems.push({
      kind: 'entries_lost',
      message: `${lost} deleted behind offset ${position.offset} before being read: their producers must publish them again; trim only what the offset has passed`,
    });
  }
  return { problems, entriesPassed };
}

function regressionOf(stream: StreamState, offset: string, seen?: StreamState): string | undefined {
  const { lastGeneratedId, entriesAdded } = stream;
  if (compareEntryIds(lastGeneratedId, offset) < 0) {
    return `the last id ${lastGeneratedId} is below the offset ${offset}`;
  }
  if (seen && compareEntryIds(lastGeneratedId, seen.lastGeneratedId) < 0) {
    return `the last id went back from ${seen.lastGeneratedId} to ${lastGeneratedId}`;
  }
  if (seen && entriesAdded < seen.entriesAdded) {
    return `the number of entries ever added went back from ${seen.entriesAdded} to ${entriesAdded}`;
  }
  return undefined;
}

function lossOf(
  stream: NonNullable<Inspection['stream']>,
  position: StreamPosition,
  seen?: StreamState,
): { lost?: string; entriesPassed: number | undefined } {
  const { entriesAdded, maxDeletedEntryId } = stream;
  const unread = unreadOf(stream, position.offset);
  const behind = unread === undefined ? undefined : entriesAdded - unread;
  if (behind !== undefined && position.entriesPassed !== undefined) {
    const lost = behind - position.entriesPassed;
    if (lost <= 0) return { entriesPassed: behind };
    return { lost: lost === 1 ? '1 entry was' : `${lost} entries were`, entriesPassed: behind };
  }
  const isNew = compareEntryIds(maxDeletedEntryId, seen?.maxDeletedEntryId ?? STREAM_START) > 0;
  if (isNew && compareEntryIds(maxDeletedEntryId, position.offset) > 0) {
    // Without an exact count now, these must not be counted as another loss later.
    return { lost: `entries up to ${maxDeletedEntryId} were`, entriesPassed: behind };
  }
  return { entriesPassed: behind ?? position.entriesPassed };
}

/** How many entries lie beyond the offset; undefined when only counting them one by one would tell. */
function unreadOf(stream: NonNullable<Inspection['stream']>, offset: string): number | undefined {
  const { length, firstEntryId, lastGeneratedId } = stream;
  if (length === 0 || compareEntryIds(offset, lastGeneratedId) >= 0) return 0;
  return compareEntryIds(firstEntryId, offset) > 0 ? length : undefined;
}

/** Records are kept so long at least by anybody's clock: an entry from before could be delivered a second time. */
const SHARE_OF_RETENTION = 0.9;

/**
 * Where reading begins again before an entry. Reading an entry again is harmless because of its row, and retention deletes
 * rows. Ids that are no times do not tell their age; those streams are read from 0-0.
 *
 * @param newestId that was ever seen. Ids ahead of `nowMs`, epoch ms, count as of now: a producer chose them.
 */
export function rewindPoint(id: string, newestId: string, recordRetentionMs: number, nowMs: number): string {
  const [ms, newestMs] = [timeOfEntry(id, nowMs).getTime(), timeOfEntry(newestId, nowMs).getTime()];
  if (clockOfEntry(id) === undefined) return STREAM_START;
  const recordedMs = newestMs - Math.floor(SHARE_OF_RETENTION * recordRetentionMs);
  return `${Math.min(Math.max(ms - MARGIN_MS, recordedMs), ms)}-0`;
}
