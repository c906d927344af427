/**
 * The reader's watch over its stream: checks it, says what it finds, and reads again what may have been missed.
 *
 * Any of the three stores may fall back to an earlier state. Redis then lacks entries, or has others. PostgreSQL lacks
 * the rows of intents that were decided, Temporal the workflows of those that were not. Whichever it is, the entries
 * from some time before the last look in health are read again, and of them all that have no row are begun again.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { STREAM_START, compareEntryIds, later, sooner } from '../../api/stream-ids.ts';
import type { StreamFinding, StreamFindingKind } from '../../workflows/intent/reader-contract.ts';
import { reasonOf } from '../reason.ts';
import type { RetentionResources } from '../retention.ts';
import type { IntentMetrics } from './metrics.ts';
import { isKnownToTemporal } from './owner.ts';
import type { Inspection, Problem } from './stream-health.ts';
import { diagnose, inspectStream, rewindPoint } from './stream-health.ts';
import type { StreamMemory } from '../stream-memory.ts';
import { recall, remember } from '../stream-memory.ts';
import type { Progress, StreamPosition } from './stream-position.ts';
import { loadPosition, rewindOffset, savePosition } from './stream-position.ts';

/** A few cheap commands; each second, so that an operator hears of a loss while its cause can still be seen. */
const CHECK_INTERVAL_MS = 1_000;
/** For each time that Redis had to copy so much for a check, bytes, the next one is due an interval later. */
const EFFORT_OF_INTERVAL = 1 << 20;
/**
 * How far before the last look in health entries are read again, ms. Longer than an intent that was read takes until it
 * has a row, unless it waits, and then it has one; and than clocks differ.
 */
const MARGIN_MS = 3_600_000;
/** The same after PostgreSQL was restarted: its last moment may be gone, and nothing tells. */
const RESTART_MARGIN_MS = 300_000;
/** Of the notifications that were started between two looks, so many are looked for in Temporal. */
const MOST_STARTED = 10;

/** These last until somebody mends them and are reported once; the others are events. */
const LASTING: readonly StreamFindingKind[] = ['stream_missing', 'eviction_enabled', 'stream_ids_ahead'];
/** After these, entries may have lower ids than the offset, which XREAD would never return. */
const OF_REDIS: readonly StreamFindingKind[] = ['stream_missing', 'stream_regressed'];

export interface WatchResources {
  db: Pool;
  redis: Redis;
  workflows: WorkflowClient;
  log: Logger;
  metrics: IntentMetrics;
  retention: RetentionResources['retention'];
}

/**
 * Where the last reader was: as Redis says, or else PostgreSQL.
 *
 * @throws ApplicationFailure of PostgreSQL; what Redis fails with.
 */
export async function lastPosition(
  { db, redis }: Pick<WatchResources, 'db' | 'redis'>,
  stream: string,
): Promise<StreamPosition> {
  const saved = await loadPosition(redis, stream);
  if (saved) return saved;
  const { passedId = STREAM_START } = await recall({ db, redis, role: 'intent', stream });
  // Whoever read before has passed nothing, and saved no offset either: none is lost.
  if (passedId === STREAM_START) return { offset: STREAM_START, entriesPassed: 0 };
  return { offset: passedId, entriesPassed: undefined, isRecalled: true };
}

/**
 * Prepares the checks of one reader.
 *
 * @returns checks the stream when that is due, and may move `progress` back. To be called between reads: what is being
 * handled would move the offset too. Never throws; a check that fails is made again.
 */
export function watchStream(
  { db, redis, workflows, log, metrics, retention }: WatchResources,
  stream: string,
  progress: Progress,
): () => Promise<void> {
  const owner = { db, redis, role: 'intent', stream };
  let dueAtMs = 0;
  let lastCheckFailed = false;
  /** Notifications that Temporal has acknowledged and must know, besides the one of the row. */
  let acknowledged = progress.startedId === undefined ? [] : [progress.startedId];

  return async () => {
    if (performance.now() < dueAtMs) return;
    dueAtMs = performance.now() + CHECK_INTERVAL_MS;
    try {
      const { effortBytes = 0 } = await check();
      dueAtMs += (effortBytes / EFFORT_OF_INTERVAL) * CHECK_INTERVAL_MS;
      lastCheckFailed = false;
    } catch (error) {
      if (!lastCheckFailed) log.warn({ stream, reason: reasonOf(error) }, 'stream not checked');
      lastCheckFailed = true;
    }
  };

  async function check(): Promise<Inspection> {
    const [inspection, memory] = await Promise.all([inspectStream(redis, stream), recall(owner)]);
    progress.seen ??= memory.seen;
    progress.readBefore = later(progress.readBefore, memory.passedId ?? STREAM_START);
    const { problems: ofStream, entriesPassed } = diagnose(inspection, progress, progress.seen);
    const { offset, startedSinceLook } = progress;
    const mustBeKnown = new Set([memory.startedId ?? [], memory.isRecent ? acknowledged : []].flat());
    const lost = await lostByTemporal([...mustBeKnown]);
    const problems = [...ofStream, ...problemsOf(memory, progress, lost)];
    const news = problems.filter(({ kind }) => !LASTING.includes(kind) || !findingOf(kind));

    const from = whereToReadFrom(inspection, memory, new Set(news.map(({ kind }) => kind)));
    if (from !== undefined) await readAgainFrom(from, inspection);
    // The next reader must not find the same loss again.
    else if (news.some(({ kind }) => kind === 'entries_lost' || kind === 'offset_lost')) {
      await savePosition(redis, stream, { offset, entriesPassed });
    }
    const seen = stateToRemember(inspection, problems);
    // What Temporal has lost and has a row is not started again: nobody must look for it once more.
    const startedId = startedSinceLook.at(-1) ?? (lost === undefined ? undefined : null);
    // Entries that are read again were passed all the same.
    const passedId = later(progress.offset, progress.readBefore);
    await remember(owner, { passedId, seen, startedId }, memory);
    // Only now: had something failed, the next check must find all this again.
    progress.entriesPassed = from === undefined ? entriesPassed : undefined;
    progress.seen = seen;
    progress.startedSinceLook = [];
    progress.isRecalled = false;
    acknowledged = startedSinceLook.slice(-MOST_STARTED);
    progress.findings = progress.findings.filter(
      ({ kind }) => !LASTING.includes(kind) || problems.some((problem) => problem.kind === kind),
    );
    for (const problem of news) report(problem, offset);
    return inspection;
  }

  function findingOf(wanted: StreamFindingKind): StreamFinding | undefined {
    return progress.findings.find(({ kind }) => kind === wanted);
  }

  /** @returns one of these notifications that Temporal does not know. */
  async function lostByTemporal(ids: readonly string[]): Promise<string | undefined> {
    const known = await Promise.all(ids.map((id) => isKnownToTemporal(workflows, id)));
    return ids.find((_, index) => !known[index]);
  }

  /** @returns undefined when there is no reason to go back. */
  function whereToReadFrom(
    { stream: state }: Inspection,
    { postgres, passedId, rewindTo }: StreamMemory,
    found: ReadonlySet<StreamFindingKind>,
  ): string | undefined {
    const { offset } = progress;
    const newest = later(offset, state?.lastGeneratedId ?? STREAM_START);
    const before = (id: string, marginMs = MARGIN_MS) =>
      rewindPoint(id, marginMs, newest, retention.recordRetentionMs, Date.now());
    const points = [
      ...(OF_REDIS.some((kind) => found.has(kind)) ? [before(sooner(offset, state?.lastGeneratedId))] : []),
      ...(found.has('postgres_regressed') ? [before(sooner(offset, passedId))] : []),
      ...(found.has('temporal_regressed') ? [before(offset)] : []),
      ...(postgres === 'restarted' ? [before(offset, RESTART_MARGIN_MS)] : []),
      ...(rewindTo === undefined ? [] : [rewindTo]),
    ];
    const from = points.sort(compareEntryIds)[0];
    return from === undefined || compareEntryIds(from, offset) >= 0 ? undefined : from;
  }

  async function readAgainFrom(from: string, { stream: state }: Inspection): Promise<void> {
    const { offset } = progress;
    // What comes behind the newest entry is new, whatever was read under its id before.
    progress.readBefore = sooner(later(progress.readBefore, offset), state?.lastGeneratedId);
    progress.offset = await rewindOffset(redis, stream, offset, from);
    log.warn({ stream, offset, read_from: progress.offset }, 'stream is read anew');
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
function problemsOf(
  { postgres, passedId }: StreamMemory,
  { isRecalled, offset }: Progress,
  lostByTemporal: string | undefined,
): Problem[] {
  return [
    ...(isRecalled
      ? [
          {
            kind: 'offset_lost' as const,
            message: `Redis lost the offset: reading went on from ${offset}, which PostgreSQL remembers`,
          },
        ]
      : []),
    ...(postgres === 'regressed'
      ? [
          {
            kind: 'postgres_regressed' as const,
            message: `PostgreSQL fell back to an earlier state: it knows of entries up to ${passedId ?? 'none'}. Entries are read again, and what it has forgotten is done again under the same ids`,
          },
        ]
      : []),
    ...(lostByTemporal === undefined
      ? []
      : [
          {
            kind: 'temporal_regressed' as const,
            message: `Temporal fell back to an earlier state: it does not know notification ${lostByTemporal}, which it had taken. Entries are read again, and those without a row are started again`,
          },
        ]),
  ];
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
