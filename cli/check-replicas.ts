/** Replicas of Redis and PostgreSQL: nothing depends on them, but a wrong address or a primary in their place is news. */
import pg from 'pg';
import { causeOf } from '../client/errors.ts';
import type { Config } from '../config/load.ts';
import { redisConnection } from '../config/redis.ts';
import type { RedisAddress } from '../config/values.ts';
import { redisForOneCheck } from './check-redis.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { ok, warn } from './checks.ts';

export interface ReplicaResult {
  kind: 'redis' | 'postgres';
  /** host:port, without credentials. */
  address: string;
  /** It answers, is a replica, and, as far as it says, follows its primary. */
  ok: boolean;
  /** For an operator: what it is, or what is wrong. */
  detail: string;
}

type Finding = Pick<ReplicaResult, 'ok' | 'detail'>;

export const replicaChecks = (config: Config): CheckGroup => [['replicas', () => diagnosisOf(config)]];

async function diagnosisOf(config: Config): Promise<Diagnosis> {
  const results = await checkReplicas(config);
  if (results.length === 0) return ok('none configured');
  const failed = results.filter((result) => !result.ok);
  const describe = (all: typeof results) =>
    all.map(({ kind, address, detail }) => `${kind} ${address}: ${detail}`).join('; ');
  return failed.length === 0
    ? ok(describe(results))
    : warn(describe(failed), 'replicas are not used yet, but they were configured: correct or remove them');
}

/**
 * Connects to every configured replica and asks it what it is; within the operation time-outs, all concurrently.
 *
 * @returns one result each, Redis first, in the order of the configuration. Does not reject.
 */
export function checkReplicas(config: Config): Promise<ReplicaResult[]> {
  const { values } = config;
  const resultOf = async (kind: ReplicaResult['kind'], address: string, asked: Promise<Finding>) => ({
    ...{ kind, address },
    ...(await asked.catch((error: unknown) => ({ ok: false, detail: `does not answer: ${causeOf(error)}` }))),
  });
  return Promise.all([
    ...values.NOTIFICATION_REDIS_REPLICA_ADDRS.map((address) =>
      resultOf('redis', `${address.host}:${address.port}`, findingOfRedis(address, config)),
    ),
    ...values.NOTIFICATION_POSTGRES_REPLICA_DSNS.map((dsn) =>
      resultOf(
        'postgres',
        new URL(dsn).host,
        findingOfPostgres(dsn, values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT),
      ),
    ),
  ]);
}

async function findingOfRedis(address: RedisAddress, config: Config): Promise<Finding> {
  const timeout = config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  const { redis, reason } = redisForOneCheck(redisConnection(config, address), timeout);
  try {
    await redis.connect().catch((error: unknown) => {
      throw reason() ?? error;
    });
    await redis.ping();
    const [role, masterHost, masterPort, link] = (await redis.role()) as [string, ...unknown[]];
    if (role !== 'slave') return { ok: false, detail: `is a ${role}, not a replica` };
    const following = `${String(masterHost)}:${String(masterPort)}`;
    return { ok: link === 'connected', detail: `replica of ${following}, link ${String(link)}` };
  } finally {
    redis.disconnect();
  }
}

async function findingOfPostgres(dsn: string, timeoutMs: number): Promise<Finding> {
  const client = new pg.Client({
    connectionString: dsn,
    application_name: 'galaxy-notify',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // A server that goes away between two queries must reject those, not end this process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ pg_is_in_recovery: boolean }>('SELECT pg_is_in_recovery()');
    return rows[0]?.pg_is_in_recovery
      ? { ok: true, detail: 'replica' }
      : { ok: false, detail: 'is a primary, not a replica' };
  } finally {
    // Without waiting: a server that hangs would not say goodbye either.
    void client.end().catch(() => undefined);
  }
}
