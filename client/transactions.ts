/** Transactions of the client over several statements. */
import type { Pool, PoolClient } from 'pg';

/**
 * Runs `body` in a transaction, on a connection of its own.
 *
 * @param begin how the transaction begins.
 * @throws what `body` or PostgreSQL fails with; nothing is changed then.
 */
export async function inTransaction<T>(
  db: Pool,
  body: (client: PoolClient) => Promise<T>,
  begin = 'BEGIN',
): Promise<T> {
  const client = await checkOut(db);
  let failure: Error | undefined;
  try {
    await client.query(begin);
    const result = await body(client);
    await client.query('COMMIT');
    return result;
  } catch (error) {
    // A connection that cannot even do this is not given back to the pool.
    await client.query('ROLLBACK').catch((cause: Error) => (failure = cause));
    throw error;
  } finally {
    client.off('error', ignore);
    client.release(failure);
  }
}

/**
 * A connection of the pool. One that breaks between two statements would end the process, if nobody listened; the next
 * statement fails anyway. The listener is there before the connection is handed out.
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
