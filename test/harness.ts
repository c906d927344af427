/**
 * What tests share: the servers of this run, and a part of each that belongs to one test file alone. A file takes a
 * slot; the slot names its PostgreSQL database, its Redis database and its Temporal namespace, so that files run side
 * by side without seeing each other.
 */
import { once } from 'node:events';
import type { WorkflowHandle } from '@temporalio/client';
import { Client, Connection } from '@temporalio/client';
import { Redis } from 'ioredis';
import pg from 'pg';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import { startUserService } from '../dev/stand-ins/intent/user-service.ts';
import type { Stack } from '../dev/servers/stack.ts';
import type { Operator } from '../client/operator.ts';
import { createOperator } from '../client/operator.ts';
import type { Config } from '../config/load.ts';
import { loadConfig } from '../config/load.ts';
import type { RedisAddress } from '../config/values.ts';
import { buildLateIndexes } from '../migrations/indexes.ts';
import { migrate } from '../migrations/migrate.ts';
import { grantToService, setSessionDefaults } from '../migrations/service-role.ts';
import { createLogger } from '../workers/logger.ts';
import type { Endpoints } from '../workers/context.ts';
import { DependencyError } from '../workers/context.ts';
import type { Service } from '../workers/service.ts';
import { startService } from '../workers/service.ts';
import { eventually } from './eventually.ts';
import { asUserOf, makeUsers } from './redis-users.ts';
import { SLOTS, namespaceOf, roleOfSlot } from './slots.ts';

export { eventually } from './eventually.ts';

type ServersOfSlots = Required<Pick<Stack, 'postgresDsn' | 'redisAddr' | 'temporalAddress'>>;

/** The servers that globalSetup started. */
export function stackOfRun(): ServersOfSlots & Required<Pick<Stack, 'uiUrl'>> {
  const text = process.env['TEST_STACK'];
  if (!text) throw new Error('the test servers are not running; start tests with npm test');
  return JSON.parse(text) as Required<Stack>;
}

/** A workflow that somebody is about to start; a route's own comes after its first attempt when DISPATCH says so. */
export const untilStarted = (handle: WorkflowHandle): Promise<unknown> =>
  eventually(`${handle.workflowId} to be started`, () => handle.describe());

/**
 * Who makes first attempts in this run (`npm run test:on-failure`), and below how many intents one workflow has
 * (`npm run test:slices`): what is delivered must not depend on it.
 */
export const DISPATCH = process.env['NOTIFICATION_ROUTE_DISPATCH'] ?? 'child';

const INTENTS_PER_WORKFLOW = process.env['NOTIFICATION_INTENTS_PER_WORKFLOW'];

/** How intents are worked off in this run, as variables: the two above. */
export const WAY = {
  NOTIFICATION_ROUTE_DISPATCH: DISPATCH,
  // Releases before it do not know the variable.
  ...(INTENTS_PER_WORKFLOW === undefined ? {} : { NOTIFICATION_INTENTS_PER_WORKFLOW: INTENTS_PER_WORKFLOW }),
};

/**
 * In a run of `npm run test:pooled`: the pooler of transactions through which services and operators come to PostgreSQL, with
 * roles that own nothing.
 */
const POOLER_PORT = process.env['TEST_POOLER_PORT'];

export type LogLine = Record<string, unknown> & { msg: string; level: string };

/** One test file's own part of every server. */
export interface Slot {
  slot: number;
  endpoints: Endpoints & { redis: RedisAddress };
  /** Of the database's owner, directly. */
  ownerDsn: string;
  redis: Redis;
  db: pg.Pool;
  client: Client;
  userService: Awaited<ReturnType<typeof startUserService>>;
  fcm: Awaited<ReturnType<typeof startFcm>>;
  /** Lines that services of this slot logged. */
  logs: LogLine[];
  /** A configuration of this slot; `env` adds to it. */
  config(env?: Record<string, string>): Config;
  /**
   * Starts the service itself in this process, stopped with the slot at the latest. `instead` replaces addresses of
   * the slot's servers.
   */
  startService(env?: Record<string, string>, instead?: Partial<Endpoints>): Promise<Service>;
  /** Stops what was started in this process. */
  stopServices(): Promise<void>;
  /** Takes the database away from everybody, open connections included; `restore` brings it back. */
  cutOffDatabase(): Promise<{ restore(): Promise<void> }>;
  release(): Promise<void>;
}

/** @param uiUrl of the Web UI, which links lead to; default: there is none. */
export const operatorOf = ({ client, db, redis, slot }: Slot, uiUrl?: string): Operator =>
  createOperator({
    ...{ temporal: client, db, redis, namespace: namespaceOf(slot), intentsStream: 'notification:intents' },
    ...(uiUrl === undefined ? {} : { uiUrl }),
  });

/** Takes a slot of servers, by default those of the run; call `release` in `afterAll`. */
export async function takeSlot(ownStack?: ServersOfSlots): Promise<Slot> {
  const stack = ownStack ?? stackOfRun();
  const [redisHost = '', redisPort] = stack.redisAddr.split(':');
  const counter = new Redis({ host: redisHost, port: Number(redisPort), db: 0 });
  const slot = await counter.incr('test:slots');
  if (ownStack) await makeUsers(counter);
  counter.disconnect();
  if (slot >= SLOTS) throw new Error('more test files than slots: raise SLOTS in test/slots.ts');

  const database = `test_${slot}`;
  const admin = new pg.Client({ connectionString: stack.postgresDsn });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${database}`);
  await admin.end();
  const dsn = new URL(stack.postgresDsn);
  dsn.pathname = `/${database}`;

  const serviceDsn =
    POOLER_PORT === undefined ? dsn.href : await withRoleOfItsOwn(dsn.href, { slot, port: POOLER_PORT });

  const [userService, fcm] = await Promise.all([startUserService(), startFcm()]);
  const redis = new Redis({ host: redisHost, port: Number(redisPort), db: slot });
  const db = new pg.Pool({ connectionString: dsn.href, max: 4, options: '-c timezone=UTC' });
  db.on('error', () => undefined);
  // All tests of a file fail with this, and the machine may stand still for as long as the SDK waits, 10 s.
  const connection = await Connection.connect({ address: stack.temporalAddress, connectTimeout: '1 minute' });
  const endpoints: Slot['endpoints'] = {
    redis: { host: redisHost, port: Number(redisPort) },
    postgresDsn: serviceDsn,
    temporalAddress: stack.temporalAddress,
    userServiceUrl: userService.url,
    fcm: { endpoint: fcm.url, caPem: fcm.caPem },
  };
  const logs: LogLine[] = [];
  const log = createLogger('debug', { write: keep });
  function keep(line: string): void {
    logs.push(JSON.parse(line) as LogLine);
  }
  const services: Service[] = [];
  const configWith = (env: Record<string, string> = {}, hasUsers = true) =>
    loadConfig({
      // Tests of another role ask for it.
      NOTIFICATION_ROLES: 'intent',
      ...WAY,
      // Tests let the User Service fail right after it answered.
      NOTIFICATION_USER_SERVICE_REUSE: '1ms',
      NOTIFICATION_REDIS_DB: String(slot),
      NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
      NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '200ms',
      TEMPORAL_NAMESPACE: namespaceOf(slot),
      TEMPORAL_ADDRESS: stack.temporalAddress,
      // Only this run's Redis knows the users.
      ...(hasUsers && env['NOTIFICATION_REDIS_MASTER_ADDR'] === undefined
        ? asUserOf(env['NOTIFICATION_ROLES'] ?? 'intent')
        : {}),
      ...env,
    });

  return {
    slot,
    endpoints,
    ownerDsn: dsn.href,
    redis,
    db,
    client: new Client({ connection, namespace: namespaceOf(slot) }),
    userService,
    fcm,
    logs,
    config: configWith,
    async startService(env, instead) {
      const service = await inTime(() =>
        startService({
          config: configWith(env, instead?.redis === undefined),
          endpoints: { ...endpoints, ...instead },
          log,
        }),
      );
      services.push(service);
      return service;
    },
    async stopServices() {
      await Promise.all(services.splice(0).map((service) => service.stop()));
    },
    async cutOffDatabase() {
      const operator = new pg.Client({ connectionString: stack.postgresDsn });
      await operator.connect();
      await operator.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS false`);
      await operator.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [
        database,
      ]);
      return {
        async restore() {
          await operator.query(`ALTER DATABASE ${database} ALLOW_CONNECTIONS true`);
          await operator.end();
        },
      };
    },
    async release() {
      await Promise.all(services.map((service) => service.stop()));
      await Promise.all([userService.stop(), fcm.stop(), db.end(), connection.close()]);
      redis.disconnect();
      await once(redis, 'end');
    },
  };
}

/** Starts again after a time-out: many tests ask for short ones, and the machine may stand still for longer meanwhile. */
async function inTime(start: () => Promise<Service>, attempts = 3): Promise<Service> {
  try {
    return await start();
  } catch (error) {
    const isLate = error instanceof DependencyError && /time-?out|timed ?out/i.test(error.message);
    if (attempts === 1 || !isLate) throw error;
    return inTime(start, attempts - 1);
  }
}

/** Prepares a database as `setup` does for a service that owns nothing. @returns the address through the pooler. */
async function withRoleOfItsOwn(
  ownerDsn: string,
  { slot, port }: { slot: number; port: string },
): Promise<string> {
  const role = roleOfSlot(slot);
  const owner = new pg.Client({ connectionString: ownerDsn });
  await owner.connect();
  await owner.query(`CREATE ROLE ${role} LOGIN`);
  // Tables of other services, which tests make.
  await owner.query(`ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, DELETE ON TABLES TO ${role}`);
  await owner.end();
  await migrate(ownerDsn);
  await buildLateIndexes(ownerDsn);
  await grantToService(ownerDsn, role, { isDryRun: false });
  const address = new URL(ownerDsn);
  address.username = role;
  await setSessionDefaults(address.href, { statementTimeoutMs: 5_000 }, { isDryRun: false });
  address.port = port;
  address.searchParams.set('pgbouncer', 'true');
  return address.href;
}
