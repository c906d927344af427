/** The reader's watch over its stream: checks it, says what it finds, and reads again what may have been missed. */
import type { Redis } from 'ioredis';
import type { Logger } from 'pino';
import { STREAM_START } from '../../api/stream-ids.ts';
import type { StreamFinding, StreamFindingKind } from '../../workflows/intent/reader-contract.ts';
import type { Progress } from './stream-position.ts';
import type { RetentionResources } from '../retention.ts';
import type { IntentMetrics } from './metrics.ts';
import type { Inspection, Problem } from './stream-health.ts';
import { diagnose, inspectStream, rereadFrom } from './stream-health.ts';
import { rewindOffset, savePosition } from './stream-position.ts';
import { reasonOf } from '../reason.ts';

/** Two cheap commands; each second, so that an operator hears of a loss while its cause can still be seen. */
const CHECK_INTERVAL_MS = 1_000;
/** For each time that Redis had to copy so much for a check, bytes, the next one is due an interval later. */
const EFFORT_OF_INTERVAL = 1 << 20;

/** These last until somebody mends them and are reported once; the others are events. */
const LASTING: readonly StreamFindingKind[] = ['stream_missing', 'eviction_enabled'];
/** After these, entries may have lower ids than the offset, which XREAD would never return. */
const READ_ANEW: readonly StreamFindingKind[] = ['stream_missing', 'stream_regressed'];

export interface WatchResources {
  redis: Redis;
  log: Logger;
  metrics: IntentMetrics;
  retention: RetentionResources['retention'];
}

/**
 * Prepares the checks of one reader.
 *
 * @returns checks the stream when that is due, and may move `progress` back. To be called between reads: what is being
 * handled would move the offset too. Never throws; a check that fails is made again.
 */
export function watchStream(
  { redis, log, metrics, retention }: WatchResources,
  stream: string,
  progress: Progress,
): () => Promise<void> {
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
      if (!lastCheckFailed) log.warn({ stream, reason: reasonOf(error) }, 'stream not checked');
      lastCheckFailed = true;
    }
  };

  async function check(): Promise<Inspection> {
    const inspection = await inspectStream(redis, stream);
    const { problems, entriesPassed } = diagnose(inspection, progress, progress.seen);
    const { offset } = progress;
    const news = problems.filter(({ kind }) => !LASTING.includes(kind) || !findingOf(kind));
    if (news.some(({ kind }) => READ_ANEW.includes(kind))) await readAnew(inspection);
    // The next reader must not find the same loss again.
    if (news.some(({ kind }) => kind === 'entries_lost')) {
      await savePosition(redis, stream, { offset, entriesPassed });
    }
    // Only now: had something failed, the next check must find all this again.
    progress.entriesPassed = entriesPassed;
    progress.seen = stateToRemember(inspection, problems);
    progress.findings = progress.findings.filter(
      ({ kind }) => !LASTING.includes(kind) || problems.some((problem) => problem.kind === kind),
    );
    for (const problem of news) report(problem, offset);
    return inspection;
  }

  function findingOf(wanted: StreamFindingKind): StreamFinding | undefined {
    return progress.findings.find(({ kind }) => kind === wanted);
  }

  async function readAnew({ stream: state }: Inspection): Promise<void> {
    const { offset } = progress;
    const from = rereadFrom(offset, state?.lastGeneratedId, Date.now(), retention.recordRetentionMs);
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
