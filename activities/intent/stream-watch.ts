/**
 * The reader's watch over its stream: checks it, says what it finds, and reads again what may have been missed.
 *
 * Any of the stores may fall back to an earlier state. A PostgreSQL that does has forgotten rows and offset together, so
 * reading goes on from there. Redis then lacks entries, or has others: the entries from some time before the last look in
 * health are read again, and those that have a row are left alone.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { offsetKey } from '../../api/intent/stream.ts';
import { STREAM_START, compareEntryIds, later, sooner } from '../../api/stream-ids.ts';
import type {
  StreamFinding,
  StreamFindingKind,
  StreamState,
} from '../../workflows/intent/reader-contract.ts';
import { reasonOf } from '../reason.ts';
import type { StreamPosition } from './entries.ts';
import { OffsetMovedError, copyOffset, loadPosition, moveOffset } from './entries.ts';
import type { IntentMetrics } from './metrics.ts';
import type { Inspection, Problem } from './stream-health.ts';
import { diagnose, inspectStream, rewindPoint } from './stream-health.ts';
import type { StreamMemory } from '../stream-memory.ts';
import { recall, remember } from '../stream-memory.ts';

/** A few cheap commands; each second, so that an operator hears of a loss while its cause can still be seen. */
const CHECK_INTERVAL_MS = 1_000;
/** For each time that Redis had to copy so much for a check, bytes, the next one is due an interval later. */
const EFFORT_OF_INTERVAL = 1 << 20;
/** How far before the last look in health entries are read again, ms: longer than clocks differ. */
const MARGIN_MS = 3_600_000;

/** These last until somebody mends them and are reported once; the others are events. */
const LASTING: readonly StreamFindingKind[] = ['stream_missing', 'eviction_enabled', 'stream_ids_ahead'];
/** After these, entries may have lower ids than the offset, which XREAD would never return. */
const OF_REDIS: readonly StreamFindingKind[] = ['stream_missing', 'stream_regressed'];

export interface WatchResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: IntentMetrics;
  retention: { recordRetentionMs: number };
}

/** Where one reader is. Written by its reading loop alone; heartbeats only show it. */
export interface Progress extends StreamPosition {
  /** Intents that got a row. */
  taken: number;
  malformed: number;
  findings: StreamFinding[];
  /** As the last look saw the stream. */
  seen: StreamState | undefined;
  /** The offset of which Redis has a copy, when that is behind the one that PostgreSQL knows. */
  forgottenAfter: string | undefined;
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
    copy === null
      ? STREAM_START
      : rewindPoint(copy, MARGIN_MS, copy, retention.recordRetentionMs, Date.now());
  const position = await loadPosition(db, stream, start);
  const isForgotten = copy !== null && compareEntryIds(copy, position.offset) > 0;
  return {
    ...position,
    ...{ taken: 0, malformed: 0, findings: [], seen: undefined },
    forgottenAfter: isForgotten ? copy : undefined,
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
      const { effortBytes = 0 } = await check();
      dueAtMs += (effortBytes / EFFORT_OF_INTERVAL) * CHECK_INTERVAL_MS;
      lastCheckFailed = false;
    } catch (error) {
      if (error instanceof OffsetMovedError) throw error;
      if (!lastCheckFailed) log.warn({ stream, reason: reasonOf(error) }, 'stream not checked');
      lastCheckFailed = true;
    }
  };

  async function check(): Promise<Inspection> {
    const [inspection, memory] = await Promise.all([inspectStream(redis, stream), recall(owner)]);
    // PostgreSQL has fallen back, or another reader has begun.
    if (memory.passedId !== progress.offset)
      throw new OffsetMovedError(`${progress.offset} is not the offset any more`);
    progress.seen ??= memory.seen;
    const { offset } = progress;
    const { problems: ofStream, entriesPassed } = diagnose(inspection, progress, progress.seen);
    const problems = [...ofStream, ...problemsOf(memory, progress)];
    const news = problems.filter(({ kind }) => !LASTING.includes(kind) || !findingOf(kind));

    const from = whereToReadFrom(inspection, memory, new Set(news.map(({ kind }) => kind)));
    if (from !== undefined) await readAgainFrom(from);
    // The next reader must not find the same loss again.
    else if (entriesPassed !== progress.entriesPassed)
      await moveOffset(db, stream, offset, { offset, entriesPassed });
    const seen = stateToRemember(inspection, problems);
    await remember(owner, { passedId: undefined, seen }, memory);
    // One that was saved late, or lost by Redis, would mislead producers.
    if (progress.offset !== STREAM_START) await copyOffset(redis, stream, progress.offset);
    // Only now: had something failed, the next check must find all this again.
    progress.entriesPassed = from === undefined ? entriesPassed : undefined;
    progress.seen = seen;
    progress.forgottenAfter = undefined;
    progress.findings = progress.findings.filter(
      ({ kind }) => !LASTING.includes(kind) || problems.some((problem) => problem.kind === kind),
    );
    for (const problem of news) report(problem, offset);
    return inspection;
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
    const newest = later(offset, state?.lastGeneratedId ?? STREAM_START);
    const before = (id: string) =>
      rewindPoint(id, MARGIN_MS, newest, retention.recordRetentionMs, Date.now());
    const points = [
      ...(OF_REDIS.some((kind) => found.has(kind)) ? [before(sooner(offset, state?.lastGeneratedId))] : []),
      ...(rewindTo === undefined ? [] : [rewindTo]),
    ];
    const from = points.sort(compareEntryIds)[0];
    return from === undefined || compareEntryIds(from, offset) >= 0 ? undefined : from;
  }

  async function readAgainFrom(from: string): Promise<void> {
    const { offset } = progress;
    await moveOffset(db, stream, offset, { offset: from, entriesPassed: undefined });
    progress.offset = from;
    log.warn({ stream, offset, read_from: from }, 'stream is read anew');
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

/** What is wrong with the stores besides the stream. */
function problemsOf({ postgres }: StreamMemory, { forgottenAfter, offset }: Progress): Problem[] {
  if (postgres !== 'regressed' && forgottenAfter === undefined) return [];
  const message = `PostgreSQL fell back to an earlier state: it knows of entries up to ${offset}. Reading goes on from there, and what it has forgotten is done again under the same ids`;
  return [{ kind: 'postgres_regressed', message }];
}

function stateToRemember({ stream }: Inspection, problems: Problem[]): Progress['seen'] {
  if (stream) {
    const { length: _length, firstEntryId: _firstEntryId, ...state } = stream;
    return state;
  }
  // That there was one, and nothing that the next stream of this name would fall short of.
  return problems.some(({ kind }) => kind === 'stream_missing')
    ? { lastGeneratedId: STREAM_START }
    : undefined;
}
