/** Checks of a consumer group of a stream: no consumer reads, or entries are not acknowledged. */
import type { Redis } from 'ioredis';
import { entryIdAfter, fieldsOf, idsAhead, lastGeneratedId } from '../api/stream-ids.ts';
import type { Diagnosis } from './checks.ts';
import { error, ok, warn, warnIf } from './checks.ts';
import { countOf, durationOf } from './output.ts';

/** Entries behind the group's last delivery that say that no consumer reads. */
const MANY_UNREAD = 1_000;
/** Other processes claim the entries of a dead one after half a minute; an entry that waits longer has no consumer, ms. */
const LONG_IDLE_MS = 5 * 60_000;
/** A consumer that reads asks at least every few seconds, ms. */
const DEAD_AFTER_MS = 60_000;

export interface ConsumerGroup {
  redis: Redis;
  stream: string;
  group: string;
}

/** @param role whose processes read. @throws what Redis answers to a key that is no stream. */
export async function consumerGroup(
  { redis, stream, group }: ConsumerGroup,
  role: string,
): Promise<Diagnosis> {
  if (!(await redis.exists(stream))) return ok(`${stream} does not exist yet`);
  const ahead = await findIdsAhead(redis, stream);
  if (ahead !== undefined) return ahead;
  const groups = (await redis.xinfo('GROUPS', stream)) as unknown[][];
  const ours = groups.map(fieldsOf).find((fields) => fields['name'] === group);
  if (!ours) return warn(`${stream} has no group ${group}`, 'start the service: it creates the group');
  const [consumers, [oldest], unread] = await Promise.all([
    redis.xinfo('CONSUMERS', stream, group) as Promise<unknown[][]>,
    redis.xpending(stream, group, '-', '+', 1) as Promise<[string, string, number, number][]>,
    entryIdAfter(redis, stream, String(ours['last-delivered-id'])),
  ]);
  const silent = consumers.map(fieldsOf).filter(({ idle }) => Number(idle) > DEAD_AFTER_MS);
  // After a failover Redis counts too many of them, also for a group that has read all.
  const lag = unread === undefined ? 0 : Number(ours['lag'] ?? 0);
  const pending = Number(ours['pending'] ?? 0);
  const idleMs = oldest?.[2] ?? 0;
  const detail = [
    `${lag} unread, ${pending} not acknowledged${oldest ? `, the oldest taken ${durationOf(idleMs)} ago` : ''}`,
    `${countOf(consumers.length, 'consumer')}, ${silent.length} of them silent for a minute`,
  ].join('; ');
  const isUnread = lag > MANY_UNREAD || (lag > 0 && silent.length === consumers.length);
  return warnIf(
    isUnread || idleMs > LONG_IDLE_MS,
    detail,
    `is a process with the role ${role} running, and are there enough of them?`,
  );
}

/** An error when a producer has chosen an id ahead of the clock of Redis. @throws what Redis fails with. */
export async function findIdsAhead(redis: Redis, stream: string): Promise<Diagnosis | undefined> {
  const [lastId, [seconds]] = await Promise.all([lastGeneratedId(redis, stream), redis.time()]);
  const ahead = lastId && idsAhead(lastId, Number(seconds) * 1_000);
  return ahead
    ? error(`stream_ids_ahead: ${ahead}`, 'set it back: NotificationStreamIdsAhead in the runbook')
    : undefined;
}
