/** A PostgreSQL that has become read-only, as after a failover that cut no connection: a client that meets it leaves it. */
import pg from 'pg';
import { query } from '../../activities/postgres.ts';
import { inTransaction, run } from '../../activities/transactions.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';

const INSERT = { name: 'insert_something', text: 'INSERT INTO something VALUES ($1)' };

let slot: Slot;
let db: pg.Pool;
beforeAll(async () => {
  slot = await takeSlot();
  await slot.db.query('CREATE TABLE something (id integer)');
});
afterAll(() => slot.release());
beforeEach(() => {
  db = new pg.Pool({ connectionString: slot.endpoints.postgresDsn, max: 1 });
});
afterEach(() => db.end());

test.each([
  ['a statement', () => query(db, INSERT, [1])],
  ['a transaction', () => inTransaction(db, (client) => run(client, INSERT, [1]))],
])('intent-D1 %s that meets a read-only server gives its connection up', async (_, write) => {
  await db.query('SET default_transaction_read_only = on');
  await expect(write()).rejects.toThrow(/read-only transaction/);
  await write();
});
