/**
 * What tests share: the servers of this run, and a part of each that belongs to one test file alone. A file takes a
 * slot; the slot names its PostgreSQL database, its Redis database and its Temporal namespace, so that files run side
 * by side without seeing each other.
 */
import { once } from 'node:events';
import { setTimeout } from 'node:timers/promises';
import type { WorkflowHandle } from '@temporalio/client';
import { Client, Connection } from '@temporalio/client';
import proto from '@temporalio/proto';
import { Redis } from 'ioredis';
import pg from 'pg';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import { startUserService } from '../dev/stand-ins/intent/user-service.ts';
import type { Stack } from '../dev/servers/stack.ts';
import { readiness } from '../dev/servers/temporal.ts';
import { CHANNEL_RETRIES } from '../client/connect.ts';
import type { Operator } from '../client/operator.ts';
import { createOperator } from '../client/operator.ts';
import { given } from '../api/given.ts';
import type { Catalog } from '../api/intent/catalog.ts';
import type { Config } from '../config/load.ts';
import { loadConfig } from '../config/load.ts';
import type { RedisAddress } from '../config/variables.ts';
import { grantToService, migrate, setSessionDefaults } from '../migrations/migrate.ts';
import { createNamespace, ensureSearchAttributes } from '../migrations/namespace.ts';
import { createLogger } from '../workers/logger.ts';
import type { DispatchMode } from '../workflows/intent/contract.ts';
import type { Endpoints } from '../workers/context.ts';
import type { Service } from '../workers/service.ts';
import { startService } from '../workers/service.ts';
import { eventually } from './eventually.ts';
import { recordHistories } from './histories/record.ts';
import { shared } from './of-tests.ts';
import { asUserOf } from './redis-users.ts';
import { NAMESPACES_AHEAD, SLOTS, TEMPLATE_DATABASE, databaseOf, namespaceOf, roleOfSlot } from './slots.ts';
import { SEARCH_ATTRIBUTES } from '../workflows/search-attributes.ts';

export { eventually } from './eventually.ts';

const { DeleteNamespaceRequest } = proto.temporal.api.operatorservice.v1;

type ServersOfSlots = Required<Pick<Stack, 'postgresDsn' | 'redisAddr' | 'temporalAddress'>>;

/** The servers that globalSetup started. */
export function stackOfRun(): ServersOfSlots & Required<Pick<Stack, 'uiUrl'>> {
  const text = process.env['TEST_STACK'];
  if (!text) throw new Error('the test servers are not running; start tests with npm test');
  return JSON.parse(text) as Required<Stack>;
}

/** A workflow that is about to start; a route's own comes after its first attempt in mode `on_failure`. */
export const untilStarted = (handle: WorkflowHandle): Promise<unknown> =>
  eventually(`${handle.workflowId} to be started`, () => handle.describe());

/** Waits until a statement waits for a lock. */
export const untilLocked = (db: Pick<pg.Pool, 'query'>): Promise<unknown> =>
  eventually('a statement to wait for a lock', async () => {
    const { rowCount } = await db.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rowCount !== 0;
  });

/**
 * How intents are worked off in this run, as variables of the service. The projects `on-failure` and `direct` of
 * jest.config.js set them: what is delivered must not depend on them.
 */
export const way = (): Record<string, string> => ({ NOTIFICATION_ROUTE_DISPATCH: dispatch() });

/** Who makes first attempts in this run. */
export const dispatch = (): DispatchMode =>
  (process.env['NOTIFICATION_ROUTE_DISPATCH'] as DispatchMode | undefined) ?? 'child';

export type LogLine = Record<string, unknown> & { msg: string; level: string };

const STATEMENT_TIMEOUT_MS = 60_000;

/**
 * Time-outs of services in tests: long enough for a machine that does other things as well. A test of a time-out asks
 * for a short one.
 */
const PATIENCE = {
  // At most NOTIFICATION_ROUTE_LEASE_TTL; services settle for three times as long after a loss.
  NOTIFICATION_REDIS_OPERATION_TIMEOUT: '5s',
  NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: `${STATEMENT_TIMEOUT_MS}ms`,
  NOTIFICATION_USER_SERVICE_TIMEOUT: '20s',
  NOTIFICATION_HTTP_TIMEOUT: '5m',
  NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '20s',
};

/** One test file's own part of every server. */
export type Slot = Awaited<ReturnType<typeof takeSlot>>;

/** Variables of each service of a slot, in this process or in its own. */
export const environmentOf = ({ slot, endpoints }: Pick<Slot, 'slot' | 'endpoints'>) => ({
  // Tests of another role ask for it.
  NOTIFICATION_ROLES: 'intent',
  ...PATIENCE,
  ...way(),
  NOTIFICATION_REDIS_DB: String(slot),
  NOTIFICATION_INTERNAL_HTTP_ADDR: '127.0.0.1:0',
  NOTIFICATION_INTENTS_READ_BLOCK_TIMEOUT: '200ms',
  TEMPORAL_NAMESPACE: namespaceOf(slot),
  TEMPORAL_ADDRESS: endpoints.temporalAddress ?? '',
});

/** What an operator's client needs. */
export const resourcesOf = ({ client, db, redis, slot }: Slot) => ({
  ...{ temporal: client, db, redis, namespace: namespaceOf(slot), intentsStream: 'notification:intents' },
});

/** @param uiUrl of the Web UI, which links lead to; default: no Web UI. @param catalog default: the built-in one. */
export const operatorOf = (slot: Slot, uiUrl?: string, catalog?: Catalog): Operator =>
  createOperator({ ...resourcesOf(slot), ...given({ uiUrl, catalog }) });

/** The client of an operator in a file of tests. */
export const { ofTests: operatorOfTests } = shared(operatorOf);

/** The slot of a file or of a `describe`, or another one for each test. */
export const { ofTests: slotOfTests, ofEachTest: slotOfEachTest } = shared(takeSlot, (slot: Slot) =>
  slot.release(),
);

/** Takes a slot of servers. Call `release` at the end. @param options.isEmpty whether the database has no migrations yet. */
export async function takeSlot({ isEmpty } = { isEmpty: false }) {
  const stack = stackOfRun();
  const [redisHost = '', redisPort] = stack.redisAddr.split(':');
  const counter = new Redis({ host: redisHost, port: Number(redisPort), db: 0 });
  const slot = await counter.incr('test:slots');
  counter.disconnect();
  if (slot >= SLOTS) throw new Error('a run takes more slots than it has: raise SLOTS in test/slots.ts');

  const database = databaseOf(slot);
  const dsn = new URL(stack.postgresDsn);
  dsn.pathname = `/${database}`;
  // A mutant of a migration is not in the template.
  const isCopied = !isEmpty && process.env['TEST_TEMPLATE'] !== 'none';
  await asAdmin(
    stack.postgresDsn,
    `CREATE DATABASE ${database}${isCopied ? ` TEMPLATE ${TEMPLATE_DATABASE}` : ''}`,
  );
  if (!isEmpty && !isCopied) await migrate(dsn.href);
  const isPooled = process.env['TEST_POSTGRES'] === 'pooled';
  const poolerPort = isPooled ? process.env['TEST_POOLER_PORT'] : undefined;
  const serviceDsn =
    poolerPort === undefined ? dsn.href : await withRoleOfItsOwn(dsn.href, { slot, port: poolerPort });

  const [userService, fcm] = await Promise.all([startUserService(), startFcm()]);
  const redis = new Redis({ host: redisHost, port: Number(redisPort), db: slot });
  const db = new pg.Pool({ connectionString: dsn.href, max: 4, options: '-c timezone=UTC' });
  db.on('error', () => undefined);
  // All tests of a file fail with this, and the machine may stand still for as long as the SDK waits, 10 s.
  const connection = await Connection.connect({
    ...{ address: stack.temporalAddress, connectTimeout: '1 minute' },
    ...CHANNEL_RETRIES,
  });
  await prepareNamespaces(connection, slot, stack.temporalAddress);
  const endpoints: Endpoints & { redis: RedisAddress } = {
    redis: { host: redisHost, port: Number(redisPort) },
    postgresDsn: serviceDsn,
    temporalAddress: stack.temporalAddress,
    userServiceUrl: userService.url,
    fcm: { endpoint: fcm.url, caPem: fcm.caPem },
  };
  const client = new Client({ connection, namespace: namespaceOf(slot) });
  const logs: LogLine[] = [];
  const log = createLogger('debug', { write: keep });
  function keep(line: string): void {
    logs.push(JSON.parse(line) as LogLine);
  }
  const services: Service[] = [];
  const configWith = (env: Record<string, string> = {}, hasUsers = true): Config =>
    loadConfig({
      ...environmentOf({ slot, endpoints }),
      // Only this run's Redis knows the users.
      ...(hasUsers && env['NOTIFICATION_REDIS_MASTER_ADDR'] === undefined
        ? asUserOf(env['NOTIFICATION_ROLES'] ?? 'intent')
        : {}),
      ...env,
    });

  /** Frees what the servers of the run keep for this slot. */
  async function giveBack(): Promise<void> {
    await sessionsEnded(stack.postgresDsn, database);
    await Promise.all([
      asAdmin(stack.postgresDsn, `DROP DATABASE IF EXISTS ${database} WITH (FORCE)`),
      redis.flushdb(),
      // Its rows go with Temporal: deleting them now would cost more than they do.
      connection.operatorService.deleteNamespace(
        DeleteNamespaceRequest.fromObject({
          namespace: namespaceOf(slot),
          namespaceDeleteDelay: { seconds: RETENTION_MS / 1_000 },
        }),
      ),
    ]);
  }

  return {
    slot,
    endpoints,
    /** Of the database's owner, directly. */
    ownerDsn: dsn.href,
    redis,
    db,
    client,
    userService,
    fcm,
    /** Lines that services of this slot logged. */
    logs,
    /** A configuration of this slot; `env` adds to it. */
    config: (env?: Record<string, string>) => configWith(env),
    /**
     * Starts the service itself in this process, stopped with the slot at the latest. `instead` replaces addresses of
     * the slot's servers.
     */
    async startService(env?: Record<string, string>, instead?: Partial<Endpoints>): Promise<Service> {
      const service = await startService({
        config: configWith(env, instead?.redis === undefined),
        endpoints: { ...endpoints, ...instead },
        log,
      });
      services.push(service);
      return service;
    },
    /** Stops what was started in this process. */
    async stopServices() {
      await Promise.all(services.splice(0).map((service) => service.stop()));
    },
    /** Takes the database away from everybody, open connections included; `restore` brings it back. */
    async cutOffDatabase() {
      const allow = (isAllowed: boolean) =>
        asAdmin(stack.postgresDsn, `ALTER DATABASE ${database} ALLOW_CONNECTIONS ${isAllowed}`);
      await allow(false);
      await asAdmin(stack.postgresDsn, `SELECT pg_terminate_backend(pid) ${sessionsOf(database)}`);
      return { restore: () => allow(true) };
    },
    async release() {
      await Promise.all(services.map((service) => service.stop()));
      const recordTo = process.env['RECORD_HISTORIES'];
      if (recordTo !== undefined) await recordHistories(client, recordTo);
      // A test that failed may still hold a connection, which the end of the pool would wait for.
      const ended = Promise.race([db.end(), setTimeout(LONGEST_END_MS, undefined, { ref: false })]);
      await Promise.all([userService.stop(), fcm.stop(), ended]);
      await giveBack();
      await connection.close();
      redis.disconnect();
      await once(redis, 'end');
    },
  };
}

/** A pool has ended before its connections have, and an error of one that is dropped meanwhile would end the process. */
async function sessionsEnded(adminDsn: string, database: string): Promise<void> {
  const areLeft = async () => (await asAdmin(adminDsn, `SELECT ${sessionsOf(database)}`)).rowCount !== 0;
  // A test that failed may leave one for good.
  for (let looks = 0; looks < 40 && (await areLeft()); looks += 1) await setTimeout(50);
}

const sessionsOf = (database: string) => `FROM pg_stat_activity WHERE datname = '${database}'`;

/** Runs one statement, over a connection of a superuser. */
async function asAdmin(dsn: string, statement: string): Promise<pg.QueryResult> {
  const admin = new pg.Client({ connectionString: dsn });
  await admin.connect();
  return admin.query(statement).finally(() => admin.end());
}

const LONGEST_END_MS = 20_000;
/** Of closed workflows; longer than any run. */
const RETENTION_MS = 86_400_000;

/**
 * Registers the namespace that a later slot takes, and waits until the one of this slot is ready. A namespace costs
 * Temporal memory and polls as long as it lives, so a run never has many.
 */
async function prepareNamespaces(connection: Connection, slot: number, address: string): Promise<void> {
  const later = namespaceOf(slot + NAMESPACES_AHEAD);
  await createNamespace(connection, later, RETENTION_MS);
  await ensureSearchAttributes(connection, later, SEARCH_ATTRIBUTES);
  // In case the process that had to register it was killed; `readiness` adds its search attributes.
  await createNamespace(connection, namespaceOf(slot), RETENTION_MS);
  const isReady = readiness(address, [namespaceOf(slot)], SEARCH_ATTRIBUTES);
  await eventually(`${namespaceOf(slot)} to be ready`, () => isReady().then(() => true));
}

/** Prepares a database as `setup` does for a service that owns nothing. @returns the address through the pooler. */
async function withRoleOfItsOwn(
  ownerDsn: string,
  { slot, port }: { slot: number; port: string },
): Promise<string> {
  const role = roleOfSlot(slot);
  await asAdmin(ownerDsn, `CREATE ROLE ${role} LOGIN`);
  // Tables of other services, which tests make.
  const rights = 'IN SCHEMA public GRANT SELECT, DELETE ON TABLES';
  await asAdmin(ownerDsn, `ALTER DEFAULT PRIVILEGES ${rights} TO ${role}`);
  await migrate(ownerDsn);
  await grantToService(ownerDsn, role, { isDryRun: false });
  const address = new URL(ownerDsn);
  address.username = role;
  await setSessionDefaults(address.href, { statementTimeoutMs: STATEMENT_TIMEOUT_MS }, { isDryRun: false });
  address.port = port;
  address.searchParams.set('pgbouncer', 'true');
  return address.href;
}
