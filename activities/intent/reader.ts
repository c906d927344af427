/**
 * The reader of an intent stream: every entry becomes a durably started workflow or a durable malformed row, and only
 * then does the offset pass it.
 *
 * Crash only: whatever goes wrong ends the activity, Temporal starts it again here or elsewhere, and it reads on from
 * the saved offset. Reading an entry twice is harmless, since a workflow id is started once and a row written once.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import { ApplicationFailureCategory } from '@temporalio/common';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import type { MalformedIntent, ParsedIntent } from '../../api/intent/entry.ts';
import { MAX_ENTRY_BYTES, parseIntent } from '../../api/intent/entry.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import { BRIDGE_HANDOVER } from '../../workflows/failures.ts';
import type { DispatchMode } from '../../workflows/intent/contract.ts';
import type { Progress } from './stream-position.ts';
import type { IntakeOptions } from './intake.ts';
import { createIntake } from './intake.ts';
import type { WatchResources } from './stream-watch.ts';
import { lastPosition, watchStream } from './stream-watch.ts';
import type { OutboundWatchResources } from './outbound-watch.ts';
import { watchOutbound } from './outbound-watch.ts';
import { recordMalformed } from './malformed.ts';
import type { StreamEntry } from '../stream-read.ts';
import { openStream } from '../stream-read.ts';
import { contiguousOffset, savePosition, startProgress } from './stream-position.ts';

/** Entries per read at most, and workflows that are being started concurrently. */
const BATCH_SIZE = 100;
const PARALLEL_STARTS = 50;
/**
 * More entries than this in one read are a backlog, which Temporal's task queue puts in order. A notification that
 * makes first attempts itself has nothing that must go before the next one.
 */
const MOST_URGENT = 10;

export interface BridgeResources extends WatchResources, OutboundWatchResources {
  /** A connection for blocking reads alone, which breaks when Redis is silent for longer than a read may take. */
  openStreamReader(): Redis;
  /** Aborted when the process begins to shut down, so that the reader hands over immediately. */
  draining: AbortSignal;
  bridge: {
    /** BLOCK of one read, ms. */
    blockMs: number;
    /** Given to each notification, which keeps to it for life. */
    dispatch: DispatchMode;
  };
}

export type BridgeActivities = ReturnType<typeof createBridgeActivities>;

export function createBridgeActivities(resources: BridgeResources) {
  const { db, redis, draining, log, metrics, bridge: settings } = resources;
  const intake = createIntake(resources);

  return {
    /**
     * Reads a stream until the process shuts down, the activity is paused or cancelled, or something fails.
     *
     * @throws ApplicationFailure `BridgeHandover` on shutdown; CancelledFailure on pause and cancellation; otherwise
     * the cause of the interruption.
     */
    async bridgeStream(stream: string): Promise<void> {
      const activity = Context.current();
      const stop = AbortSignal.any([draining, activity.cancellationSignal]);
      const { progress, stopReporting } = await startProgress(
        redis,
        stream,
        await lastPosition(resources, stream),
      );
      log.info({ stream, offset: progress.offset }, 'stream reader started');
      const checkStream = watchStream(resources, stream, progress);
      const checkOutbound = watchOutbound(resources);
      const connection = resources.openStreamReader();
      const hangUp = () => connection.disconnect();
      stop.addEventListener('abort', hangUp);
      try {
        const reading = await openStream(connection, {
          stream,
          maxEntryBytes: MAX_ENTRY_BYTES,
          batchSize: BATCH_SIZE,
        });
        while (!stop.aborted) {
          await Promise.all([checkStream(), checkOutbound()]);
          const entries = await reading.readAfter(progress.offset, offsetKey(stream), settings.blockMs);
          if (entries.length > 0) await advance(stream, entries, progress);
        }
      } catch (error) {
        // Hanging up makes the blocked read fail; that is the stop itself, not a fault.
        if (!stop.aborted) throw error;
      } finally {
        stop.removeEventListener('abort', hangUp);
        hangUp();
        stopReporting();
        log.info({ stream, offset: progress.offset, started: progress.started }, 'stream reader stopped');
      }
      if (activity.cancellationSignal.aborted) await activity.cancelled;
      throw ApplicationFailure.create({
        type: BRIDGE_HANDOVER,
        message: 'this process is shutting down; the next worker reads on',
        nextRetryDelay: '100 milliseconds',
        // In good order: nothing to warn about.
        category: ApplicationFailureCategory.BENIGN,
      });
    },
  };

  /** Handles a batch, then moves the offset past its unbroken run of handled entries. */
  async function advance(stream: string, entries: StreamEntry[], progress: Progress): Promise<void> {
    const limit = pLimit(PARALLEL_STARTS);
    const isUrgent = settings.dispatch === 'on_failure' || entries.length <= MOST_URGENT;
    const parsed = entries.map(({ id, fields, size }) => parseIntent(id, fields, size));
    const { readBefore } = progress;
    const options = { isUrgent, readBefore, known: await intake.lookUp(parsed, readBefore) };
    const results = await Promise.allSettled(
      parsed.map((entry) => limit(() => take(entry, progress, options))),
    );
    const lastStarted = parsed.findLast((_, index) => (results[index] as { value?: boolean }).value);
    const startedId = lastStarted?.ok ? lastStarted.intent.notificationId : undefined;
    if (startedId !== undefined) progress.startedSinceLook.push(startedId);
    const batch = entries.map(({ id }, index) => ({ id, done: results[index]?.status === 'fulfilled' }));
    const offset = contiguousOffset(progress.offset, batch);
    if (offset !== progress.offset) {
      const passed = batch.findIndex(({ id }) => id === offset) + 1;
      const entriesPassed =
        progress.entriesPassed === undefined ? undefined : progress.entriesPassed + passed;
      // A reader that dies before it looks leaves to the next one what Temporal must know.
      await savePosition(redis, stream, { offset, entriesPassed, ...(startedId ? { startedId } : {}) });
      Object.assign(progress, { offset, entriesPassed });
    }
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** @returns whether it is started. Resolves when the entry is durable. */
  async function take(parsed: ParsedIntent, progress: Progress, options: IntakeOptions): Promise<boolean> {
    const malformed = parsed.ok ? await intake.begin(parsed.intent, options) : parsed.malformed;
    if (typeof malformed === 'boolean') {
      progress.started += 1;
      return malformed;
    }
    const { recorded, isNew } = await recordMalformed(db, malformed);
    logMalformed(recorded);
    if (isNew) {
      const { failureCode: failure_code, notificationType: notification_type, producer } = recorded;
      metrics.intentMalformed({ failure_code, notification_type, producer });
    }
    progress.malformed += 1;
    return false;
  }

  function logMalformed({ streamEntryId, failureCode, failureMessage, ...rest }: MalformedIntent): void {
    log.warn(
      {
        notification_id: streamEntryId,
        ...(rest.notificationType === undefined ? {} : { notification_type: rest.notificationType }),
        ...(rest.producer === undefined ? {} : { producer: rest.producer }),
        ...(rest.idempotencyKey === undefined ? {} : { idempotency_key: rest.idempotencyKey }),
        outcome: 'malformed',
        failure_code: failureCode,
        reason: failureMessage,
      },
      'malformed intent recorded',
    );
  }
}
