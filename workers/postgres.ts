/**
 * The pool of connections to PostgreSQL. When the password or a certificate changes, connections that are new take the new
 * ones, and the others end as soon as they are idle.
 */
import type { ConnectionOptions } from 'node:tls';
import { createSecureContext } from 'node:tls';
import pg from 'pg';
import { reasonOf } from '../activities/reason.ts';
import { sessionOptions } from '../api/postgres-session.ts';
import { isPooled } from '../api/postgres-transaction.ts';
import type { Endpoints, ProcessContext } from './context.ts';
import { reach } from './context.ts';

/** A new connection has to plan its statements again: one that served a burst is kept for the next, ms. */
const IDLE_LIMIT_MS = 300_000;

type PoolContext = Pick<ProcessContext, 'config' | 'log' | 'open' | 'renewable'> & {
  endpoints: Pick<Endpoints, 'postgresDsn'>;
};

/** @throws DependencyError when PostgreSQL does not answer. */
export async function connectPostgres(context: PoolContext): Promise<pg.Pool> {
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

function poolOptions({ config: { values } }: PoolContext, dsn: string): pg.PoolConfig {
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
