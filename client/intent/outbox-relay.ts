/**
 * The relay of an outbox: appends what producers have written to the stream of the service, and keeps it until the
 * service has it.
 *
 * A row is pending until it is in the stream, published until the saved offset of the service has passed its entry, and
 * passed from then on. Published rows that Redis has lost become pending again: the relay knows them by the number of the
 * last batch that Redis remembers, and at the latest when the offset passes an entry that is not there.
 *
 * Relays take turns: the relay that has locked the row of notification_outbox.relay publishes or looks, in one short transaction.
 * So rows are published in their order, however many relays run; what a relay has published and not yet written down when
 * it dies is published again. The key of an intent makes that harmless.
 */
import { once as eventOf } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BatchObservableCallback, Meter } from '@opentelemetry/api';
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Catalog } from '../../api/intent/catalog.ts';
import { entryFieldsOf, parseIntent } from '../../api/intent/entry.ts';
import { SelfExplanatoryError } from '../../api/errors.ts';
import { checkOut, isPooledDatabase } from '../../api/postgres-transaction.ts';
import { causeOf } from '../errors.ts';
import { GALAXY } from '../generated/galaxy.ts';
import { DEFAULT_INTENTS_STREAM } from '../constructors.ts';
import type { PendingRow, RelayRow } from './outbox-rows.ts';
import {
  acceptLoss,
  checkOutbox,
  deleteEnded,
  hasPublishedRows,
  markPassed,
  markPublished,
  outboxStatus,
  pendingRows,
  publishedRows,
  putBack,
  setAside,
  withOutbox,
} from './outbox-rows.ts';
import { appendBatch, findPresent } from './outbox-stream.ts';

/** The channel of outbox.sql. */
const CHANNEL = 'notification_outbox';
/** How often to look what the service has passed, and what Redis has lost, ms. */
const CHECK_INTERVAL_MS = 1_000;
/** What one look may let Redis copy, and how many entries. */
const CHECK_LIMITS = { rows: 500, bytes: 4 << 20 };
/** Between two attempts while a server is away, ms: doubled up to the longest. */
const [SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS] = [250, 5_000];
/** Between two attempts to listen, ms; meanwhile the relay looks by itself. */
const LISTEN_AGAIN_MS = 5_000;

const HOUR_MS = 3_600_000;

export interface OutboxRelayOptions {
  /**
   * The producer's database, where outbox.sql was run. Two connections are used. Through PgBouncer in transaction mode its
   * connection string says `pgbouncer=true`, and the relay looks every `pollMs`.
   */
  db: Pool;
  /** The Redis of the service. It should fail commands while Redis is away, and connect again by itself. */
  redis: Redis;
  /** Default: `notification:intents`. */
  stream?: string;
  /** The notification types; default: those of Galaxy. */
  catalog?: Catalog;
  /** How long to wait for new rows when PostgreSQL tells of none, ms; at most, and by default, 1 s. */
  pollMs?: number;
  /** What one batch may have; default 500 rows, and no further one once they have 1 MiB. */
  batch?: { rows: number; bytes: number };
  /** How long rows stay that the service has passed, ms; default a day. */
  keepPassedMs?: number;
  /** How long rows stay that were set aside, ms; default 90 days. */
  keepSetAsideMs?: number;
  /**
   * For how long the service surely knows a key, ms; less than its NOTIFICATION_IDEMPOTENCY_TTL, default 6 days. A row that
   * Redis loses so long after its publication is set aside.
   */
  keyLifetimeMs?: number;
  /** For lines about what the relay does; pino's loggers do. */
  log?: OutboxLog;
  /** For counters and gauges. */
  meter?: Meter;
}

export interface OutboxLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

/** What a relay has done since it began. */
export interface OutboxCounts {
  /** Entries appended, repeats included. */
  published: number;
  /** Rows that the service has passed. */
  passed: number;
  /** Rows that are published again, since Redis had lost their entries. */
  lost: number;
  /** Rows set aside: the service would refuse them, or may have forgotten their keys. */
  setAside: number;
  /** Rows deleted after their time. */
  deleted: number;
}

export interface OutboxRelay {
  counts: Readonly<OutboxCounts>;
  /** Ends the relay after the batch under way. */
  stop(): Promise<void>;
}

type Settings = Required<Omit<OutboxRelayOptions, 'meter'>>;

const SILENT: OutboxLog = { info: () => undefined, warn: () => undefined };

function settingsOf(options: OutboxRelayOptions): Settings {
  return {
    stream: DEFAULT_INTENTS_STREAM,
    catalog: GALAXY,
    pollMs: 1_000,
    batch: { rows: 500, bytes: 1 << 20 },
    keepPassedMs: 24 * HOUR_MS,
    keepSetAsideMs: 90 * 24 * HOUR_MS,
    keyLifetimeMs: 6 * 24 * HOUR_MS,
    log: SILENT,
    ...options,
  };
}

/**
 * Starts a relay. Servers that are away are waited for; several relays of one outbox may run.
 *
 * @throws OutboxUnusableError when the database has no outbox, or it is not open to the role; what PostgreSQL fails with.
 */
export async function startOutboxRelay(options: OutboxRelayOptions): Promise<OutboxRelay> {
  const settings = settingsOf(options);
  const { db, log, pollMs } = settings;
  await checkOutbox(db);
  const steps = createSteps(settings);
  const stopObserving = options.meter ? observeOutbox(options.meter, db, steps.counts) : () => undefined;
  const stopping = new AbortController();
  const bell = listen(db, log);
  const done = run().finally(async () => {
    stopObserving();
    await bell.stop();
  });
  return {
    counts: steps.counts,
    async stop() {
      stopping.abort();
      await done;
    },
  };

  async function run(): Promise<void> {
    let pauseMs = 0;
    while (!stopping.signal.aborted) {
      bell.reset();
      try {
        const { isMore } = await steps.step();
        if (pauseMs > 0) log.info({ ...steps.counts }, 'outbox relay goes on');
        pauseMs = 0;
        if (!isMore) await bell.wait(Math.min(pollMs, CHECK_INTERVAL_MS), stopping.signal);
      } catch (error) {
        if (pauseMs === 0) log.warn({ reason: causeOf(error) }, 'outbox relay waits');
        pauseMs = Math.min(LONGEST_PAUSE_MS, Math.max(SHORTEST_PAUSE_MS, 2 * pauseMs));
        await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined);
      }
    }
  }
}

/**
 * Publishes what is pending, and ends: for tests, and for a schedule that runs a relay now and then.
 *
 * @throws as {@link startOutboxRelay}, and what PostgreSQL or Redis fails with.
 */
export async function relayOnce(options: OutboxRelayOptions): Promise<OutboxCounts> {
  const settings = settingsOf(options);
  await checkOutbox(settings.db);
  const steps = createSteps(settings);
  for (let isMore = true; isMore;) {
    const done = await steps.step();
    // The relay that holds the lock publishes the rows.
    if (done.isBusy) await sleep(settings.pollMs);
    isMore = done.isMore || done.isBusy;
  }
  return steps.counts;
}

/** The steps of a relay; each is one transaction, and may be the last one that it does. */
function createSteps({ db, redis, stream, catalog, batch: limits, log, ...times }: Settings) {
  const counts: OutboxCounts = { published: 0, passed: 0, lost: 0, setAside: 0, deleted: 0 };
  let checkDueAtMs = 0;
  return { counts, step };

  /** One batch, and a check of published rows when that is due. */
  async function step(): Promise<{ isMore: boolean; isBusy: boolean }> {
    if (performance.now() >= checkDueAtMs) {
      const isMore = await withOutbox(db, checkPublished);
      checkDueAtMs = performance.now() + (isMore ? 0 : CHECK_INTERVAL_MS);
    }
    const isMore = await withOutbox(db, publish);
    return { isMore: isMore === true, isBusy: isMore === undefined };
  }

  /** @returns whether there may be more to publish. */
  async function publish(client: PoolClient, relay: RelayRow): Promise<boolean> {
    const rows = await pendingRows(client, limits);
    if (rows.length === 0) return false;
    const { good, refused } = judged(catalog, rows);
    if (refused.length > 0) {
      await setAside(client, refused);
      for (const { id, code, problem } of refused) {
        log.warn({ row: id, failure_code: code, reason: problem }, 'outbox row set aside');
      }
    }
    if (good.length > 0) {
      const isOpen = await hasPublishedRows(client);
      checkStream(relay, isOpen);
      const batch = relay.batch + 1;
      const required = isOpen ? relay.redisBatch : 0;
      const entries = good.map(({ entry }) => Object.entries(entry).flat());
      const { outboxId } = relay;
      const appended = await appendBatch({ redis, stream, outboxId }, { required, batch, entries });
      // What was lost comes first: it is older.
      if ('knownBatch' in appended) return recover(client, appended.knownBatch);
      const published = appended.ids.map((entryId, index) => ({ id: good[index]!.id, entryId }));
      await markPublished(client, { stream, batch, rows: published });
      counts.published += appended.ids.length;
    }
    counts.setAside += refused.length;
    return true;
  }

  /** @returns whether there is more to check. */
  async function checkPublished(client: PoolClient, relay: RelayRow): Promise<boolean> {
    const passed = await deleteEnded(client, 'passed', times.keepPassedMs);
    const refused = await deleteEnded(client, 'set_aside', times.keepSetAsideMs);
    counts.deleted += passed.deleted + refused.deleted;
    const rows = await publishedRows(client, CHECK_LIMITS);
    if (rows.length === 0) return passed.isFull || refused.isFull;
    checkStream(relay, true);
    const seen = await findPresent(
      { redis, stream, outboxId: relay.outboxId },
      { required: relay.redisBatch, ids: rows.map(({ entryId }) => entryId) },
    );
    if ('knownBatch' in seen) return recover(client, seen.knownBatch);
    const idsThat = (isPresent: boolean) =>
      rows.filter((_, index) => seen.present[index] === isPresent).map(({ id }) => id);
    const [present, gone] = [idsThat(true), idsThat(false)];
    if (present.length > 0) await markPassed(client, present);
    if (gone.length > 0) await publishAgain(client, { ids: gone });
    counts.passed += present.length;
    return seen.present.length === rows.length || passed.isFull || refused.isFull;
  }

  /** Redis fell back, was emptied or replaced. @returns true: this is done before anything else. */
  async function recover(client: PoolClient, knownBatch: number): Promise<true> {
    if (!(await publishAgain(client, { behindBatch: knownBatch }))) await acceptLoss(client, knownBatch);
    checkDueAtMs = 0;
    return true;
  }

  /** @returns whether there may be more of them. */
  async function publishAgain(client: PoolClient, lost: Parameters<typeof putBack>[1]): Promise<boolean> {
    const page = await putBack(client, lost, times.keyLifetimeMs);
    counts.lost += page.pending;
    counts.setAside += page.setAside;
    if (page.pending > 0) log.warn({ stream, rows: page.pending }, 'Redis lost entries: published again');
    if (page.setAside > 0) log.warn({ stream, rows: page.setAside }, 'Redis lost old entries: set aside');
    return page.isFull;
  }

  /** @throws SelfExplanatoryError when entries that were not passed are elsewhere. */
  function checkStream(relay: RelayRow, isOpen: boolean): void {
    if (!isOpen || relay.stream === null || relay.stream === stream) return;
    throw new SelfExplanatoryError(
      `the outbox has entries in the stream ${relay.stream} that the service has not passed; it cannot go on with ${stream} before`,
    );
  }
}

/** The checks of the service, on exactly what would be appended. */
function judged(catalog: Catalog, rows: readonly PendingRow[]) {
  const good: PendingRow[] = [];
  const refused: { id: string; code: string; problem: string }[] = [];
  for (const row of rows) {
    const parsed = parseIntent(catalog, '0-0', entryFieldsOf(row.entry));
    if (parsed.ok) good.push(row);
    else {
      const { failureCode, failureMessage } = parsed.malformed;
      refused.push({ id: row.id, code: failureCode, problem: failureMessage });
    }
  }
  return { good, refused };
}

/** Hears of new rows, on a separate connection, for as long as PostgreSQL lets it. Never throws. */
function listen(db: Pool, log: OutboxLog) {
  let rung = Promise.withResolvers<void>();
  const stopping = new AbortController();
  const stopped = stopping.signal;
  // Through a pooler no notification would arrive, and others would be woken: the relay polls.
  const listening = isPooledDatabase(db) ? Promise.resolve() : keepListening();

  async function keepListening(): Promise<void> {
    for (let hasFailed = false; !stopped.aborted;) {
      try {
        const client = await checkOut(db);
        client.on('notification', () => rung.resolve()).on('error', () => undefined);
        const lost = eventOf(client, 'error', { signal: stopped });
        lost.catch(() => undefined);
        try {
          await client.query(`LISTEN ${CHANNEL}`);
          hasFailed = false;
          rung.resolve();
          await lost;
        } finally {
          client.release(true);
        }
      } catch (error) {
        if (!hasFailed && !stopped.aborted)
          log.warn({ reason: causeOf(error) }, 'outbox relay does not hear of new rows');
        hasFailed = true;
      }
      await sleep(LISTEN_AGAIN_MS, undefined, { signal: stopped }).catch(() => undefined);
    }
  }

  return {
    reset: () => void (rung = Promise.withResolvers<void>()),
    /** Ends when there is something new, after `ms`, or with the signal. */
    async wait(ms: number, signal: AbortSignal): Promise<void> {
      const over = new AbortController();
      const waited = sleep(ms, undefined, { signal: AbortSignal.any([signal, over.signal]) });
      await Promise.race([rung.promise, waited]).catch(() => undefined);
      over.abort();
    },
    async stop() {
      stopping.abort();
      await listening;
    },
  };
}

const COUNTERS: Record<keyof OutboxCounts, string> = {
  published: 'Entries appended, repeats included',
  passed: 'Rows that the service has passed',
  lost: 'Rows published again, since Redis had lost their entries',
  setAside: 'Rows set aside, which a person must look at',
  deleted: 'Rows deleted after their time',
};

/** Registers counters and gauges, under `notification.outbox.`. @returns ends the observation. */
export function observeOutbox(meter: Meter, db: Pool, counts: OutboxCounts): () => void {
  const counters = Object.entries(COUNTERS).map(([name, description]) => {
    const metric = `notification.outbox.${name.replace('A', '_a')}`;
    return [name as keyof OutboxCounts, meter.createObservableCounter(metric, { description })] as const;
  });
  const rows = meter.createObservableGauge('notification.outbox.rows', {
    description: 'Rows by state, each counted up to a limit',
  });
  const pendingAge = meter.createObservableGauge('notification.outbox.oldest_pending_age_ms', {
    description: 'How long the oldest row has waited to be published; 0 when none does',
    unit: 'ms',
  });
  const publishedAge = meter.createObservableGauge('notification.outbox.oldest_published_age_ms', {
    description: 'Age of the oldest row that the service has not passed; 0 without one',
    unit: 'ms',
  });
  const read: BatchObservableCallback = async (result) => {
    for (const [name, counter] of counters) result.observe(counter, counts[name]);
    // Figures that cannot be had are left out of this export.
    const status = await outboxStatus(db).catch(() => undefined);
    if (status === undefined) return;
    for (const [state, count] of Object.entries(status.counts)) result.observe(rows, count, { state });
    result.observe(pendingAge, status.oldestPendingMs);
    result.observe(publishedAge, status.oldestPublishedMs);
  };
  const observables = [...counters.map(([, counter]) => counter), rows, pendingAge, publishedAge];
  meter.addBatchObservableCallback(read, observables);
  return () => meter.removeBatchObservableCallback(read, observables);
}
