/** Connections that a client gives up: PostgreSQL ends them as soon as they are there, or has become read-only, as after a failover. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { connect, createServer } from 'node:net';
import pg from 'pg';
import { query, inTransaction, run } from '../../activities/postgres.ts';
import { LOOPBACK } from '../../dev/servers/ports.ts';
import { slotOfTests } from '../harness.ts';

/** `ReadyForQuery`, outside of a transaction: what ends the answer to a start. */
const READY = Buffer.from('Z\0\0\0\x05I', 'latin1');

const slot = slotOfTests();

test('I24 a connection that PostgreSQL ends as soon as it is there fails the transaction, and ends no process', async () => {
  const { hostname, port } = new URL(slot.endpoints.postgresDsn);
  let sockets = 0;
  const proxy = createServer((socket) => {
    const server = connect(Number(port), hostname);
    const isFirst = (sockets += 1) === 1;
    server.on('data', (answer: Buffer) => {
      const isReady = isFirst && answer.subarray(-READY.length).equals(READY);
      socket.write(isReady ? Buffer.concat([answer, lastWords()]) : answer);
      if (isReady) socket.end();
    });
    socket.pipe(server);
    socket.on('error', () => server.destroy());
    server.on('error', () => socket.destroy());
    server.on('close', () => socket.destroy());
  });
  await once(proxy.listen(0, LOOPBACK), 'listening');
  const dsn = new URL(slot.endpoints.postgresDsn);
  dsn.port = String((proxy.address() as AddressInfo).port);
  const db = new pg.Pool({ connectionString: dsn.href, max: 1 });
  db.on('error', () => undefined);

  const answer = (): Promise<string | undefined> =>
    inTransaction(
      db,
      async (client) => (await client.query<{ one: string }>("SELECT 'one' AS one")).rows[0]?.one,
    );
  await expect(answer()).rejects.toMatchObject({ type: 'PostgresUnavailable' });
  expect(await answer()).toBe('one');

  await db.end();
  proxy.close();
});

/** What PostgreSQL says to a connection whose server process was left alone. */
function lastWords(): Buffer {
  const fields = [
    'SFATAL',
    'VFATAL',
    'C57P01',
    'Mterminating connection due to unexpected postmaster exit',
    '',
  ];
  const body = Buffer.from(`${fields.join('\0')}\0`, 'latin1');
  const head = Buffer.alloc(5, 'E');
  head.writeUInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}

const INSERT = { name: 'insert_something', text: 'INSERT INTO something VALUES ($1)' };

let db: pg.Pool;
beforeAll(() => slot.db.query('CREATE TABLE something (id integer)'));
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
