/** Replicas of Redis and PostgreSQL: nothing depends on them, but a wrong address or a primary in their place is news. */
import { within } from '../api/within.ts';
import { openDatabase } from '../client/connect.ts';
import { causeOf } from '../client/errors.ts';
import type { Config } from '../config/load.ts';
import { redisConnection } from '../config/redis.ts';
import type { RedisAddress } from '../config/values.ts';
import { askOnce } from './check-redis.ts';
import type { CheckGroup, Diagnosis } from './checks.ts';
import { ok, warn, warnIf } from './checks.ts';

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

const checkRedis = (address: RedisAddress, config: Config): Promise<Diagnosis> =>
  askOnce(redisConnection(config, address), config, async (redis) => {
    const [role, host, port, link] = (await redis.role()) as [string, string, number, string];
    if (role !== 'slave') return warn(`is a ${role}, not a replica`, HINT);
    return warnIf(link !== 'connected', `replica of ${host}:${port}, link ${link}`, HINT);
  });

async function checkPostgres(dsn: string, { values }: Config): Promise<Diagnosis> {
  const db = openDatabase(dsn);
  try {
    const answer = db.query<{ pg_is_in_recovery: boolean }>('SELECT pg_is_in_recovery()');
    const { rows } = await within(values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT, answer);
    return rows[0]?.pg_is_in_recovery ? ok('replica') : warn('is a primary, not a replica', HINT);
  } finally {
    // Without waiting: a server that hangs would not say goodbye either.
    void db.end().catch(() => undefined);
  }
}
