/**
 * Sessions with PostgreSQL, directly or through PgBouncer in transaction mode. There each transaction may have another
 * connection to the server: what belongs to a session (settings, prepared statements, locks of a session, LISTEN) is not
 * to be relied on. `pgbouncer=true` in the address says so, which other programs know as well.
 */
import pg from 'pg';

/** Whether the address says that PgBouncer, or another pooler of transactions, stands before the server. */
export const isPooled = (dsn: string): boolean => new URL(dsn).searchParams.get('pgbouncer') === 'true';

/** Whether a pool of connections was made for such an address. */
export const isPooledDatabase = ({ options }: pg.Pool): boolean =>
  options.connectionString !== undefined && isPooled(options.connectionString);

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
 * What a pool of connections needs for its sessions, besides the address.
 *
 * @param statementTimeoutMs after which the server ends a statement. Through a pooler it is the setting of the role
 * (`galaxy-notify setup`) that counts, and the time zone is the role's, too: a pooler refuses both from a client.
 */
export function sessionOptions(dsn: string, statementTimeoutMs: number): pg.PoolConfig {
  return {
    // The server cancels a slow statement itself; this one is for a server that does not answer at all.
    query_timeout: statementTimeoutMs + 1_000,
    ...(isPooled(dsn)
      ? { Client: ClientOfPooler }
      : { statement_timeout: statementTimeoutMs, options: '-c timezone=UTC' }),
  };
}
