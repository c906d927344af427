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
import type { Intent, ParsedIntent } from '../../api/intent/entry.ts';
import { MAX_ENTRY_BYTES, parseIntent } from '../../api/intent/entry.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import { BRIDGE_HANDOVER, BRIDGE_REPLACED } from '../../workflows/failures.ts';
import type { DispatchMode } from '../../workflows/intent/contract.ts';
import type { FirstTry } from './acceptance.ts';
import { createTaskCheck, showLife } from './reader-life.ts';
import type { Progress } from './stream-position.ts';
import type { TakenIntent } from './decisions.ts';
import type { IntakeOptions } from './intake.ts';
import { createIntake } from './intake.ts';
import { createKeyOrder } from './key-order.ts';
import type { LookAhead } from './look-ahead.ts';
import { createLookAhead } from './look-ahead.ts';
import type { Outcomes } from './outcomes.ts';
import type { WatchResources } from './stream-watch.ts';
import { lastPosition, watchStream } from './stream-watch.ts';
import type { OutboundWatchResources } from './outbound-watch.ts';
import { watchOutbound } from './outbound-watch.ts';
import type { SlicesUnderWay } from './slices-under-way.ts';
import { findSlicesUnderWay } from './slices-under-way.ts';
import { PARALLEL_STARTS } from './start.ts';
import type { Unit } from './units.ts';
import { unitsOf } from './units.ts';
import type { StreamEntry } from '../stream-read.ts';
import { openStream } from '../stream-read.ts';
import { contiguousOffset, savePosition, startProgress } from './stream-position.ts';

/** Entries per read at most, unless a slice may have more. */
const BATCH_SIZE = 100;
/**
 * More entries than this in one read are a backlog, which Temporal's task queue puts in order. A notification that
 * makes first attempts itself has nothing that must go before the next one.
 */
const MOST_URGENT = 10;

/** Of one reader, when the next one begins. */
const MOST_STARTED_BEFORE = 1_000;

export interface BridgeResources extends WatchResources, OutboundWatchResources {
  /** A connection for blocking reads alone, which breaks when Redis is silent for longer than a read may take. */
  openStreamReader(): Redis;
  /** Aborted when the process begins to shut down, so that the reader hands over immediately. */
  draining: AbortSignal;
  outcomes: Outcomes;
  firstTry: FirstTry;
  bridge: {
    /** BLOCK of one read, ms. */
    blockMs: number;
    /** Given to each notification, which keeps to it for life. */
    dispatch: DispatchMode;
    /** Intents of one workflow at most: with more than one, what is read together becomes slices. */
    intentsPerWorkflow: number;
  };
}

export type BridgeActivities = ReturnType<typeof createBridgeActivities>;

export function createBridgeActivities(resources: BridgeResources) {
  const { db, redis, workflows, draining, log, bridge: settings } = resources;
  const intake = createIntake(resources);

  return {
    /**
     * Reads a stream until the process shuts down, the activity is paused or cancelled, or something fails.
     *
     * @throws ApplicationFailure `BridgeHandover` on shutdown, `BridgeReplaced`; CancelledFailure on pause and cancellation; otherwise
     * the cause of the interruption.
     */
    async bridgeStream(stream: string): Promise<void> {
      const activity = Context.current();
      const replaced = new AbortController();
      const stop = AbortSignal.any([draining, activity.cancellationSignal, replaced.signal]);
      const position = await lastPosition(resources, stream);
      const isHeartbeatWanted = createTaskCheck(workflows, activity.info);
      const { progress, stopReporting } = await startProgress(redis, stream, position, isHeartbeatWanted);
      log.info({ stream, offset: progress.offset }, 'stream reader started');
      const checkStream = watchStream(resources, stream, progress);
      const checkOutbound = watchOutbound(resources);
      const connection = resources.openStreamReader();
      const hangUp = () => connection.disconnect();
      stop.addEventListener('abort', hangUp);
      let endLife: (() => void) | undefined;
      let lookAhead: LookAhead | undefined;
      try {
        endLife = await showLife(redis, stream, activity.info, () => replaced.abort());
        const reading = await openStream(connection, {
          stream,
          maxEntryBytes: MAX_ENTRY_BYTES,
          batchSize: Math.max(BATCH_SIZE, settings.intentsPerWorkflow),
        });
        // They may be undecided: the process of the reader before may have ended with them.
        const before = await reading.readUpTo(progress.offset, MOST_STARTED_BEFORE);
        const inOrderOfKeys = createKeyOrder(
          db,
          before.flatMap(({ id, fields, size }) => intentsOf([parseIntent(id, fields, size)])),
        );
        const slices = settings.intentsPerWorkflow > 1 ? await findSlicesUnderWay(workflows, db) : undefined;
        lookAhead = createLookAhead({
          lookAfter: (id, options) => reading.lookAfter(id, offsetKey(stream), options),
          mustWait: (intent) => slices?.hasKeyOf([intent]) ?? false,
          start: (intent) =>
            inOrderOfKeys([intent], (told) =>
              take([{ ok: true, intent }], told, progress, {
                ...{ isUrgent: true, readBefore: progress.readBefore, known: new Map() },
              }),
            ),
          ...{ progress, stop },
        });
        const { during } = lookAhead;
        await lookAhead.begin();
        while (!stop.aborted) {
          await during(Promise.all([checkStream(), checkOutbound()]));
          const entries = await reading.readAfter(progress.offset, offsetKey(stream), settings.blockMs);
          if (entries.length > 0)
            await during(advance(stream, entries, { progress, inOrderOfKeys, slices, lookAhead, stop }));
        }
      } catch (error) {
        // Hanging up makes the blocked read fail; that is the stop itself, not a fault.
        if (!stop.aborted) throw error;
      } finally {
        stop.removeEventListener('abort', hangUp);
        hangUp();
        await lookAhead?.end();
        endLife?.();
        stopReporting();
        log.info({ stream, offset: progress.offset, started: progress.started }, 'stream reader stopped');
      }
      if (activity.cancellationSignal.aborted) await activity.cancelled;
      throw ApplicationFailure.create({
        ...(draining.aborted
          ? { type: BRIDGE_HANDOVER, message: 'this process is shutting down; the next worker reads on' }
          : { type: BRIDGE_REPLACED, message: 'another attempt at reading has begun' }),
        nextRetryDelay: '100 milliseconds',
        // In good order: nothing to warn about.
        category: ApplicationFailureCategory.BENIGN,
      });
    },
  };

  /** Handles a batch, then moves the offset past its unbroken run of handled entries. */
  async function advance(
    stream: string,
    entries: StreamEntry[],
    { progress, inOrderOfKeys, slices, lookAhead, stop }: Reading,
  ): Promise<void> {
    const limit = pLimit(PARALLEL_STARTS);
    const isUrgent = settings.dispatch === 'on_failure' || entries.length <= MOST_URGENT;
    const read = entries.map(({ id, fields, size }) => ({ parsed: parseIntent(id, fields, size), size }));
    const { readBefore } = progress;
    const known = await intake.lookUp(
      read.map(({ parsed }) => parsed),
      readBefore,
    );
    const units = unitsOf(read, { readBefore, intentsPerWorkflow: settings.intentsPerWorkflow });
    const startAhead = ([entry, ...more]: Unit) =>
      more.length === 0 ? lookAhead.startOf(idOf(entry) ?? '') : undefined;
    const begun: Promise<boolean>[] = [];
    for (const unit of units) {
      const intents = intentsOf(unit);
      // Those that are left are read by the next reader.
      if (slices && !(await slices.mayBegin(intents, stop))) break;
      const begin = (told: readonly TakenIntent[]) =>
        take(unit, told, progress, { isUrgent, readBefore, known });
      const started = limit(() => startAhead(unit) ?? inOrderOfKeys(intents, begin));
      // Looked at below, when all are begun.
      started.catch(() => undefined);
      begun.push(started);
      if (intents.length > 1) slices?.begun(intents, started);
    }
    const results = await Promise.allSettled(begun);
    const done = new Set(
      units.flatMap((unit, index) => (results[index]?.status === 'fulfilled' ? unit : [])),
    );
    const isStarted = (_: Unit, index: number) =>
      (results[index] as { value?: boolean } | undefined)?.value === true;
    const startedId = idOf(units.filter(isStarted).at(-1)?.[0]);
    if (startedId !== undefined) progress.startedSinceLook.push(startedId);
    const batch = read.map(({ parsed }, index) => ({ id: entries[index]!.id, done: done.has(parsed) }));
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

  /** @returns whether something of it is started. Resolves when all of its entries are durable. */
  async function take(
    unit: Unit,
    intents: readonly TakenIntent[],
    progress: Progress,
    options: IntakeOptions,
  ): Promise<boolean> {
    const [intent] = intents;
    const taken =
      intents.length > 1
        ? await intake.takeSlice(intents, options)
        : [await intake.take(intent ? { ok: true, intent } : unit[0]!, options)];
    const malformed = taken.filter((one) => one === 'malformed').length;
    progress.malformed += malformed;
    progress.started += taken.length - malformed;
    return taken.includes('started');
  }
}

/** Of one reader. */
interface Reading {
  progress: Progress;
  inOrderOfKeys: ReturnType<typeof createKeyOrder>;
  /** Absent when each intent has a workflow of its own. */
  slices: SlicesUnderWay | undefined;
  lookAhead: LookAhead;
  stop: AbortSignal;
}

const intentsOf = (unit: Unit): Intent[] => unit.flatMap((entry) => (entry.ok ? [entry.intent] : []));

const idOf = (entry: ParsedIntent | undefined): string | undefined =>
  entry?.ok ? entry.intent.notificationId : undefined;
