/**
 * Transactions over several statements, on a separate connection. The file loads no driver: producers use it with the
 * pool that they have.
 */
import type { Pool, PoolClient } from 'pg';

/** Whether the address says that PgBouncer, or another pooler of transactions, stands before the server. */
export const isPooled = (dsn: string): boolean => new URL(dsn).searchParams.get('pgbouncer') === 'true';

/**
 * Runs `body` in a transaction.
 *
 * @param begin how the transaction begins.
 * @param isUnusable whether the connection is not given back to the pool after such a failure, besides one that cannot
 * even roll back.
 * @throws what `body` or PostgreSQL fails with; nothing is changed then.
 */
export async function runTransaction<T>(
  db: Pool,
  body: (client: PoolClient) => Promise<T>,
  {
    begin = 'BEGIN',
    isUnusable = () => false,
  }: { begin?: string; isUnusable?: (error: unknown) => boolean } = {},
): Promise<T> {
  const client = await checkOut(db);
  let failure: Error | undefined;
  try {
    await client.query(begin);
    const result = await body(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    if (isUnusable(error)) failure = error as Error;
    await client.query('ROLLBACK').catch((cause: Error) => (failure = cause));
    throw error;
  } finally {
    client.off('error', ignore);
    client.release(failure);
  }
}

/**
 * A connection of the pool. One that breaks says so to its pool only while the pool has it: between two statements no other listener
 * would hear it, and the process would end; the next statement fails anyway. The listener is there before the
 * connection is handed out: a server may end one in the same packet in which it says that it is ready.
 */
export function checkOut(db: Pool): Promise<PoolClient> {
  return new Promise((resolve, reject) => {
    db.connect((error, client) => {
      if (!client) return reject(error!);
      client.on('error', ignore);
      resolve(client);
    });
  });
}

const ignore = (): void => undefined;
