/**
 * The three gauges of the seed ("Observability"), read from PostgreSQL and Redis at each export. They describe what
 * all processes share, so each process reports the same figures: take the maximum over them, not the sum.
 */
import type { BatchObservableResult, Meter, Observable } from '@opentelemetry/api';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Channel } from '../../api/intent/catalog.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { query } from '../postgres.ts';
import { oldestUnprocessedAgeMs } from './stream-lag.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { reasonOf } from '../reason.ts';

/** A server that takes longer is as good as away; an export must not wait for it. */
const READ_TIMEOUT_MS = 2_000;

export interface GaugeResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  intentsStream: string;
}

/**
 * Registers the gauges. One that cannot be read is left out of that export: no value is better than a wrong one.
 *
 * @returns ends the observation; call it before the connections are closed.
 */
export function observeGauges(meter: Meter, { db, redis, log, intentsStream }: GaugeResources): () => void {
  const depth = meter.createObservableGauge('notification.route_schedule.depth', {
    description: 'Routes that wait for an attempt',
  });
  const oldestRoute = meter.createObservableGauge('notification.route_schedule.oldest_age_ms', {
    description: 'How long the oldest due attempt has been due; 0 when none is',
    unit: 'ms',
  });
  const oldestEntry = meter.createObservableGauge('notification.intent_stream.oldest_unprocessed_age_ms', {
    description: 'Age of the oldest intent that is not yet durably taken; 0 when the stream is drained',
    unit: 'ms',
  });

  const observeSchedule = observation('route schedule', async () => {
    const rows = await query<ScheduleRow>(db, READ_SCHEDULE, []);
    return (result) => {
      for (const channel of CHANNELS) {
        const row = rows.find((candidate) => candidate.channel === channel);
        result.observe(depth, row?.depth ?? 0, { channel });
        result.observe(oldestRoute, row?.oldest_age_ms ?? 0, { channel });
      }
    };
  });
  const observeStream = observation('intent stream', async () => {
    const offset = await loadOffset(redis, intentsStream);
    const ageMs = await oldestUnprocessedAgeMs(redis, intentsStream, offset, Date.now());
    return (result) => result.observe(oldestEntry, ageMs);
  });

  const registered: [ReturnType<typeof observation>, Observable[]][] = [
    [observeSchedule, [depth, oldestRoute]],
    [observeStream, [oldestEntry]],
  ];
  for (const [callback, gauges] of registered) meter.addBatchObservableCallback(callback, gauges);
  return () => {
    for (const [callback, gauges] of registered) meter.removeBatchObservableCallback(callback, gauges);
  };

  /** Reports what was read all at once, or nothing. */
  function observation(what: string, read: () => Promise<(result: BatchObservableResult) => void>) {
    return async (result: BatchObservableResult): Promise<void> => {
      try {
        const report = await within(READ_TIMEOUT_MS, read());
        report(result);
      } catch (error) {
        // At most one line an export.
        log.warn({ gauge: what, reason: reasonOf(error) }, 'gauge not read');
      }
    };
  }
}

/** What comes too late is dropped; the clients' own time-outs end it. */
async function within<T>(limitMs: number, reading: Promise<T>): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer within ${limitMs} ms`)), limitMs);
  return Promise.race([reading, expired]).finally(() => clearTimeout(timer));
}

interface ScheduleRow {
  channel: Channel;
  depth: number;
  oldest_age_ms: number;
}

/** `float8` because the driver hands out 64-bit integers as text. */
const READ_SCHEDULE = {
  name: 'read_schedule',
  text: `
    SELECT channel, count(*)::float8 AS depth,
           greatest(0, extract(epoch FROM clock_timestamp() - min(next_attempt_at)) * 1000)::float8 AS oldest_age_ms
      FROM notification.routes
     WHERE next_attempt_at IS NOT NULL
     GROUP BY channel`,
};
