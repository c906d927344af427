/** What can be wrong with PostgreSQL, Redis, its sentinels, Temporal and the workers. */
import { Redis } from 'ioredis';
import type { Pool } from 'pg';
import { WORKFLOW_TASKS } from '../api/task-queue-types.ts';
import { causeOf } from '../client/errors.ts';
import type { OperatorResources } from '../client/resources.ts';
import { bounded, dateOf } from '../client/temporal.ts';
import type { Config } from '../config/load.ts';
import { NO_CLUSTER, reasonsOf, redisPlaceOf, sentinelConnection } from '../config/redis.ts';
import type { RedisAddress, RedisSentinels } from '../config/variables.ts';
import { isUnknownNamespace } from '../migrations/namespace.ts';
import type { Check, CheckGroup, Diagnosis } from './checks.ts';
import { error, ok, rowCheck, warn, warnIf } from './checks.ts';
import type { Need } from './needs.ts';

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

/** Clocks that differ by more make next attempts and logs hard to read, ms. */
const SKEW_LIMIT_MS = 2_000;

export const postgresChecks = (
  db: Pool,
  reach: Reach,
  { production }: Pick<Config, 'production'>,
): CheckGroup => [
  ['PostgreSQL', () => postgres(db, reach)],
  rowCheck(db, 'PostgreSQL: role', ROLE, (rows: RoleRow[]) => diagnosisOfRole(rows[0]!, production)),
  ['PostgreSQL: clock', () => clock(db)],
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

async function clock(db: Pool): Promise<Diagnosis> {
  const before = Date.now();
  const { rows } = await db.query<{ now: Date }>('SELECT clock_timestamp() AS now');
  // The answer was made somewhere between the two looks at our own clock.
  const skewMs = Math.round(rows[0]!.now.getTime() - (before + Date.now()) / 2);
  const detail = `${Math.abs(skewMs)} ms ${skewMs < 0 ? 'behind' : 'ahead of'} this machine`;
  return warnIf(Math.abs(skewMs) > SKEW_LIMIT_MS, detail, 'let NTP set both clocks');
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
  return place && 'sentinels' in place ? [[['Redis: sentinels', () => sentinels(place, config)]]] : [];
}

async function sentinels({ sentinels: all, master }: RedisSentinels, config: Config): Promise<Diagnosis> {
  const answers = await Promise.allSettled(all.map((address) => quorumOf(address, master, config)));
  const failures = answers.flatMap((answer, at) =>
    answer.status === 'rejected' ? [`${all[at]!.host}:${all[at]!.port}: ${causeOf(answer.reason)}`] : [],
  );
  if (failures.length === 0) return ok(`all ${all.length} can agree on a failover of ${master}`);
  return {
    status: failures.length === all.length ? 'error' : 'warn',
    detail: failures.join('; '),
    hint: 'a failover needs a majority of them that know the master by the name at the end of NOTIFICATION_REDIS_SENTINELS',
  };
}

/** Asks a sentinel, with one attempt to connect. @throws why it does not answer, or sees no quorum. */
async function quorumOf(address: RedisAddress, master: string, config: Config): Promise<void> {
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
