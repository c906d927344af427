/**
 * An owner of the tables and a role of the service on a real server, directly and through PgBouncer in transaction mode. That
 * statements have no name there is seen by the project `pooled`.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { sessionOptions } from '../../api/postgres-session.ts';
import { STATEMENTS as OF_ACCOUNTS } from '../../client/account-callback/places.ts';
import { STATEMENTS as OF_INTENTS } from '../../client/intent/why.ts';
import { STATEMENTS as OF_PUSHES } from '../../client/mobile-push/jobs.ts';
import { openDatabase } from '../../client/connect.ts';
import { outboxStatus, publishToOutbox, readOutboxSql, startOutboxRelay } from '../../client/outbox.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import { createOperator } from '../../client/operator.ts';
import { grantToService, migrateOrCheck } from '../../migrations/migrate.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, resourcesOf, slotOfTests } from '../harness.ts';
import { turnIntent } from '../intent/entries.ts';
import type { Pooler } from '../pooler.ts';
import { startPooler } from '../pooler.ts';
import { databaseOf } from '../slots.ts';
import { allStatements, planOf } from './statements.ts';

const RUN = randomUUID().slice(0, 8);
/** One with a capital letter: names are quoted where they must be. */
const [OWNER, SERVICE, POOLED] = [`owner_${RUN}`, `service_S${RUN}`, `pooled_${RUN}`];
let ownerDsn: string;
let serviceDsn: string;
let owner: pg.Pool;
let service: pg.Pool;
// Before the slot is given back.
afterAll(() => Promise.all([owner.end(), service.end()]));
const slot = slotOfTests({ isEmpty: true });
const bench = cliOfTests(slot);

beforeAll(async () => {
  await slot.db.query(
    `CREATE ROLE ${OWNER} LOGIN; CREATE ROLE "${SERVICE}" LOGIN; CREATE ROLE ${POOLED} LOGIN`,
  );
  await slot.db.query(`ALTER DATABASE ${databaseOf(slot.slot)} OWNER TO ${OWNER}`);
  ownerDsn = dsnOf(OWNER);
  serviceDsn = dsnOf(SERVICE);
  owner = new pg.Pool({ connectionString: ownerDsn, max: 1 });
  service = new pg.Pool({ connectionString: serviceDsn, max: 1 });
});

const dsnOf = (role: string): string => Object.assign(new URL(slot.ownerDsn), { username: role }).href;

/** Gives the role of the service its rights again. */
const grant = () => grantToService(ownerDsn, SERVICE, { isDryRun: false });

const setup = async (...args: string[]) => {
  const { code, steps } = await bench.setUp(args, {
    NOTIFICATION_POSTGRES_PRIMARY_DSN: serviceDsn,
    NOTIFICATION_POSTGRES_OWNER_DSN: ownerDsn,
  });
  return { code, steps: { schema: steps['database schema'], role: steps['database role'] } };
};

const finding = async (changes: Record<string, string> = {}) =>
  (await bench.findings({ NOTIFICATION_POSTGRES_PRIMARY_DSN: serviceDsn, ...changes }))['PostgreSQL: role'];

test('I83 a service whose role may make no table says what is missing and what to do', async () => {
  await expect(slot.startService({}, { postgresDsn: serviceDsn })).rejects.toMatchObject({
    name: 'SchemaBehindCodeError',
    message: expect.stringMatching(
      `lacks 0001-intent, .*role ${SERVICE} may not.*galaxy-notify setup .*NOTIFICATION_POSTGRES_OWNER_DSN`,
    ) as string,
  });
});

test('I83 I40 setup makes tables as the owner, gives the role of the service its rights, and may run again', async () => {
  expect(await setup('--dry-run')).toMatchObject({ code: 1, steps: { schema: 'missing' } });
  expect((await owner.query("SELECT FROM pg_namespace WHERE nspname = 'notification'")).rowCount).toBe(0);

  expect(await setup()).toEqual({ code: 0, steps: { schema: 'created', role: 'changed' } });
  expect(await setup()).toEqual({ code: 0, steps: { schema: 'ok', role: 'ok' } });
  const { rows } = await owner.query<{ owner: string }>(
    "SELECT DISTINCT tableowner AS owner FROM pg_tables WHERE schemaname ~ '^(notification|subscriptions)'",
  );
  expect(rows).toEqual([{ owner: OWNER }]);

  // A table that came with another release is granted with it.
  await owner.query('CREATE TABLE notification.later (id bigint GENERATED ALWAYS AS IDENTITY)');
  expect(await setup('--dry-run')).toMatchObject({ code: 1, steps: { role: 'missing' } });
  await setup();
  await service.query('INSERT INTO notification.later DEFAULT VALUES');
  await owner.query('DROP TABLE notification.later');
});

test('I83 setup names a role that is not there, and who may not grant', async () => {
  const options = { isDryRun: false };
  await expect(grantToService(ownerDsn, 'missing_role', options)).rejects.toThrow(
    'there is no role missing_role',
  );
  await owner.query(`REVOKE SELECT ON notification.routes FROM "${SERVICE}"`);
  await expect(grantToService(serviceDsn, SERVICE, options)).rejects.toThrow(/does not own/);
  await grant();
});

test('I83 the role of the service changes no table, and does not say which migrations there were', async () => {
  for (const statement of [
    'CREATE SCHEMA mine',
    'CREATE TABLE notification.mine (id int)',
    'ALTER TABLE notification.routes ADD COLUMN mine int',
    'DROP TABLE notification.routes CASCADE',
    'TRUNCATE notification.routes CASCADE',
    'CREATE INDEX mine ON notification.routes (route_id)',
    "INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9999-breaking', now())",
  ]) {
    await expect(service.query(statement)).rejects.toMatchObject({
      message: expect.stringMatching(/permission denied|must be owner|no privileges/),
    });
  }
});

test('security-14 the trail of operators grows alone: the role of the service neither changes nor deletes it', async () => {
  const act = `INSERT INTO notification.operator_actions (action, requested_by, detail) VALUES ('a', 'ann', 'why')`;
  await service.query(act);
  const rows = async () =>
    (await owner.query('SELECT requested_by, detail, db_user FROM notification.operator_actions'))
      .rows as object[];
  const written = [{ requested_by: 'ann', detail: 'why', db_user: SERVICE }];
  expect(await rows()).toEqual(written);

  for (const statement of [
    "UPDATE notification.operator_actions SET requested_by = 'ben'",
    "UPDATE notification.operator_actions SET detail = 'another'",
    "UPDATE notification.operator_actions SET acted_at = now() - interval '40 d'",
    'TRUNCATE notification.operator_actions',
    act.replace('detail)', 'db_user)'),
    act.replace('detail)', 'acted_at)').replace("'why'", "now() - interval '40 d'"),
  ]) {
    await expect(service.query(statement)).rejects.toMatchObject({ code: '42501' });
  }
  expect((await service.query('DELETE FROM notification.operator_actions')).rowCount).toBe(0);
  expect(await rows()).toEqual(written);

  // Forgetting empties details, and retention deletes what is old.
  await service.query("UPDATE notification.operator_actions SET detail = NULL WHERE detail ~ 'why'");
  await owner.query("UPDATE notification.operator_actions SET acted_at = now() - interval '25 h'");
  expect((await service.query('DELETE FROM notification.operator_actions')).rowCount).toBe(1);
});

test('I83 every statement of the service and of why runs under its role', async () => {
  await createDeviceTokens(ownerDsn, { samples: false });
  await owner.query(`GRANT SELECT, DELETE ON public.device_token TO "${SERVICE}"`);
  const ofWhy = Object.entries({ ...OF_ACCOUNTS, ...OF_INTENTS, ...OF_PUSHES });
  const statements = [...(await allStatements()).values(), ...ofWhy.map(([name, text]) => ({ name, text }))];
  // PostgreSQL checks rights as it plans to run.
  const refusals = async () => {
    const asked = statements.map((statement) =>
      planOf(service, statement).then(
        () => undefined,
        (error: Error) => `${statement.name}: ${error.message}`,
      ),
    );
    return (await Promise.all(asked)).filter((refusal) => refusal !== undefined);
  };
  expect(await refusals()).toEqual([]);
  expect(statements.length).toBeGreaterThan(170);

  // The same look finds a right that is missing.
  await owner.query(`REVOKE UPDATE ON notification.routes FROM "${SERVICE}"`);
  expect((await refusals()).length).toBeGreaterThan(3);
  await grant();
});

test.each(['SELECT, DELETE', 'SELECT', undefined])(
  'I79 I83 a user is forgotten by a role with the right to %s device tokens; those that it may not delete are named',
  async (right) => {
    await owner.query(`REVOKE ALL ON public.device_token FROM "${SERVICE}"`);
    if (right) await owner.query(`GRANT ${right} ON public.device_token TO "${SERVICE}"`);
    const userId = `user of ${right}`;
    await owner.query(`INSERT INTO public.device_token ("userId", token) VALUES ($1, 'token')`, [userId]);
    const { users } = createOperator({ ...resourcesOf(slot), db: service });
    const { remains } = await users.preview({ userId });
    expect(await users.forget({ userId }, { requestedBy: 'nina' })).toMatchObject({ remains });
    const { rowCount } = await owner.query('SELECT FROM public.device_token WHERE "userId" = $1', [userId]);
    expect([rowCount, remains.some(({ what }) => what.includes('public.device_token'))]).toEqual(
      right === 'SELECT, DELETE' ? [0, false] : [1, true],
    );
  },
);

test('I83 a service of that role starts on a schema that is ready, and takes one that is ahead', async () => {
  await owner.query("INSERT INTO notification.schema_migrations (name, run_on) VALUES ('9998-later', now())");
  expect(await migrateOrCheck(serviceDsn)).toEqual([]);
  const running = await slot.startService({}, { postgresDsn: serviceDsn });
  await running.stop();
  await owner.query("DELETE FROM notification.schema_migrations WHERE name = '9998-later'");

  await owner.query("DELETE FROM notification.schema_migrations WHERE name LIKE '0004-%'");
  await expect(migrateOrCheck(serviceDsn)).rejects.toThrow(/lacks 0004-/);
  await owner.query(
    "INSERT INTO notification.schema_migrations (name, run_on) VALUES ('0004-symbol-config', now())",
  );
});

test('I83 doctor says whether the role of the service may change tables', async () => {
  expect(await finding()).toMatchObject({
    status: 'ok',
    detail: expect.stringContaining('changes no table'),
  });
  expect(await finding({ NOTIFICATION_POSTGRES_PRIMARY_DSN: ownerDsn })).toMatchObject({
    detail: expect.stringContaining('may change and drop tables'),
  });
});

async function withDatabase(
  connectionString: string,
  work: (db: pg.Pool) => Promise<unknown>,
): Promise<void> {
  const db = new pg.Pool({ connectionString, max: 1, ...sessionOptions(connectionString, 60_000) });
  await work(db).finally(() => db.end());
}

describe('through PgBouncer', () => {
  let pooler: Pooler;
  let pooledDsn: string;

  beforeAll(async () => {
    const dsn = new URL(dsnOf(POOLED));
    pooler = await startPooler(dsn.port, [POOLED]);
    dsn.port = String(pooler.port);
    dsn.searchParams.set('pgbouncer', 'true');
    pooledDsn = dsn.href;
  });
  afterAll(() => pooler.stop());

  /** Connections of before keep the settings that they began with. */
  const endSessions = () =>
    slot.db.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1', [POOLED]);

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
    await slot.db.query(`ALTER ROLE ${POOLED} SET DateStyle = 'SQL, MDY'`);
    await endSessions();
    await eventually('sessions without them', async () => (await sessions())?.status === 'warn');
    const { code, stderr, steps } = await bench.setUp([], changes);
    expect([stderr.includes('cannot'), code]).toEqual([false, 0]);
    expect(steps).toMatchObject({ 'database sessions': 'changed' });
    await endSessions();
    await eventually('new sessions to have it', async () => (await sessions())?.status === 'ok');
    await expectKnownForms(pooledDsn);
    await withDatabase(pooledDsn, (db) =>
      expect(db.query('SELECT pg_sleep(30)')).rejects.toMatchObject({ code: '57014' }),
    );
  });

  test('I84 the relay of an outbox works through it', async () => {
    await slot.db.query(await readOutboxSql());
    const rights = `SCHEMA notification_outbox TO ${POOLED}`;
    await slot.db.query(`GRANT USAGE ON ${rights}; GRANT ALL ON ALL TABLES IN ${rights}`);
    const db = openDatabase(pooledDsn);
    const relay = await startOutboxRelay({ db, redis: slot.redis, pollMs: 100 });
    await publishToOutbox(slot.db, turnIntent(`pooled/${pooler.port}`));
    await eventually('the row to be published', async () => relay.counts.published === 1);
    expect((await outboxStatus(db)).counts).toMatchObject({ pending: 0, published: 1 });
    await relay.stop();
    await db.end();
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
    await slot.db.query(`ALTER ROLE ${POOLED} SET ${setting}`);
  await expectKnownForms(dsnOf(POOLED));
});

test('I84 without a pooler, each session begins with the time-out', () => {
  expect(sessionOptions(dsnOf(POOLED), 5_000)).toMatchObject({ statement_timeout: 5_000 });
});
