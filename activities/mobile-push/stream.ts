/**
 * The consumer of `stream.notifications.jobs`. An entry is acknowledged once it is durable elsewhere.
 *
 * A delivery is spent by a consumer that died with the entry, or by an entry that cannot be taken though everything
 * answers. While PostgreSQL or Temporal are away, the consumer keeps what it has and tries again.
 */
import type { Redis } from 'ioredis';
import pLimit from 'p-limit';
import { DEFAULT_MOBILE_STREAM, MAX_JOB_BYTES } from '../../api/mobile-push/job.ts';
import { CONSUMER_GROUP } from '../../api/stream-ids.ts';
import type { MobileIntakeResources } from './intake.ts';
import { createMobileIntake } from './intake.ts';
import { isPostgresAway } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { StreamConsumerOptions } from '../stream-consumer.ts';
import { consumeStream } from '../stream-consumer.ts';
import type { DeliveredEntry } from '../stream-read.ts';

const BATCH_SIZE = 100;
/** Workflows that are being started concurrently. */
const PARALLEL_STARTS = 50;
/** Ids that one log line names. */
const MAX_IDS_LOGGED = 20;

export interface MobileStreamResources extends MobileIntakeResources {
  redis: Redis;
  openReader: StreamConsumerOptions['openReader'];
  mobile: MobileIntakeResources['mobile'] & {
    /** An entry that was delivered this long ago and not acknowledged is delivered again, ms. Also how often to look. */
    attemptIntervalMs: number;
    maxDeliveries: number;
  };
}

/** Starts to consume. `stop` resolves when what was being taken is acknowledged or left to the others. */
export function consumeMobileJobs(resources: MobileStreamResources): { stop(): Promise<void> } {
  const { redis, log, metrics, openReader, mobile } = resources;
  const { attemptIntervalMs: minIdleMs, maxDeliveries } = mobile;
  const [stream, group] = [DEFAULT_MOBILE_STREAM, CONSUMER_GROUP];
  const intake = createMobileIntake(resources);
  return consumeStream({
    ...{ log, stream, group, minIdleMs, openReader, takeEntries },
    what: 'mobile jobs',
    limits: { maxEntryBytes: MAX_JOB_BYTES, batchSize: BATCH_SIZE },
    onDeleted: recoverDeleted,
  });

  /**
   * Makes entries durable and acknowledges them. What fails though everything answers is left to be delivered again;
   * otherwise it waits, and spends none of its deliveries.
   */
  async function takeEntries(entries: DeliveredEntry[], stopping: AbortSignal): Promise<DeliveredEntry[]> {
    const failures = new Map<DeliveredEntry, unknown>();
    await pLimit(PARALLEL_STARTS).map(entries, async (entry) => {
      try {
        // What has not begun is left to the others.
        stopping.throwIfAborted();
        const before = entry.deliveries - 1;
        await (before < maxDeliveries ? intake.takeEntry(entry) : intake.giveUp(entry, before));
      } catch (error) {
        failures.set(entry, error);
      }
    });
    const durable = entries.filter((entry) => !failures.has(entry));
    if (durable.length > 0) await redis.xack(stream, group, ...durable.map(({ id }) => id));
    if (failures.size === 0 || stopping.aborted) return [];
    const reasons = [...failures.values()];
    // PostgreSQL may answer and still take nothing, read-only for instance.
    const isAway = reasons.some(isPostgresAway) || !(await intake.isReachable());
    const fields = { stream, entries: reasons.length, reason: reasonOf(reasons[0]) };
    log.warn(fields, isAway ? 'PostgreSQL or Temporal is away; mobile jobs wait' : 'mobile jobs not taken');
    return isAway ? [...failures.keys()] : [];
  }

  async function recoverDeleted(ids: string[]): Promise<void> {
    const lost = await intake.recover(ids).catch((error: unknown) => {
      log.warn({ stream, reason: reasonOf(error) }, 'deleted entries not looked for in the log');
      return ids;
    });
    if (lost.length === 0) return;
    metrics.mobileEntriesLost(lost.length);
    log.error(
      { stream, entries: lost.length, job_ids: lost.slice(0, MAX_IDS_LOGGED) },
      'stream entries were deleted before they were taken; their producers must publish them again',
    );
  }
}
