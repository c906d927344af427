/**
 * Sessions with PostgreSQL, directly or through PgBouncer in transaction mode. There each transaction may have another
 * connection to the server: what belongs to a session (settings, prepared statements, locks of a session, LISTEN) is not
 * to be relied on. `pgbouncer=true` in the address says so, which other programs know as well.
 */
import pg from 'pg';
import { isPooled } from './postgres-transaction.ts';

/** A connection whose statements have no names: a named one is prepared once, and may be asked for elsewhere. */
class ClientOfPooler extends pg.Client {
  override query: pg.Client['query'] = (query: unknown, ...rest: unknown[]) =>
    // The signatures of `query` are many; they are handed on as they come.
    (super.query as (...all: unknown[]) => never)(withoutName(query), ...rest);
}

function withoutName(query: unknown): unknown {
  if (typeof query !== 'object' || query === null || !('name' in query) || 'submit' in query) return query;
  const { name: _, ...rest } = query;
  return rest;
}

/**
 * Settings that decide how values look as text, by their names in pg_settings: code that reads a time, an interval or bytes
 * depends on them, and a server or a role may have others.
 */
export const SESSION_SETTINGS: Readonly<Record<string, string>> = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, MDY',
  IntervalStyle: 'postgres',
  bytea_output: 'hex',
  extra_float_digits: '1',
};

/** As the server's option `options` has them. */
const OPTIONS = Object.entries(SESSION_SETTINGS)
  .map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '')}`)
  .join(' ');

/**
 * What a pool of connections needs for its sessions, besides the address.
 *
 * @param statementTimeoutMs after which the server ends a statement. Through a pooler the settings of the role count, for it
 * and for {@link SESSION_SETTINGS}: `galaxy-notify setup` sets them, since a pooler refuses them from a client.
 */
export function sessionOptions(dsn: string, statementTimeoutMs: number): pg.PoolConfig {
  return {
    // The server cancels a slow statement itself; this one is for a server that does not answer at all.
    query_timeout: statementTimeoutMs + 1_000,
    ...(isPooled(dsn)
      ? { Client: ClientOfPooler }
      : { statement_timeout: statementTimeoutMs, options: OPTIONS }),
  };
}
