/** Replicas of Redis and PostgreSQL: nothing depends on them, but a wrong address or a primary in their place is news. */
import pg from 'pg';
import { causeOf } from '../client/errors.ts';
import type { Config } from '../config/load.ts';
import { redisConnection } from '../config/redis.ts';
import type { RedisAddress } from '../config/values.ts';
import { redisForOneCheck } from './check-redis.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { ok, warn } from './checks.ts';

const HINT = 'replicas are not used yet, but they were configured: correct or remove them';

/** One check for each replica that the configuration names. */
export const replicaChecks = (config: Config): CheckGroup[] => [
  ...config.values.NOTIFICATION_REDIS_REPLICA_ADDRS.map((address): CheckGroup => [
    [`replica: redis ${address.host}:${address.port}`, () => orWarning(checkRedis(address, config))],
  ]),
  ...config.values.NOTIFICATION_POSTGRES_REPLICA_DSNS.map((dsn): CheckGroup => [
    [`replica: postgres ${new URL(dsn).host}`, () => orWarning(checkPostgres(dsn, config))],
  ]),
];

/** If a replica does not answer, that is not an error of the service. */
const orWarning = (diagnosis: Promise<Diagnosis>): Promise<Diagnosis> =>
  diagnosis.catch((failure: unknown) => warn(`does not answer: ${causeOf(failure)}`, HINT));

async function checkRedis(address: RedisAddress, config: Config): Promise<Diagnosis> {
  const timeout = config.values.NOTIFICATION_REDIS_OPERATION_TIMEOUT;
  const { redis, reason } = redisForOneCheck(redisConnection(config, address), timeout);
  try {
    await redis.connect().catch((error: unknown) => {
      throw reason() ?? error;
    });
    await redis.ping();
    const [role, host, port, link] = (await redis.role()) as [string, string, number, string];
    if (role !== 'slave') return warn(`is a ${role}, not a replica`, HINT);
    const detail = `replica of ${host}:${port}, link ${link}`;
    return link === 'connected' ? ok(detail) : warn(detail, HINT);
  } finally {
    redis.disconnect();
  }
}

async function checkPostgres(dsn: string, { values }: Config): Promise<Diagnosis> {
  const timeoutMs = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
  const client = new pg.Client({
    connectionString: dsn,
    application_name: 'galaxy-notify',
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // If a server goes away between two queries, the next query rejects; the event must not end the process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    const { rows } = await client.query<{ pg_is_in_recovery: boolean }>('SELECT pg_is_in_recovery()');
    return rows[0]?.pg_is_in_recovery ? ok('replica') : warn('is a primary, not a replica', HINT);
  } finally {
    // Without waiting: a server that hangs would not say goodbye either.
    void client.end().catch(() => undefined);
  }
}
