/**
 * The relay of an outbox: appends what producers have written to the stream of the service, and keeps it until the
 * service has it.
 *
 * A row is pending until it is in the stream, published until the saved offset of the service has passed its entry, and
 * passed from then on. Published rows that Redis has lost become pending again. Redis loses the end of what it was told, never
 * a part in the middle: so the relay looks whether the newest published entry is in the stream, each second and before
 * each batch, and for each entry when the offset passes it.
 *
 * Relays take turns: the relay that holds the lock of outbox.sql publishes or looks, in one short transaction. So rows are
 * published in their order, however many relays run; what a relay has published and not yet written down when it dies is
 * published again. The key of an intent makes that harmless.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { BatchObservableCallback, Meter } from '@opentelemetry/api';
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Catalog } from '../../api/intent/catalog.ts';
import { entryFieldsOf, parseIntent } from '../../api/intent/entry.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { STREAM_START, compareEntryIds } from '../../api/stream-ids.ts';
import { watchEvery } from '../../api/watch.ts';
import { causeOf } from '../errors.ts';
import { GALAXY } from '../generated/galaxy.ts';
import { DEFAULT_INTENTS_STREAM } from '../constructors.ts';
import type { OutboxRow, PublishedRow } from './outbox-rows.ts';
import {
  PAGE,
  checkOutbox,
  deleteEnded,
  markPassed,
  markPublished,
  outboxStatus,
  pendingRows,
  publishedRows,
  putBack,
  setAside,
  withOutbox,
} from './outbox-rows.ts';

/** How often to look what the service has passed, and what Redis has lost, ms. */
const CHECK_INTERVAL_MS = 1_000;
/** What one look may let Redis copy, and how many entries. */
const CHECK_LIMITS = { rows: 500, bytes: 4 << 20 };

const HOUR_MS = 3_600_000;

export interface OutboxRelayOptions {
  /** The producer's database, where outbox.sql was run. One connection is used. */
  db: Pool;
  /** The Redis of the service. It should fail commands while Redis is away, and connect again by itself. */
  redis: Redis;
  /** Default: `notification:intents`. */
  stream?: string;
  /** The notification types; default: those of Galaxy. */
  catalog?: Catalog;
  /** How long to wait between two looks for new rows, ms; at most 1 s, default 200. */
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

const COUNTERS = {
  published: 'Entries appended, repeats included',
  passed: 'Rows that the service has passed',
  lost: 'Rows published again, since Redis had lost their entries',
  setAside: 'Rows set aside, which a person must look at',
  deleted: 'Rows deleted after their time',
};

/** What a relay has done since it began. */
export type OutboxCounts = Record<keyof typeof COUNTERS, number>;

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
    pollMs: 200,
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
  const watch = watchEvery(Math.min(pollMs, CHECK_INTERVAL_MS), relayAll, (error) =>
    log.warn({ reason: causeOf(error) }, 'outbox relay waits'),
  );
  return {
    counts: steps.counts,
    stop: () => watch.stop().finally(stopObserving),
  };

  async function relayAll(stopping: AbortSignal): Promise<void> {
    while (!stopping.aborted && (await steps.step()).isMore);
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
  async function publish(client: PoolClient): Promise<boolean> {
    const rows = await pendingRows(client, limits);
    if (rows.length === 0) return false;
    // What was lost comes first: it is older.
    if (await putBackLost(client)) return true;
    const { good, refused } = judged(catalog, rows);
    if (refused.length > 0) {
      await setAside(client, refused);
      for (const { id, code, problem } of refused) {
        log.warn({ row: id, failure_code: code, reason: problem }, 'outbox row set aside');
      }
    }
    if (good.length > 0) {
      const ids = good.map(({ id }) => id);
      await markPublished(client, ids, await append(good));
    }
    counts.published += good.length;
    counts.setAside += refused.length;
    return true;
  }

  /** @returns whether there is more to check. */
  async function checkPublished(client: PoolClient): Promise<boolean> {
    const deleted = await deleteEnded(client, times);
    counts.deleted += deleted;
    const rows = await publishedRows(client, 'ASC', CHECK_LIMITS);
    const offset = rows.length === 0 ? STREAM_START : await loadOffset(redis, stream);
    const read = rows.filter(({ entryId }) => compareEntryIds(entryId, offset) <= 0);
    const { present, gone } = await findEntries(read);
    if (present.length > 0) await markPassed(client, present);
    if (gone.length > 0) await publishAgain(client, gone);
    counts.passed += present.length;
    const isMore = deleted === PAGE || (rows.length > 0 && read.length === rows.length);
    return (await putBackLost(client)) || isMore;
  }

  /** Redis that fell back, was emptied or replaced has lost the end of the stream. @returns whether rows were put back. */
  async function putBackLost(client: PoolClient): Promise<boolean> {
    const lostAmongLast = async (rows: number) =>
      (await findEntries(await publishedRows(client, 'DESC', { ...CHECK_LIMITS, rows }))).gone;
    if ((await lostAmongLast(1)).length === 0) return false;
    await publishAgain(client, await lostAmongLast(CHECK_LIMITS.rows));
    return true;
  }

  async function publishAgain(client: PoolClient, ids: readonly string[]): Promise<void> {
    const put = await putBack(client, ids, times.keyLifetimeMs);
    counts.lost += put.pending;
    counts.setAside += put.setAside;
    if (put.pending > 0) log.warn({ stream, rows: put.pending }, 'Redis lost entries: published again');
    if (put.setAside > 0) log.warn({ stream, rows: put.setAside }, 'Redis lost old entries: set aside');
  }

  /** Appends entries in their order: all of them, or none. @returns their ids. */
  async function append(rows: readonly OutboxRow[]): Promise<string[]> {
    const transaction = redis.multi();
    for (const { entry } of rows) transaction.xadd(stream, '*', ...Object.entries(entry).flat());
    const replies = (await transaction.exec()) ?? [];
    return replies.map(([error, id]) => {
      if (error) throw error;
      return id as string;
    });
  }

  /** Which rows the stream has: after a loss another entry may have the id of one. */
  async function findEntries(rows: readonly PublishedRow[]): Promise<{ present: string[]; gone: string[] }> {
    const entryIds = rows.map(({ entryId }) => entryId);
    const keys = (await redis.eval_ro(FIND_KEYS, 1, stream, ...entryIds)) as (string | null)[];
    const idsThat = (isPresent: boolean) =>
      rows.flatMap(({ id, idempotencyKey }, i) => ((keys[i] === idempotencyKey) === isPresent ? [id] : []));
    return { present: idsThat(true), gone: idsThat(false) };
  }
}

/** The keys of the entries that are there. KEYS: stream. ARGV: ids. */
const FIND_KEYS = `
  local keys = {}
  for i, id in ipairs(ARGV) do
    local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
    keys[i] = false
    for field = 1, entry and #entry[2] or 0, 2 do
      if entry[2][field] == 'idempotency_key' then keys[i] = entry[2][field + 1] end
    end
  end
  return keys`;

/** The checks of the service, on exactly what would be appended. */
function judged(catalog: Catalog, rows: readonly OutboxRow[]) {
  const good: OutboxRow[] = [];
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
