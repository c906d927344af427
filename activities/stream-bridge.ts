/**
 * The reader of an intent stream: every entry becomes a durably started workflow or a durable malformed row, and only
 * then does the offset pass it (seed "Runtime behavior").
 *
 * Crash only: whatever goes wrong ends the activity, Temporal starts it again here or elsewhere, and it reads on from
 * the saved offset. Reading an entry twice is harmless, since a workflow id is started once and a row written once.
 */
import { ROOT_CONTEXT, context } from '@opentelemetry/api';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient, WorkflowStartOptions } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { ApplicationFailureCategory } from '@temporalio/common';
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import { searchableKey } from '../api/ids.ts';
import type { EntryFields, Intent, MalformedIntent } from '../api/intent.ts';
import { parseIntent } from '../api/intent.ts';
import { BRIDGE_HANDOVER } from '../workflows/failures.ts';
import {
  INTENT_TASK_QUEUE,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../workflows/intent-contract.ts';
import { notificationAttributes } from '../workflows/search-attributes.ts';
import type { BridgeProgress } from '../workflows/stream-bridge-contract.ts';
import { logFieldsOf } from './intent-materialization.ts';
import { recordMalformed } from './malformed-intents.ts';
import { contiguousOffset, loadOffset, saveOffset } from './stream-offset.ts';

/** Entries per read, and workflows being started at once. */
const BATCH_SIZE = 100;
const PARALLEL_STARTS = 50;
/** How long one start may take before it counts as failed, ms. */
const START_DEADLINE_MS = 5_000;
const HEARTBEAT_INTERVAL_MS = 1_000;

export interface BridgeResources {
  db: Pool;
  redis: Redis;
  /** A connection of its own for blocking reads; the reader closes it. */
  openStreamReader(): Redis;
  workflows: WorkflowClient;
  /** Aborted when the process begins to shut down, so that the reader hands over at once. */
  draining: AbortSignal;
  log: Logger;
  bridge: {
    /** BLOCK of one read, ms. */
    blockMs: number;
    /** What a read may take beyond its BLOCK before its connection counts as dead, ms. */
    graceMs: number;
  };
}

export type BridgeActivities = ReturnType<typeof createBridgeActivities>;

export function createBridgeActivities(resources: BridgeResources) {
  const { db, redis, workflows, draining, log, bridge: settings } = resources;

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
      const { progress, stopReporting } = await startProgress(stream);
      const connection = resources.openStreamReader();
      const hangUp = () => connection.disconnect();
      stop.addEventListener('abort', hangUp);
      try {
        while (!stop.aborted) {
          const entries = await read(connection, stream, progress.offset);
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

  async function read(connection: Redis, stream: string, offset: string): Promise<StreamEntry[]> {
    const reply = await withWatchdog(
      connection.xreadBuffer('COUNT', BATCH_SIZE, 'BLOCK', settings.blockMs, 'STREAMS', stream, offset),
      settings.blockMs + settings.graceMs,
    );
    const entries = reply?.[0]?.[1] ?? [];
    return entries.map(([id, fields]) => ({ id: id.toString(), fields: pairs(fields) }));
  }

  /** Handles a batch, then moves the offset past its unbroken run of handled entries. */
  async function advance(stream: string, entries: StreamEntry[], progress: Progress): Promise<void> {
    const limit = pLimit(PARALLEL_STARTS);
    const results = await Promise.allSettled(entries.map((entry) => limit(() => take(entry, progress))));
    const batch = entries.map(({ id }, index) => ({ id, done: results[index]?.status === 'fulfilled' }));
    const offset = contiguousOffset(progress.offset, batch);
    if (offset !== progress.offset) {
      await saveOffset(redis, stream, offset);
      progress.offset = offset;
    }
    const failure = results.find((result) => result.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** Resolves when the entry is durable. */
  async function take({ id, fields }: StreamEntry, progress: Progress): Promise<void> {
    const parsed = parseIntent(id, fields);
    if (parsed.ok) {
      await startNotification(parsed.intent);
      progress.started += 1;
    } else {
      await recordMalformed(db, parsed.malformed);
      logMalformed(parsed.malformed);
      progress.malformed += 1;
    }
  }

  async function startNotification(intent: Intent): Promise<void> {
    const options: WorkflowStartOptions = {
      workflowId: notificationWorkflowId(intent.notificationId),
      taskQueue: INTENT_TASK_QUEUE,
      args: [intent],
      workflowIdReusePolicy: 'REJECT_DUPLICATE',
      requestEagerStart: true,
      typedSearchAttributes: notificationAttributes({
        ...intent,
        idempotencyKey: searchableKey(intent.idempotencyKey),
      }),
      staticSummary: summaryOf(intent),
      // A producer that floods the stream must not starve the others.
      priority: { fairnessKey: intent.producer },
    };
    try {
      // Each notification has a trace of its own: the reader's would grow for as long as it reads.
      await context.with(ROOT_CONTEXT, () =>
        workflows.withDeadline(Date.now() + START_DEADLINE_MS, () =>
          workflows.start(NOTIFICATION_WORKFLOW, options),
        ),
      );
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
    log.debug(logFieldsOf(intent), 'notification started');
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

  /** Progress that is reported with a heartbeat every second for as long as the reader works. */
  async function startProgress(stream: string): Promise<{ progress: Progress; stopReporting: () => void }> {
    const progress = { offset: await loadOffset(redis, stream), started: 0, malformed: 0 };
    const heartbeat = Context.current().heartbeat.bind(Context.current());
    let handledBefore = 0;
    const report = async (): Promise<void> => {
      const handled = progress.started + progress.malformed;
      const rate = Math.round((handled - handledBefore) / (HEARTBEAT_INTERVAL_MS / 1_000));
      handledBefore = handled;
      // A Redis that does not answer fails the read itself; the heartbeat only leaves the figure out.
      const lagMs = await lagOf(stream, progress.offset).catch(() => -1);
      heartbeat({ stream, ...progress, lagMs, rate, findings: [] } satisfies BridgeProgress);
    };
    await report();
    log.info({ stream, offset: progress.offset }, 'stream reader started');
    const timer = setInterval(() => void report(), HEARTBEAT_INTERVAL_MS);
    return { progress, stopReporting: () => clearInterval(timer) };
  }

  /** Age of the oldest entry that the offset has not passed, ms. */
  async function lagOf(stream: string, offset: string): Promise<number> {
    const [oldest] = await redis.xrange(stream, `(${offset}`, '+', 'COUNT', 1);
    return oldest ? Math.max(0, Date.now() - Number(oldest[0].split('-')[0])) : 0;
  }
}

interface StreamEntry {
  id: string;
  fields: EntryFields;
}

type Progress = Pick<BridgeProgress, 'offset' | 'started' | 'malformed'>;

function pairs(flat: Buffer[]): EntryFields {
  const fields: [Buffer, Buffer][] = [];
  for (let i = 0; i + 1 < flat.length; i += 2) fields.push([flat[i]!, flat[i + 1]!]);
  return fields;
}

function summaryOf({ notificationType, audienceKind, recipientUserIds }: Intent): string {
  if (audienceKind === 'admin_email') return `${notificationType} to administrators`;
  const count = recipientUserIds.length;
  return `${notificationType} to ${count} ${count === 1 ? 'recipient' : 'recipients'}`;
}

/** A half-open connection never answers a blocking read; without this the reader would wait on it for ever. */
async function withWatchdog<T>(reply: Promise<T>, limitMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const expired = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new Error(`Redis did not answer a blocking read within ${limitMs} ms`)),
      limitMs,
    );
  });
  try {
    return await Promise.race([reply, expired]);
  } finally {
    clearTimeout(timer);
  }
}
