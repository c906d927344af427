/**
 * Every statement of a recurring step is bounded in time and rows. A statement that reads a table as a whole does well for
 * as long as the table is small, and then stops what it belongs to for good: each run ends by its time-out.
 */
import pg from 'pg';
import type { Statement } from '../../activities/postgres.ts';
import { STATEMENTS as OF_ACCOUNTS } from '../../client/account-callback/places.ts';
import { STATEMENTS as OF_INTENTS } from '../../client/intent/why.ts';
import { STATEMENTS as OF_PUSHES } from '../../client/mobile-push/jobs.ts';
import { STATEMENTS as OF_TOP } from '../../client/top.ts';
import { migrate } from '../../migrations/migrate.ts';
import { slotOfTests } from '../harness.ts';
import { OF_AN_AGENT, SMALL, fillWithBulkRows, pretendOneAgent } from './bulk-rows.ts';
import { allStatements, namesInSources, planOf, unboundedParts, unnamedQueries } from './statements.ts';

/** Statements that may take longer the more there is, and why. */
const EXCEPTIONS: Record<string, string> = {
  find_due_callback_day:
    'passes over users who wait for a daily retry; there are few of them, or the daily callbacks of all stand still',
  begin_daily_callbacks: 'the same',
  count_silent_routers:
    'one look for each router of each agent that is open; after 2 s its gauge is left out',
};

/** Of an operator, about one recipient. */
const OF_WHY = { ...OF_INTENTS, ...OF_PUSHES, ...OF_ACCOUNTS };

let db: pg.Pool;
// Before the slot is given back.
afterAll(() => db.end());
const slot = slotOfTests();
let statements: Map<string, Statement>;
let large: Set<string>;

beforeAll(async () => {
  const dsn = slot.endpoints.postgresDsn;
  db = new pg.Pool({ connectionString: dsn, max: 1 });
  await migrate(dsn);
  large = new Set(await fillWithBulkRows(db, dsn));
  statements = await allStatements();
}, 180_000);

test('I50 every statement has a name', async () => {
  expect((await namesInSources()).filter((name) => !statements.has(name))).toEqual([]);
  expect(await unnamedQueries()).toEqual([]);
});

test('I50 every table has rows in bulk here, or stays small', async () => {
  const { rows } = await db.query<{ name: string }>(
    "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text ~ '^(notification|subscriptions|public)'",
  );
  expect(rows.map(({ name }) => name).sort()).toEqual([...large, ...Object.keys(SMALL)].sort());
});

test('I50 no statement takes longer the more rows there are that it is not about', async () => {
  expect(await unboundedStatements(large)).toEqual(Object.keys(EXCEPTIONS).sort());
}, 120_000);

test('I50 no statement about an agent takes no longer the more connections the agent has', async () => {
  await pretendOneAgent(db);
  const found = await unboundedStatements(new Set(OF_AN_AGENT), ['agent_id']);
  expect(found.filter((name) => !(name in EXCEPTIONS))).toEqual([]);
}, 120_000);

/** @param shared see {@link unboundedParts}. */
async function unboundedStatements(tables: ReadonlySet<string>, shared?: readonly string[]) {
  const found: string[] = [];
  for (const [name, statement] of statements)
    if (unboundedParts(await planOf(db, statement), tables, shared).length > 0) found.push(name);
  return found.sort();
}

test('U1 U11 what why and top read takes no longer the more rows there are of others', async () => {
  await db.query('ANALYZE');
  for (const [name, text] of [OF_WHY, OF_TOP].flatMap((texts) => Object.entries<string>(texts)))
    expect([name, unboundedParts(await planOf(db, { name, text }), large)]).toEqual([name, []]);
});

test('I50 what is done for each intent is planned once, and not for each of its values', async () => {
  const client = await db.connect();
  try {
    const plansOf = async (name: string): Promise<{ generic: number }> => {
      const { text } = statements.get(name)!;
      const lists = [['1-0'], ['push:user:user-1'], [new Date().toISOString()], ['1-1'], [null], ['pending']];
      for (let times = 0; times < 10; times += 1) await client.query({ name, text, values: lists });
      const { rows } = await client.query<{ generic: number }>(
        'SELECT generic_plans::int AS generic FROM pg_prepared_statements WHERE name = $1',
        [name],
      );
      return rows[0]!;
    };
    expect((await plansOf('settle_routes')).generic).toBeGreaterThan(0);
  } finally {
    client.release();
  }
});

test.each([
  ['reads all of records', 'SELECT 1 FROM notification.records WHERE payload_json = $1'],
  [
    'walks all of records_pkey',
    'SELECT notification_id FROM notification.records WHERE trace_id = $1 ORDER BY 1 LIMIT $2',
  ],
  [
    'walks a range without a limit of records_accepted_at_idx',
    "DELETE FROM notification.records WHERE accepted_at < $1::timestamptz - interval '1 year'",
  ],
  [
    'sorts all that it finds, for a few',
    'SELECT notification_id FROM notification.records WHERE accepted_at < $1 ORDER BY accepted_at::text LIMIT $2',
  ],
])('I50 a statement that %s is found', async (problem, text) => {
  const client = await db.connect();
  try {
    // For what a small table would not make it do.
    if (!problem.startsWith('reads')) await client.query('SET enable_seqscan = off');
    const parts = unboundedParts(await planOf(client, { name: 'planted', text }), large);
    expect(parts).toEqual([problem]);
  } finally {
    await client.query('RESET enable_seqscan');
    client.release();
  }
});
