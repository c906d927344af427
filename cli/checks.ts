/**
 * How `doctor` looks at everything that the service depends on. Each check is bounded in time and spoils no other check.
 * Checks that need a server which does not answer are left out, because one line about the server says all.
 */
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { entryIdAfter, fieldsOf, idsAhead, lastGeneratedId } from '../api/stream-ids.ts';
import { within } from '../api/within.ts';
import { causeOf } from '../client/errors.ts';
import { countOf, durationOf } from './output.ts';

/** Longest time for one check, ms. */
const CHECK_LIMIT_MS = 5_000;

export interface Diagnosis {
  status: 'ok' | 'warn' | 'error';
  /** What was found. */
  detail: string;
  /** What to do about it. */
  hint?: string;
}

export interface Finding extends Diagnosis {
  name: string;
}

/** `limitMs` for one that may take longer than others. */
export type Check = readonly [
  name: string,
  run: () => Promise<Diagnosis> | Diagnosis,
  limitMs?: number | undefined,
];

/** Checks of one server: the first says whether it answers, the others need that. */
export type CheckGroup = readonly [reach: Check, ...others: Check[]];

export const ok = (detail: string): Diagnosis => ({ status: 'ok', detail });
export const warn = (detail: string, hint: string): Diagnosis => ({ status: 'warn', detail, hint });
export const error = (detail: string, hint: string): Diagnosis => ({ status: 'error', detail, hint });
export const warnIf = (isWrong: boolean, detail: string, hint: string): Diagnosis =>
  isWrong ? warn(detail, hint) : ok(detail);

/** A check of what a statement finds. */
export const rowCheck = <Rows extends object[]>(
  db: Pool,
  name: string,
  statement: string,
  judge: (rows: Rows) => Diagnosis,
): Check => [name, async () => judge((await db.query(statement)).rows as Rows)];

/** Runs all groups side by side. Never throws: a check that does is an error itself. */
export async function diagnose(groups: readonly CheckGroup[], limitMs = CHECK_LIMIT_MS): Promise<Finding[]> {
  const findings = await Promise.all(
    groups.map(async ([reach, ...others]) => {
      const first = await carryOut(reach, limitMs);
      if (first.status === 'error') return [first];
      return [first, ...(await Promise.all(others.map((check) => carryOut(check, limitMs))))];
    }),
  );
  return findings.flat();
}

async function carryOut([name, run, limitMs]: Check, usualLimitMs: number): Promise<Finding> {
  try {
    return { name, ...(await within(limitMs ?? usualLimitMs, run())) };
  } catch (failure) {
    // One that explains itself names what to set.
    const [detail, hint] =
      failure instanceof SelfExplanatoryError
        ? [failure.message, 'set it as for the service, and look whether the server runs']
        : [causeOf(failure), 'the check itself failed; is the server reachable from here?'];
    return { name, ...error(detail, hint) };
  }
}

// --- Consumer groups ---------------------------------------------------------------------------------------------------

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
