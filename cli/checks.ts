/**
 * How `doctor` looks at everything that the service depends on. Each check is bounded in time and spoils no other check.
 * Checks that need a server which does not answer are left out, because one line about the server says all.
 */
import { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { SelfExplanatoryError } from '../api/errors.ts';
import { entryIdAfter, fieldsOf, idsAhead, lastGeneratedId } from '../api/stream-ids.ts';
import { WORKFLOW_TASKS } from '../api/task-queue-types.ts';
import { within } from '../api/within.ts';
import { causeOf } from '../client/errors.ts';
import type { OperatorResources } from '../client/resources.ts';
import { bounded, dateOf } from '../client/temporal.ts';
import type { Config } from '../config/load.ts';
import { NO_CLUSTER, reasonsOf, redisPlaceOf, sentinelConnection } from '../config/redis.ts';
import type { RedisAddress } from '../config/variables.ts';
import { isUnknownNamespace } from '../migrations/namespace.ts';
import { countOf, durationOf } from './output.ts';
import type { Need } from './setup.ts';

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

/** At most so many places that fail are named. */
const NAMED = 5;

/**
 * Tries each of some places: an error when all fail, a warning when some do.
 *
 * @param attempt throws why a place fails. @param success what all can do otherwise.
 */
export async function tryAll<Place extends { name: string }>(
  places: readonly Place[],
  attempt: (place: Place) => Promise<unknown>,
  success: string,
  hint: string,
): Promise<Diagnosis> {
  const answers = await Promise.allSettled(places.map(attempt));
  const failures = answers.flatMap((answer, at) =>
    answer.status === 'rejected' ? [`${places[at]!.name}: ${causeOf(answer.reason)}`] : [],
  );
  if (failures.length === 0)
    return ok(places.length === 1 ? `${places[0]!.name} ${success}` : `all ${places.length} ${success}`);
  const more = failures.length > NAMED ? `; and ${countOf(failures.length - NAMED, 'other')}` : '';
  const detail = `${failures.length} of ${places.length} failed: ${failures.slice(0, NAMED).join('; ')}${more}`;
  return { status: failures.length === places.length ? 'error' : 'warn', detail, hint };
}

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

// --- What setup makes --------------------------------------------------------------------------------------------------

/** Says whether a server answers. @throws why it does not. */
type Reach = () => Promise<void>;

/** Checks of what `setup` makes. */
export const needChecks = (needs: readonly Need[]): Check[] =>
  needs.map(({ name, look, limitMs }) => [
    name,
    async () => {
      const { lack, detail, doubt } = await look();
      const hint = 'run galaxy-notify setup of this release';
      if (lack === 'created') return error(`missing: ${detail}`, hint);
      if (lack === 'changed') return warn(detail, hint);
      return doubt === undefined ? ok(detail) : warn(detail, doubt);
    },
    limitMs,
  ]);

const msSince = (began: number): number => Math.round(performance.now() - began);

// --- PostgreSQL --------------------------------------------------------------------------------------------------------

export const postgresChecks = (
  db: Pool,
  reach: Reach,
  { production }: Pick<Config, 'production'>,
): CheckGroup => [
  ['PostgreSQL', () => postgres(db, reach)],
  rowCheck(db, 'PostgreSQL: role', ROLE, (rows: RoleRow[]) => diagnosisOfRole(rows[0]!, production)),
];

async function postgres(db: Pool, reach: Reach): Promise<Diagnosis> {
  await reach();
  const began = performance.now();
  const { rows } = await db.query<{ version: string; is_standby: boolean }>(
    "SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS is_standby",
  );
  const { version, is_standby: isStandby } = rows[0]!;
  const detail = `version ${version}, answers in ${msSince(began)} ms`;
  return isStandby
    ? error(`${detail}, a standby`, 'point NOTIFICATION_POSTGRES_PRIMARY_DSN at the primary')
    : ok(detail);
}

interface RoleRow {
  name: string;
  mayChange: boolean;
  isAdministrator: boolean;
}

const ROLE = `
  SELECT current_user AS name, rolsuper AS "isAdministrator",
         has_database_privilege(current_database(), 'CREATE')
           OR coalesce(pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = 'notification'), 'USAGE'), false)
           AS "mayChange"
    FROM pg_roles WHERE rolname = current_user`;

/** Who steals the service's password should not be able to change tables. */
function diagnosisOfRole({ name, mayChange, isAdministrator }: RoleRow, production: boolean): Diagnosis {
  if (!mayChange) return ok(`${name} reads and writes rows, and changes no table`);
  return warnIf(
    production,
    `${name} ${isAdministrator ? 'is a superuser' : 'may change and drop tables'}`,
    'give the service its own role, and NOTIFICATION_POSTGRES_OWNER_DSN to setup: docs/deploy/postgresql.md',
  );
}

// --- Redis -------------------------------------------------------------------------------------------------------------

const SLOW_PING_MS = 100;

export const redisChecks = (redis: Redis, reach: Reach, minReplicas: number): CheckGroup => [
  [
    'Redis',
    async () => {
      // The first command also connects.
      await reach();
      // The quickest of a few tells the distance; the others what else this process was doing.
      const pings = [await pingMsOf(redis), await pingMsOf(redis), await pingMsOf(redis)];
      return answering(await infoOf(redis), Math.min(...pings));
    },
  ],
  ['Redis: eviction', async () => eviction(await infoOf(redis))],
  ['Redis: persistence', async () => persistence(await infoOf(redis))],
  ['Redis: replicas', async () => replicas(await infoOf(redis), minReplicas)],
];

async function pingMsOf(redis: Redis): Promise<number> {
  const began = performance.now();
  await redis.ping();
  return msSince(began);
}

type Info = Record<string, string>;

/** INFO rather than CONFIG GET, which managed servers refuse. */
async function infoOf(redis: Redis): Promise<Info> {
  const lines = (await redis.info()).matchAll(/^(\w+):(.*?)\r?$/gm);
  return Object.fromEntries(Array.from(lines, ([, name, value]) => [name!, value!] as const));
}

function answering(info: Info, pingMs: number): Diagnosis {
  const { valkey_version: valkey, redis_version: version = '' } = info;
  const detail = `${valkey ? `Valkey ${valkey}` : `version ${version}`}, ping ${pingMs} ms`;
  if (Number.parseInt(version) < 7) return error(detail, 'Redis 7 or later is needed');
  if (info['cluster_enabled'] === '1') return error(detail, NO_CLUSTER);
  if (info['role'] !== 'master')
    return error(`${detail}, a replica`, 'point NOTIFICATION_REDIS_MASTER_ADDR at the master');
  return warnIf(pingMs > SLOW_PING_MS, detail, 'each hand-off costs several round trips: is it far away?');
}

function eviction(info: Info): Diagnosis {
  const policy = info['maxmemory_policy'] ?? 'unknown';
  const limit = Number(info['maxmemory'] ?? 0);
  const share = limit > 0 ? Number(info['used_memory']) / limit : 0;
  const detail = `${policy}${limit > 0 ? `, ${Math.round(100 * share)} % of maxmemory used` : ''}`;
  if (policy !== 'noeviction')
    return error(detail, 'set maxmemory-policy noeviction: Redis may drop intents');
  return warnIf(
    share > 0.9,
    detail,
    'at 100 % Redis takes no intents any more: raise maxmemory, or trim the mail stream',
  );
}

function persistence(info: Info): Diagnosis {
  if (info['aof_enabled'] !== '1') {
    return warn(
      'appendonly no',
      'set appendonly yes: a crash of Redis loses the intents since its last snapshot',
    );
  }
  return info['aof_last_write_status'] === 'err'
    ? error('the append-only file cannot be written', 'is the disk of Redis full?')
    : ok('appendonly yes');
}

/** Those that follow now. One that is configured and cut off is not among them. */
function replicas(info: Info, minReplicas: number): Diagnosis {
  const online = Object.entries(info).filter(
    ([name, state]) => /^slave\d+$/.test(name) && state.includes('state=online'),
  ).length;
  return online >= minReplicas
    ? ok(`${online} online, ${minReplicas} must have a hand-off`)
    : error(
        `${online} online, ${minReplicas} must have a hand-off`,
        'routes stay open until replicas follow again, or NOTIFICATION_REDIS_MIN_REPLICAS is lower',
      );
}

/** The sentinels, if there are any. A separate group: while no Redis answers, only sentinels can be asked. */
export function sentinelChecks(config: Config): CheckGroup[] {
  const place = redisPlaceOf(config.values);
  if (!place || !('sentinels' in place)) return [];
  const { sentinels, master } = place;
  const named = sentinels.map((address) => ({ ...address, name: `${address.host}:${address.port}` }));
  const hint =
    'a failover needs a majority of them that know the master by the name at the end of NOTIFICATION_REDIS_SENTINELS';
  const ask = (address: RedisAddress) => askQuorum(address, master, config);
  return [[['Redis: sentinels', () => tryAll(named, ask, `can agree on a failover of ${master}`, hint)]]];
}

/** Asks a sentinel, with one attempt to connect. @throws why it does not answer, or sees no quorum. */
async function askQuorum(address: RedisAddress, master: string, config: Config): Promise<void> {
  const timeoutMs = config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  const sentinel = new Redis({
    ...sentinelConnection(config, address),
    connectTimeout: timeoutMs,
    commandTimeout: timeoutMs,
    lazyConnect: true,
    // A sentinel has no data whose loading the check waits for.
    enableReadyCheck: false,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  const reason = reasonsOf(sentinel);
  try {
    await sentinel.call('SENTINEL', 'CKQUORUM', master);
  } catch (failure) {
    throw reason() ?? failure;
  } finally {
    sentinel.disconnect();
  }
}

// --- Temporal ----------------------------------------------------------------------------------------------------------

const OLDEST_SERVER = [1, 29] as const;
/** Workers ask for work once a minute at least. */
const STALE_POLLER_MS = 120_000;

export const temporalChecks = (
  resources: OperatorResources,
  reach: Reach,
  taskQueues: readonly string[],
): CheckGroup => [
  ['Temporal', () => temporal(resources, reach)],
  ...taskQueues.map((queue): Check => [`workers: ${queue}`, () => workers(resources, queue)]),
];

async function temporal(
  { temporal: client, namespace }: OperatorResources,
  reach: Reach,
): Promise<Diagnosis> {
  try {
    await reach();
  } catch (failure) {
    if (!isUnknownNamespace(failure)) throw failure;
    return error(
      `there is no namespace ${namespace}`,
      'run galaxy-notify setup, or correct TEMPORAL_NAMESPACE',
    );
  }
  const began = performance.now();
  const { serverVersion = '' } = await bounded(client, () => client.workflowService.getSystemInfo({}));
  const detail = `version ${serverVersion}, namespace ${namespace}, answers in ${msSince(began)} ms`;
  const [major = 0, minor = 0] = serverVersion.split('.').map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_SERVER;
  const isOld = major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
  return isOld ? error(detail, `server ${OLDEST_SERVER.join('.')} or later is needed`) : ok(detail);
}

async function workers(
  { temporal: client, namespace }: OperatorResources,
  taskQueue: string,
): Promise<Diagnosis> {
  const { pollers } = await bounded(client, () =>
    client.workflowService.describeTaskQueue({
      namespace,
      taskQueue: { name: taskQueue },
      taskQueueType: WORKFLOW_TASKS,
    }),
  );
  const recent = (pollers ?? []).filter(
    ({ lastAccessTime }) => Date.now() - (dateOf(lastAccessTime)?.getTime() ?? 0) < STALE_POLLER_MS,
  );
  const names = [...new Set(recent.map(({ identity }) => identity ?? ''))];
  return names.length === 0
    ? error(
        `no worker polls the task queue ${taskQueue}`,
        'start the service with this role: nothing of it is worked on',
      )
    : ok(`${names.length} polling: ${names.join(', ')}`);
}
