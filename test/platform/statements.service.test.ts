/**
 * Every statement of a recurring step is bounded in time and rows. A statement that reads a table as a whole does well for
 * as long as the table is small, and then stops what it belongs to for good: each run ends by its time-out.
 *
 * A statement that is new has a limit, takes a list of keys or uses small tables alone, or is named here.
 */
import pg from 'pg';
import type { Statement } from '../../activities/postgres.ts';
import { STATEMENTS as OF_AN_ACCOUNT } from '../../client/account-callback/account.ts';
import { STATEMENTS as OF_ACCOUNTS } from '../../client/account-callback/places.ts';
import { STATEMENTS as OF_INTENTS } from '../../client/intent/why.ts';
import { STATEMENTS as OF_PUSHES } from '../../client/mobile-push/places.ts';
import { STATEMENTS as OF_TOP } from '../../client/top.ts';
import { migrate } from '../../migrations/migrate.ts';
import { slotOfTests } from '../harness.ts';
import { OF_AN_AGENT, SMALL, fillWithBulkRows, pretendOneAgent } from './bulk-rows.ts';
import {
  allStatements,
  isBatch,
  namesInSources,
  planOf,
  takesKeys,
  textOrders,
  unboundedParts,
  unnamedQueries,
} from './statements.ts';

/**
 * Of starts, alarms, shards, workers, sweeps, schedules, retention, consumers and gauges: what belongs to one job, agent or
 * server, the end of an index, or a page that another statement has found.
 */
const PART = `
  begin_daily_callbacks begin_hourly_callbacks fix_callback_shards next_callback_retry
  settle_mobile_job
  are_outcomes_left
  are_subscription_events_left begin_token_deletion_attempt
  count_silent_routers drop_token_deletion ensure_subscription_agent insert_subscription_event list_due_subscription_servers
  load_subscription_agent load_subscription_token
  lock_subscription_agent mark_token_deletion_failed`;

/** Of one intent, route or job: those of its record, and a slice of its routes. */
const BY_KEY = `
  count_routes dispatch_intent_again is_notification_settled list_routes lock_windows note_trouble_of_intent
  load_intent_content
  load_route load_slice open_generation
  record_failure record_malformed_intent

  count_mobile_send_failure delete_device_token end_gone_users end_mobile_send find_device_token load_mobile_send
  mark_mobile_send_sent give_up_mobile_job record_malformed_mobile_job record_mobile_job`;

/** Of what operators and clients ask for. */
const OPERATOR = `
  end_channel_drain end_operation note_operation_pause read_operation list_operation_entries list_operation_jobs list_operation_notifications list_operation_routes mark_operation_items
  list_waiting_routes set_hold

  delete_connections find_known_queue insert_connection insert_rcv_queue insert_smp_server insert_token
  insert_token_deletion list_subscription_servers load_queue_import
  load_token_request list_kinds_of_router lock_smp_server mark_token_request_done pin_ntf_server pin_smp_server remove_token
  remove_token_request save_token save_token_mode
  set_subscription_agent_open
  start_subscriptions_of_router_over toggle_connections upsert_ntf_server`;

/** Statements that may take longer the more there is, and why. */
const EXCEPTIONS: Record<string, string> = {
  find_due_callback_day:
    'passes over users who wait for a daily retry; there are few of them, or the daily callbacks of all stand still',
  find_daily_callbacks: 'the same',
  count_silent_routers:
    'one look for each router of each agent that is open; it ends after its own limit of 2 s, and its gauge is left out then',
};

/** Of an operator, about one recipient. */
const OF_WHY = { ...OF_INTENTS, ...OF_PUSHES, ...OF_ACCOUNTS, ...OF_AN_ACCOUNT };
const namesOf = (list: string): string[] => list.trim().split(/\s+/);

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

test('I50 every statement has a name, and each name here is one of them, once', async () => {
  const named = [PART, BY_KEY, OPERATOR].flatMap(namesOf);
  expect(named.filter((name, at) => !statements.has(name) || named.indexOf(name) !== at)).toEqual([]);
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
  const found = await problemsOf([...statements.keys()]);
  expect(found).toEqual(Object.fromEntries(Object.keys(EXCEPTIONS).map((name) => [name, expect.anything()])));
}, 120_000);

test('I50 what recurs for an agent takes no longer the more connections the agent has', async () => {
  await pretendOneAgent(db);
  const found = await problemsOf(
    recurring().filter((name) => usesOneOf(OF_AN_AGENT, name)),
    new Set(OF_AN_AGENT),
    ['agent_id'],
  );
  expect(found).toEqual({ count_silent_routers: expect.anything() });
}, 120_000);

const recurring = (): string[] => {
  const others = new Set([BY_KEY, OPERATOR].flatMap(namesOf));
  return [...statements.keys()].filter((name) => !others.has(name));
};

async function problemsOf(names: readonly string[], tables = large, shared?: readonly string[]) {
  const found: Record<string, string[]> = {};
  for (const name of names) {
    const parts = unboundedParts(await planOf(db, statements.get(name)!), tables, shared);
    if (parts.length > 0) found[name] = parts;
  }
  return found;
}

const usesOneOf = (tables: readonly string[], name: string): boolean =>
  new RegExp(`\\b(?:notifications?|subscriptions|public)\\.(?:${tables.join('|')})\\b`).test(
    statements.get(name)!.text,
  );

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

test('I50 no statement orders by the text of a column', () => {
  const found = [...statements.values()].filter((statement) => textOrders(statement).length > 0);
  expect(found.map(({ name }) => name)).toEqual([]);
  const text = 'SELECT (SELECT b.id::text, a FROM t ORDER BY id LIMIT 1) AS id';
  expect(textOrders({ name: 'planted', text })).toEqual(['id']);
});

test('I50 what recurs says how much it does in one run', () => {
  const known = new Set(namesOf(PART));
  const isBounded = (name: string) => {
    const statement = statements.get(name)!;
    return isBatch(statement) || takesKeys(statement) || !usesOneOf([...large], name);
  };
  expect(recurring().filter((name) => !known.has(name) && !isBounded(name))).toEqual([]);
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
