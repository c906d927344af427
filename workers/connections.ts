/**
 * The connections of a process. Those that all kinds of work share are opened once and checked before anything else starts:
 * each failure says which dependency, where it was looked for, and why it did not answer.
 */
import type { ConnectionOptions } from 'node:tls';
import { createSecureContext } from 'node:tls';
import { Client } from '@temporalio/client';
import type { DataConverter } from '@temporalio/common';
import type { Worker } from '@temporalio/worker';
import { NativeConnection } from '@temporalio/worker';
import pg from 'pg';
import type { HttpCaller } from '../activities/http/caller.ts';
import { createHttpCaller } from '../activities/http/caller.ts';
import { reasonOf } from '../activities/reason.ts';
import { given } from '../api/given.ts';
import { sessionOptions } from '../api/postgres-session.ts';
import { isPooled } from '../api/postgres-transaction.ts';
import { allOf } from '../api/within.ts';
import { callerCredentials } from '../config/caller.ts';
import type { Config } from '../config/load.ts';
import { temporalConnection } from '../config/service.ts';
import type { ProcessContext } from './context.ts';
import { DependencyError, reach, Replaceable } from './context.ts';
import { openDataConverter } from './key-boxes.ts';
import type { RedisConnections } from './redis.ts';
import { connectRedis } from './redis.ts';
import type { Telemetry } from './telemetry.ts';

type TemporalAccess = Awaited<ReturnType<typeof connectTemporal>>;

export interface Connections extends RedisConnections, TemporalAccess {
  db: pg.Pool;
  client: Client;
  /** Absent when nothing is encrypted. */
  dataConverter?: DataConverter;
}

/** @throws DependencyError when one of the servers does not answer; all that do not are named. */
export async function openConnections(
  context: ProcessContext,
  { clientInterceptors }: Pick<Telemetry, 'clientInterceptors'>,
): Promise<Connections> {
  const [redis, db, temporal] = await allOf(
    [connectRedis(context), connectPostgres(context), connectTemporal(context)],
    DependencyError,
  );
  const encryption = given({ dataConverter: openDataConverter(context) });
  const client = new Client({
    connection: temporal.temporal,
    namespace: temporal.namespace,
    interceptors: { workflow: clientInterceptors },
    ...encryption,
  });
  return { ...redis, ...temporal, db, client, ...encryption };
}

/**
 * When the API key or a certificate changes, a new connection takes the place of the old one; workers go on with it.
 *
 * @throws DependencyError when Temporal does not answer.
 */
async function connectTemporal(context: ProcessContext) {
  const { config, endpoints, open, renewable, log } = context;
  const { connectionOptions, namespace } = temporalConnection(config, endpoints.temporalAddress);
  const where = `Temporal at ${connectionOptions.address ?? 'localhost:7233'}, namespace ${namespace}`;
  const workers: Worker[] = [];
  return reach(where, 'TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE', async () => {
    const held = new Replaceable(await connect(config));
    open.add('Temporal', () => held.current.close());
    renewable.push({
      what: 'Temporal',
      variables: ['TEMPORAL_'],
      async renew(next) {
        const fresh = await connect(next);
        for (const worker of workers) if (worker.getState() === 'RUNNING') worker.connection = fresh;
        await held
          .replace(fresh)
          .close()
          .catch((error: unknown) =>
            log.warn({ reason: reasonOf(error) }, 'former connection to Temporal not closed'),
          );
      },
    });
    return {
      /** For everything but workers. */
      temporal: held.facade,
      namespace,
      /** Workers must have the connection itself. */
      workerConnection: () => held.current,
      /** Takes workers that are to go on with the connection of the time. */
      keepConnected: (others: readonly Worker[]) => void workers.push(...others),
    };
  });

  async function connect(values: Config): Promise<NativeConnection> {
    const options = temporalConnection(values, endpoints.temporalAddress).connectionOptions;
    const connection = await NativeConnection.connect(options);
    try {
      await connection.workflowService.describeNamespace({ namespace });
      return connection;
    } catch (error) {
      await connection.close();
      throw error;
    }
  }
}

/** A new connection has to plan its statements again: one that served a burst is kept for the next, ms. */
const IDLE_LIMIT_MS = 300_000;

/**
 * The pool of connections to PostgreSQL. When the password or a certificate changes, connections that are new take the new ones, and
 * the others end as soon as they are idle.
 *
 * @throws DependencyError when PostgreSQL does not answer.
 */
async function connectPostgres(context: ProcessContext): Promise<pg.Pool> {
  const { endpoints, log, open, renewable } = context;
  const dsn = endpoints.postgresDsn;
  const { host } = new URL(dsn);
  return reach(`PostgreSQL at ${host}`, 'NOTIFICATION_POSTGRES_PRIMARY_DSN', async () => {
    const db = new pg.Pool({ ...poolOptions(context, dsn), ...accessOf(dsn) });
    open.add('PostgreSQL', () => db.end());
    // Without a listener, an idle connection that breaks would end the process.
    db.on('error', (error) => {
      // The pool has ended a little before its last connections are closed.
      if (!db.ending) log.warn({ reason: reasonOf(error) }, 'PostgreSQL connection failed');
    });
    const retire = retirementOf(db);
    await db.query('SELECT 1');
    renewable.push({
      what: 'PostgreSQL',
      variables: ['NOTIFICATION_POSTGRES_PRIMARY_DSN'],
      async renew({ values }) {
        const next = values.NOTIFICATION_POSTGRES_PRIMARY_DSN ?? dsn;
        if (placeOf(next) !== placeOf(dsn))
          throw new Error('another server, database or pooler needs a restart');
        const access = accessOf(next);
        await tryOut({ ...poolOptions(context, dsn), ...access });
        Object.assign(db.options, access);
        await retire();
      },
    });
    return db;
  });
}

function poolOptions({ config: { values } }: ProcessContext, dsn: string): pg.PoolConfig {
  const timeout = values.NOTIFICATION_POSTGRES_OPERATION_TIMEOUT;
  return {
    application_name: 'galaxy-notify',
    max: values.NOTIFICATION_POSTGRES_MAX_OPEN_CONNS,
    min: values.NOTIFICATION_POSTGRES_MAX_IDLE_CONNS,
    idleTimeoutMillis: IDLE_LIMIT_MS,
    maxLifetimeSeconds: Math.ceil(values.NOTIFICATION_POSTGRES_CONN_MAX_LIFETIME / 1_000),
    connectionTimeoutMillis: timeout,
    ...sessionOptions(dsn, timeout),
  };
}

/** Parameters of an address from which `ssl` is made. */
const TLS_PARAMETERS = ['ssl', 'sslmode', 'sslcert', 'sslkey', 'sslrootcert', 'uselibpqcompat'];

/**
 * The address, and the contents of the files that it names as they are now: the client alone would read the files again
 * for each connection, whatever is in them by then.
 *
 * @throws Error when a file cannot be read, or holds no certificate or key.
 */
function accessOf(dsn: string): Pick<pg.PoolConfig, 'connectionString' | 'ssl'> {
  const { ssl } = new pg.Client({ connectionString: dsn }) as unknown as { ssl: boolean | ConnectionOptions };
  if (typeof ssl === 'object') createSecureContext(ssl);
  const address = new URL(dsn);
  for (const name of TLS_PARAMETERS) address.searchParams.delete(name);
  return { connectionString: address.href, ssl };
}

function placeOf(dsn: string): string {
  const { host, pathname } = new URL(dsn);
  return `${host}${pathname}${isPooled(dsn) ? ' through a pooler' : ''}`;
}

/** @throws the client's error when PostgreSQL does not take a connection with these options. */
async function tryOut(options: pg.ClientConfig): Promise<void> {
  const client = new pg.Client(options);
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('SELECT 1');
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** @returns ends the connections that there are at a call: those in use when they are given back. */
function retirementOf(db: pg.Pool): () => Promise<void> {
  const clients = new Set<pg.PoolClient>();
  const retired = new WeakSet<pg.PoolClient>();
  db.on('connect', (client) => clients.add(client));
  db.on('remove', (client) => clients.delete(client));
  // The pool does not keep a client that is ending.
  db.on('release', (_, client) => {
    if (retired.has(client)) void (client as unknown as pg.Client).end();
  });
  return async () => {
    for (const client of clients) retired.add(client);
    // Each takes one that is idle, and gives it back.
    await Promise.allSettled(Array.from({ length: db.idleCount }, () => db.query('SELECT 1')));
  };
}

/**
 * Opens calls to a program, with secrets that may be renewed meanwhile.
 *
 * @param prefix of the variables. @param what for the log.
 * @throws Error when certificate, key or authority cannot be used.
 */
export function openCaller(
  { config, open, renewable }: ProcessContext,
  prefix: string,
  what: string,
  idleMs?: number,
): HttpCaller {
  const credentials = (now: Config) => callerCredentials(now, prefix);
  const caller = createHttpCaller(credentials(config), idleMs);
  open.add(what, () => caller.close());
  renewable.push({
    what,
    variables: [`${prefix}_TOKEN`, `${prefix}_SIGNING_SECRETS`, 'NOTIFICATION_HTTP_'],
    renew: (next) => caller.use(credentials(next)),
  });
  return caller;
}
