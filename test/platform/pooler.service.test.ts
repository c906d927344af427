/** PostgreSQL through PgBouncer in transaction mode; that statements have no name there is seen by the project `pooled`. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { sessionOptions } from '../../api/postgres-session.ts';
import { openDatabase } from '../../client/connect.ts';
import { outboxStatus, publishToOutbox, readOutboxSql, startOutboxRelay } from '../../client/outbox.ts';
import { migrateOrCheck } from '../../migrations/migrate.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually } from '../eventually.ts';
import { slotOfTests } from '../harness.ts';
import type { Pooler } from '../pooler.ts';
import { startPooler } from '../pooler.ts';
import { turnIntent } from '../intent/entries.ts';

const ROLE = `pooled_${randomUUID().slice(0, 8)}`;

const slot = slotOfTests({ isEmpty: true });
const bench = cliOfTests(slot);
const roleDsn = () => Object.assign(new URL(slot.ownerDsn), { username: ROLE });

beforeAll(() => slot.db.query(`CREATE ROLE ${ROLE} LOGIN`));

async function withDatabase(
  connectionString: string,
  work: (db: pg.Pool) => Promise<unknown>,
  timeoutMs = 5_000,
): Promise<void> {
  const db = new pg.Pool({ connectionString, max: 1, ...sessionOptions(connectionString, timeoutMs) });
  await work(db).finally(() => db.end());
}

describe('through PgBouncer', () => {
  let pooler: Pooler;
  let pooledDsn: string;

  beforeAll(async () => {
    const dsn = roleDsn();
    pooler = await startPooler(dsn.port, [ROLE]);
    dsn.port = String(pooler.port);
    dsn.searchParams.set('pgbouncer', 'true');
    pooledDsn = dsn.href;
  });
  afterAll(() => pooler.stop());

  /** Connections of before keep the settings that they began with. */
  const endSessions = () =>
    slot.db.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1', [ROLE]);

  test('I84 migrations do not go through it; a process says so', async () => {
    // A role to which nothing is granted sees no migration.
    await expect(migrateOrCheck(pooledDsn)).rejects.toThrow(/no migration goes through a pooler.*setup/);
    const { code, stderr } = await bench.cli(['setup'], {
      changes: { NOTIFICATION_POSTGRES_PRIMARY_DSN: pooledDsn },
    });
    const words = 'NOTIFICATION_POSTGRES_OWNER_DSN must lead to';
    expect([code, stderr]).toEqual([1, expect.stringContaining(words)]);
  });

  test('I84 setup has sessions of the role begin with the time-out and the time zone, and doctor looks', async () => {
    const changes = {
      NOTIFICATION_POSTGRES_PRIMARY_DSN: pooledDsn,
      NOTIFICATION_POSTGRES_OWNER_DSN: slot.ownerDsn,
    };
    const sessions = async () => (await bench.findings(changes))['database sessions'];
    await slot.db.query(`ALTER ROLE ${ROLE} IN DATABASE test_${slot.slot} RESET ALL`);
    await slot.db.query(`ALTER ROLE ${ROLE} SET DateStyle = 'SQL, MDY'`);
    await endSessions();
    await eventually('sessions without them', async () => (await sessions())?.status === 'warn');
    const { code, stderr, steps } = await bench.setUp([], changes);
    expect([stderr.includes('cannot'), code]).toEqual([false, 0]);
    expect(steps).toMatchObject({ 'database sessions': 'changed' });
    await endSessions();
    await eventually('new sessions to have it', async () => (await sessions())?.status === 'ok');
    await expectKnownForms(pooledDsn);
    await slot.db.query(`ALTER ROLE ${ROLE} RESET DateStyle`);
    await withDatabase(
      pooledDsn,
      (db) => expect(db.query('SELECT pg_sleep(30)')).rejects.toMatchObject({ code: '57014' }),
      60_000,
    );
  });

  test('I84 the relay of an outbox works through it', async () => {
    await slot.db.query(await readOutboxSql());
    await slot.db.query(`GRANT USAGE ON SCHEMA notification_outbox TO ${ROLE}`);
    await slot.db.query(`GRANT ALL ON ALL TABLES IN SCHEMA notification_outbox TO ${ROLE}`);
    const db = openDatabase(pooledDsn);
    const relay = await startOutboxRelay({ db, redis: slot.redis, pollMs: 100 });
    await publishToOutbox(slot.db, turnIntent(`pooled/${pooler.port}`));
    await eventually('the row to be published', async () => relay.counts.published === 1);
    expect((await outboxStatus(db)).counts).toMatchObject({ pending: 0, published: 1 });
    await relay.stop();
    await db.end();
    await slot.db.query('TRUNCATE notification_outbox.intents');
  });
});

/** Values that a driver reads from text come as they are, whatever server and role have. */
async function expectKnownForms(dsn: string): Promise<void> {
  await withDatabase(dsn, async (db) => {
    const { rows } = await db.query(
      `SELECT timestamptz '2026-03-01 12:00:00.5Z' AS time, interval '-1 day 90 minutes' AS span, bytea '\\x0aff' AS bytes,
              (bytea '\\x0aff')::text AS hex, (timestamptz '2026-03-01 12:00Z')::text AS text,
              0.1::double precision + 0.2 AS sum`,
    );
    expect(rows).toEqual([
      {
        time: new Date('2026-03-01T12:00:00.500Z'),
        span: expect.objectContaining({ days: -1, hours: 1, minutes: 30 }),
        bytes: Buffer.from([10, 255]),
        hex: '\\x0aff',
        text: '2026-03-01 12:00:00+00',
        sum: 0.1 + 0.2,
      },
    ]);
  });
}

test('bug-P5 values come in their known form, whatever settings a role has', async () => {
  for (const setting of [
    ...["IntervalStyle = 'sql_standard'", "DateStyle = 'SQL, DMY'", "bytea_output = 'escape'"],
    ...['extra_float_digits = 0', "TimeZone = 'Asia/Tokyo'"],
  ])
    await slot.db.query(`ALTER ROLE ${ROLE} SET ${setting}`);
  await expectKnownForms(roleDsn().href);
});

test('I84 without a pooler, each session begins with the time-out', () => {
  expect(sessionOptions(roleDsn().href, 5_000)).toMatchObject({ statement_timeout: 5_000 });
});
