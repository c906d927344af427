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
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import type { FirstTry } from './acceptance.ts';
import { createTaskCheck, showLife } from './reader-life.ts';
import type { Progress } from './stream-position.ts';
import type { TakenIntent } from './decisions.ts';
import type { IntakeOptions, Taken } from './intake.ts';
import { createIntake } from './intake.ts';
import type { InHand, Place } from './in-hand.ts';
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
import type { ReadEntry, Unit } from './units.ts';
import { unitsOf } from './units.ts';
import { openStream } from '../stream-read.ts';
import { contiguousOffset, savePosition, startProgress } from './stream-position.ts';
import { hasIdleWorkersElsewhere } from '../workflows.ts';

/** Entries per read at most, unless a slice may have more. */
const BATCH_SIZE = 100;
/**
 * More entries than this in one read are a backlog. Of several producers Temporal's task queue puts it in order, so that
 * each gets its turns; one alone needs none.
 */
const MOST_URGENT = 10;
/** Whoever was among the last so many intents is there. */
const REMEMBERED_PRODUCERS_OF = 1_000;

/** Of one reader, when the next one begins. */
const MOST_STARTED_BEFORE = 1_000;

export interface BridgeResources extends WatchResources, OutboundWatchResources {
  /** A connection for blocking reads alone, which breaks when Redis is silent for longer than a read may take. */
  openStreamReader(): Redis;
  /** Aborted when the process begins to shut down, so that the reader hands over immediately. */
  draining: AbortSignal;
  outcomes: Outcomes;
  inHand: InHand;
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
  const { db, redis, workflows, draining, log, inHand, bridge: settings } = resources;
  const intake = createIntake(resources);
  const areOthersFree = () => hasIdleWorkersElsewhere(workflows, INTENT_TASK_QUEUE);

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
        const producers = createProducerMemory();
        lookAhead = createLookAhead({
          lookAfter: (id, options) => reading.lookAfter(id, offsetKey(stream), options),
          mustWait: (intent) => slices?.hasKeyOf([intent]) ?? false,
          producerOfBacklog: producers.theOne,
          start: (intent, isUrgent) =>
            inOrderOfKeys([intent], (told) =>
              take([{ ok: true, intent }], told, progress, {
                ...{ isUrgent, readBefore: progress.readBefore, known: new Map() },
              }),
            ),
          ...{ progress, stop },
        });
        const { during } = lookAhead;
        const work = { progress, inOrderOfKeys, slices, producers, lookAhead, stop };
        for (let isFirst = true; !stop.aborted;) {
          await during(Promise.all([checkStream(), checkOutbound()]));
          const entries = await reading.readAfter(progress.offset, offsetKey(stream), settings.blockMs);
          if (entries.length === 0) continue;
          const read = entries.map(({ id, fields, size }) => ({
            id,
            parsed: parseIntent(id, fields, size),
            size,
          }));
          producers.remember(read.flatMap(({ parsed }) => (parsed.ok ? [parsed.intent] : [])));
          if (isFirst) await lookAhead.begin();
          isFirst = false;
          await during(advance(stream, read, work));
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
    read: readonly (ReadEntry & { id: string })[],
    { progress, inOrderOfKeys, slices, producers, lookAhead, stop }: Reading,
  ): Promise<void> {
    const limit = pLimit(PARALLEL_STARTS);
    const { readBefore } = progress;
    const known = await intake.lookUp(
      read.map(({ parsed }) => parsed),
      readBefore,
    );
    const units = unitsOf(read, { readBefore, intentsPerWorkflow: settings.intentsPerWorkflow });
    const isOfOne = producers.theOne() !== undefined;
    const startAhead = ([entry, ...more]: Unit) =>
      more.length === 0 ? lookAhead.startOf(idOf(entry) ?? '') : undefined;
    const placeOf = (unit: Unit): Promise<Place | undefined> | Place => {
      const [intent, ...more] = intentsOf(unit);
      if (isOfOne && intent && more.length === 0 && !startAhead(unit))
        return inHand.place(intent.notificationId, stop, areOthersFree);
      return settings.dispatch === 'on_failure' || read.length <= MOST_URGENT ? 'here' : 'elsewhere';
    };
    const begun: Promise<boolean>[] = [];
    for (const unit of units) {
      const intents = intentsOf(unit);
      // Those that are left are read by the next reader.
      if (slices && !(await slices.mayBegin(intents, stop))) break;
      const place = await placeOf(unit);
      if (place === undefined) break;
      const isUrgent = place === 'here';
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
    const batch = read.map(({ id, parsed }) => ({ id, done: done.has(parsed) }));
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
    const taken = await takeAll(unit, intents, options);
    const malformed = taken.filter((one) => one === 'malformed').length;
    progress.malformed += malformed;
    progress.started += taken.length - malformed;
    return taken.includes('started');
  }

  async function takeAll(
    [entry]: Unit,
    intents: readonly TakenIntent[],
    options: IntakeOptions,
  ): Promise<Taken[]> {
    if (intents.length > 1) return intake.takeSlice(intents, options);
    const [intent] = intents;
    let taken: Taken | undefined;
    try {
      taken = await intake.take(intent ? { ok: true, intent } : entry!, options);
      return [taken];
    } finally {
      // Nothing is done for it here.
      if (intent && taken !== 'started') inHand.done(intent.notificationId);
    }
  }
}

/** Whose intents were read of late. */
function createProducerMemory() {
  const lastOf = new Map<string, number>();
  let count = 0;
  return {
    remember(intents: readonly Intent[]): void {
      for (const { producer } of intents) lastOf.set(producer, (count += 1));
    },
    /** The only one; undefined when there are several. */
    theOne(): string | undefined {
      const recent = [...lastOf].filter(([, last]) => last > count - REMEMBERED_PRODUCERS_OF);
      return recent.length === 1 ? recent[0]![0] : undefined;
    },
  };
}

/** Of one reader. */
interface Reading {
  progress: Progress;
  inOrderOfKeys: ReturnType<typeof createKeyOrder>;
  /** Absent when each intent has a workflow of its own. */
  slices: SlicesUnderWay | undefined;
  producers: ReturnType<typeof createProducerMemory>;
  lookAhead: LookAhead;
  stop: AbortSignal;
}

const intentsOf = (unit: Unit): Intent[] => unit.flatMap((entry) => (entry.ok ? [entry.intent] : []));

const idOf = (entry: ParsedIntent | undefined): string | undefined =>
  entry?.ok ? entry.intent.notificationId : undefined;
