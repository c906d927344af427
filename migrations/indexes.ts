/**
 * Indexes on tables that may be large already when a release comes that wants them. Each is built while everything goes
 * on, which takes minutes and cannot be part of a transaction, and hence of no migration: a process builds what is
 * missing once it is ready.
 */
import pg from 'pg';
import { isPooled } from '../api/postgres-session.ts';

/** One process builds at a time. Any number that nobody else uses. */
const LOCK = 7_310_225;

interface LateIndex {
  name: string;
  /** What comes after its name. */
  definition: string;
}

/** By recipient, for `galaxy-notify why`. */
export const LATE_INDEXES: readonly LateIndex[] = [
  { name: 'routes_recipient_idx', definition: 'ON notification.routes (recipient_ref, created_at)' },
  {
    name: 'waiting_intents_recipients_idx',
    definition: "ON notification.waiting_intents USING gin ((intent -> 'recipientUserIds'))",
  },
  {
    name: 'malformed_intents_recipients_idx',
    definition: 'ON notification.malformed_intents USING gin (notification.named_users(raw_fields))',
  },
  {
    name: 'cancelled_intents_recipients_idx',
    definition: 'ON notification.cancelled_intents USING gin (recipient_user_ids)',
  },
  { name: 'duplicates_duplicate_of_idx', definition: 'ON notification.duplicates (duplicate_of)' },
];

/** What came of a look at the indexes. */
export interface LateIndexBuild {
  /** Names of those built now. */
  built: string[];
  /**
   * All are there, and whole, or this role does not own the tables and leaves it to `galaxy-notify setup`. Otherwise another
   * process is building, or this one was stopped.
   */
  isComplete: boolean;
}

/**
 * Builds the indexes that are missing. One that a process left half-built, which PostgreSQL keeps and never uses, is
 * dropped first.
 *
 * @param signal has this end at once; PostgreSQL ends on its own what it has begun.
 */
export async function buildLateIndexes(dsn: string, signal?: AbortSignal): Promise<LateIndexBuild> {
  // The lock is one of a session, and the build no transaction.
  if (isPooled(dsn)) return { built: [], isComplete: true };
  const client = new pg.Client({
    connectionString: dsn,
    application_name: 'galaxy-notify indexes',
    // The role may have a limit for its statements.
    statement_timeout: 0,
  });
  // A server that goes away between two queries makes the next one reject; nothing else is to end this process.
  client.on('error', () => undefined);
  const stop = () => void client.end();
  const built: string[] = [];
  try {
    await client.connect();
    signal?.addEventListener('abort', stop);
    if (!(await ownsTables(client))) return { built, isComplete: true };
    // Nobody waits for the lock: a build would wait for the transaction of whoever does.
    const { rows } = await client.query<{ isOurs: boolean }>('SELECT pg_try_advisory_lock($1) AS "isOurs"', [
      LOCK,
    ]);
    if (!rows[0]!.isOurs) return { built, isComplete: false };
    for (const { name, definition } of await missing(client)) {
      await client.query(`DROP INDEX CONCURRENTLY IF EXISTS notification.${name}`);
      await client.query(`CREATE INDEX CONCURRENTLY ${name} ${definition}`);
      built.push(name);
    }
    return { built, isComplete: true };
  } catch (error) {
    if (signal?.aborted) return { built, isComplete: false };
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
    // The lock goes with the session.
    await client.end();
  }
}

async function ownsTables(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ isOurs: boolean }>(
    `SELECT pg_has_role(relowner, 'USAGE') AS "isOurs"
       FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE nspname = 'notification' AND relname = 'routes'`,
  );
  return rows[0]?.isOurs === true;
}

/** @returns names of the indexes that are not there, or not whole. */
export async function missingLateIndexes(db: pg.Pool): Promise<string[]> {
  return (await missing(db)).map(({ name }) => name);
}

async function missing(db: pg.Pool | pg.Client): Promise<LateIndex[]> {
  const { rows } = await db.query<{ name: string }>(
    `SELECT relname AS name
       FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid
       JOIN pg_namespace ON pg_namespace.oid = relnamespace
      WHERE nspname = 'notification' AND indisvalid AND relname = ANY ($1::text[])`,
    [LATE_INDEXES.map(({ name }) => name)],
  );
  const whole = new Set(rows.map(({ name }) => name));
  return LATE_INDEXES.filter(({ name }) => !whole.has(name));
}
