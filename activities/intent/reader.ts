/**
 * The reader of an intent stream: every entry becomes a row, and the offset passes it in the same statement. Beside it the
 * dispatcher brings the rows to their workflows.
 *
 * Crash only: whatever goes wrong ends the activity, Temporal starts it again here or elsewhere, and it reads on from
 * the saved offset.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import { ApplicationFailureCategory } from '@temporalio/common';
import type { Redis } from 'ioredis';
import { MAX_ENTRY_BYTES, parseIntent } from '../../api/intent/entry.ts';
import { offsetKey, oldestUnprocessedAgeMs } from '../../api/intent/stream.ts';
import { watchEvery } from '../../api/watch.ts';
import { BRIDGE_HANDOVER, BRIDGE_REPLACED } from '../../workflows/failures.ts';
import type { BridgeProgress } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../attempt.ts';
import type { StreamEntry } from '../stream-read.ts';
import { openStream } from '../stream-read.ts';
import type { DispatchResources, Dispatcher } from './dispatch.ts';
import { createDispatcher } from './dispatch.ts';
import type { ReadEntry } from './entries.ts';
import { OffsetMovedError, positionBehind, saveEntries } from './entries.ts';
import { reasonOf } from '../reason.ts';
import type { IntentResources } from './resources.ts';
import { watchOutbound } from './repair.ts';
import type { Progress } from './stream-watch.ts';
import { openProgress, watchStream } from './stream-watch.ts';

/** Entries per read. */
const BATCH_SIZE = 500;
/** While the reader is behind, only urgent intents are dispatched, so that none waits in the stream; for so long at most, ms. */
const CATCH_UP_MS = 10_000;
/** How often there may be something to report, ms. */
const REPORT_INTERVAL_MS = 1_000;
/** With nothing to report, ms: each heartbeat is an Action that Temporal Cloud bills, and brings the request to pause. */
const QUIET_HEARTBEAT_MS = 8_000;

export type BridgeResources = Pick<
  IntentResources,
  'db' | 'redis' | 'workflows' | 'log' | 'metrics' | 'catalog' | 'route' | 'bridge' | 'retention'
> & {
  deliverTogether: DispatchResources['deliverTogether'];
  /** A connection for blocking reads alone, which breaks when Redis is silent for longer than a read may take. */
  openStreamReader(): Redis;
  /** Aborted when the process begins to shut down, so that the reader hands over immediately. */
  draining: AbortSignal;
};

export type BridgeActivities = ReturnType<typeof createBridgeActivities>;

export function createBridgeActivities(resources: BridgeResources) {
  const { redis, draining, log, catalog, bridge: settings } = resources;

  return {
    /**
     * Reads a stream until the process shuts down, the activity is paused or cancelled, or something fails.
     *
     * @throws ApplicationFailure `BridgeHandover` on shutdown, `BridgeReplaced`; CancelledFailure on pause and cancellation;
     * otherwise the cause of the interruption.
     */
    async bridgeStream(stream: string): Promise<void> {
      const activity = Context.current();
      const failed = new AbortController();
      const stop = AbortSignal.any([draining, activity.cancellationSignal, failed.signal]);
      const progress = await openProgress(resources, stream);
      const dispatcher = createDispatcher(resources);
      const stopReporting = report(stream, progress, dispatcher);
      log.info({ stream, offset: progress.offset }, 'stream reader started');
      const orFail = (work: Promise<void>) => work.finally(() => failed.abort());
      try {
        const ended = await Promise.allSettled([
          orFail(read(stream, progress, dispatcher, stop)),
          orFail(dispatcher.run(stop)),
        ]);
        const failures = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
        const isStopped = draining.aborted || activity.cancellationSignal.aborted;
        const failure = failures.find((reason) => !(reason instanceof OffsetMovedError)) ?? failures[0];
        if (!isStopped && !(failure instanceof OffsetMovedError)) throw failure;
      } finally {
        stopReporting();
        const { offset } = progress;
        log.info({ stream, offset, dispatched: dispatcher.dispatched }, 'stream reader stopped');
      }
      if (activity.cancellationSignal.aborted) await activity.cancelled;
      throw ApplicationFailure.create({
        ...(draining.aborted
          ? { type: BRIDGE_HANDOVER, message: 'this process is shutting down; the next worker reads on' }
          : { type: BRIDGE_REPLACED, message: 'the offset was moved; reading goes on from there' }),
        nextRetryDelay: '100 milliseconds',
        // In good order: nothing to warn about.
        category: ApplicationFailureCategory.BENIGN,
      });
    },
  };

  /** Reads until `stop`. */
  async function read(
    stream: string,
    progress: Progress,
    dispatcher: Dispatcher,
    stop: AbortSignal,
  ): Promise<void> {
    const checkStream = watchStream(resources, stream, progress);
    const endOutboundWatch = watchOutbound(resources);
    const connection = resources.openStreamReader();
    const hangUp = () => connection.disconnect();
    stop.addEventListener('abort', hangUp);
    try {
      const bounds = { maxEntryBytes: MAX_ENTRY_BYTES, batchSize: BATCH_SIZE };
      const reading = await openStream(connection, { stream, ...bounds });
      // At first it is: PostgreSQL may have fallen back, and a window that ends carries the newest of what was read by then.
      let behindSinceMs: number | undefined = performance.now();
      while (!stop.aborted) {
        await checkStream();
        const isCatchingUp = behindSinceMs !== undefined && performance.now() - behindSinceMs < CATCH_UP_MS;
        dispatcher.urgentOnly(isCatchingUp);
        const blockMs = isCatchingUp ? 1 : settings.blockMs;
        const { entries, isFull } = await reading.readAfter(progress.offset, offsetKey(stream), blockMs);
        if (entries.length > 0) await takeEntries(stream, entries, progress, dispatcher);
        if (!isFull) behindSinceMs = undefined;
        else behindSinceMs ??= performance.now();
      }
    } catch (error) {
      // Hanging up makes the blocked read fail; that is the stop itself, not a fault.
      if (!stop.aborted || error instanceof OffsetMovedError) throw error;
    } finally {
      stop.removeEventListener('abort', hangUp);
      hangUp();
      await endOutboundWatch();
    }
  }

  async function takeEntries(
    stream: string,
    entries: readonly StreamEntry[],
    progress: Progress,
    dispatcher: Dispatcher,
  ): Promise<void> {
    const to = positionBehind(progress, entries.at(-1)!.id, entries.length);
    const parsed = entries.map(({ id, fields, size }): ReadEntry => ({
      id,
      ...parseIntent(catalog, id, fields, size),
    }));
    const saved = await saveEntries(resources, stream, parsed, progress, to);
    Object.assign(progress, to);
    progress.taken += saved.taken;
    progress.malformed += saved.malformed;
    if (saved.taken > 0) dispatcher.wake();
    await redis.set(offsetKey(stream), to.offset);
  }

  /** Tells Temporal where the reader is: each second what is new, and otherwise now and then that it lives. @returns ends it. */
  function report(stream: string, progress: Progress, dispatcher: Dispatcher): () => void {
    let handledBefore = 0;
    let reported = '';
    let quietUntilMs = 0;
    const watch = watchEvery(REPORT_INTERVAL_MS, reportProgress, (error) =>
      log.warn({ stream, reason: reasonOf(error) }, 'progress not reported'),
    );
    return () => void watch.stop();

    async function reportProgress(): Promise<void> {
      const { offset, taken, malformed, findings, seen } = progress;
      const rate = Math.round((taken + malformed - handledBefore) / (REPORT_INTERVAL_MS / 1_000));
      handledBefore = taken + malformed;
      // A Redis that does not answer fails the read itself; the heartbeat only leaves the figure out.
      const lagMs = await oldestUnprocessedAgeMs(redis, stream, offset, Date.now()).catch(() => -1);
      const { dispatched } = dispatcher;
      const next: BridgeProgress = { stream, offset, lagMs, rate, taken, malformed, dispatched, findings };
      const told = seen ? { ...next, seen } : next;
      const text = JSON.stringify(told);
      if (text === reported && performance.now() < quietUntilMs) return;
      [reported, quietUntilMs] = [text, performance.now() + QUIET_HEARTBEAT_MS];
      heartbeat(told);
    }
  }
}
