/** Connections that a client gives up: PostgreSQL ends them as soon as they are there, or has become read-only, as after a failover. */
import type { Socket } from 'node:net';
import pg from 'pg';
import { query, inTransaction, run } from '../../activities/postgres.ts';
import { slotOfTests } from '../harness.ts';

const INSERT = { name: 'insert_something', text: 'INSERT INTO something VALUES ($1)' };

const slot = slotOfTests();
let db: pg.Pool;
beforeAll(() => slot.db.query('CREATE TABLE something (id integer)'));
beforeEach(() => {
  db = new pg.Pool({ connectionString: slot.endpoints.postgresDsn, max: 1 });
});
afterEach(() => db.end());

test('I24 a connection that PostgreSQL ends as soon as it is there fails the transaction, and ends no process', async () => {
  db.once('connect', (client: pg.PoolClient) => {
    (client as unknown as { connection: { stream: Socket } }).connection.stream.destroy();
    // Said in the same packet as that the connection is ready: before a promise of it resolves.
    process.nextTick(() => client.emit('error', new Error('terminating connection')));
  });
  const answer = () =>
    inTransaction(db, async (client) => (await client.query<{ one: string }>("SELECT 'one' AS one")).rows);
  await expect(answer()).rejects.toMatchObject({ type: 'PostgresUnavailable' });
  expect(await answer()).toEqual([{ one: 'one' }]);
});

test.each([
  ['a statement', () => query(db, INSERT, [1])],
  ['a transaction', () => inTransaction(db, (client) => run(client, INSERT, [1]))],
])('intent-D1 %s that meets a read-only server gives its connection up', async (_, write) => {
  await db.query('SET default_transaction_read_only = on');
  await expect(write()).rejects.toThrow(/read-only transaction/);
  await write();
});
