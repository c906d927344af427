/**
 * PostgreSQL works, and does not take what is to be written: that costs what the values belong to, and nothing behind
 * it. An installation that is not in order is waited for under its own name, and a connection that is of no use is given up.
 */
import type { Socket } from 'node:net';
import pg from 'pg';
import { inTransaction, query, run } from '../../activities/postgres.ts';
import { appendInputs } from '../../client/account-callback/inputs.ts';
import { bridgeWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { HOUR, MIDNIGHT, hour, inputsTaken, benchOfTests } from '../account-callback/callbacks.ts';
import type { Changes } from '../intent/entries.ts';
import { publishTurn, turn, turnPayload } from '../intent/entries.ts';
import { QUICK, mobileOfTests } from '../mobile-push/jobs.ts';
import { eventually, slotOfTests, untilStarted } from '../harness.ts';
import { EMAIL, PUSH, entriesOf, replayRoute, resultOf, routeIn } from '../intent/rows.ts';
import { GATEWAY } from '../service-process.ts';

const INTENTS = 'notification:intents';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
const bench = benchOfTests(slot);
beforeAll(() => bench.startService({ ...QUICK, NOTIFICATION_ROLES: 'intent,mobile-push,account-callback' }));

const sql = (text: string) => slot.db.query(text);

/** Constraints for unforeseen values: rows with `poison` in a column are refused. */
const refuse = (table: string, column: string) =>
  sql(`ALTER TABLE ${table} ADD CONSTRAINT no_poison CHECK (${column}::text NOT LIKE '%poison%') NOT VALID`);
const accept = (table: string) => sql(`ALTER TABLE ${table} DROP CONSTRAINT no_poison`);

async function malformed(id: string) {
  const { rows } = await slot.db.query<Record<'failure_code' | 'failure_message' | 'raw_fields', unknown>>(
    'SELECT failure_code, failure_message, raw_fields FROM notification.malformed_intents WHERE stream_entry_id = $1',
    [id],
  );
  return rows[0];
}

const published = (id: string, route = PUSH) => routeIn(slot, id, route, 'published');

const publishChanged = (changes: Changes): Promise<string> =>
  slot.redis.xadd(INTENTS, '*', ...turn(changes).flat()) as Promise<string>;

test('I6 security-22 a malformed row that PostgreSQL refuses is kept bare, and the stream goes on', async () => {
  await refuse('notification.malformed_intents', 'raw_fields');
  const bad = await publishChanged({ payload_json: '"poison"' });
  const good = await publishTurn(slot.redis, 'behind-a-bad-row');
  await published(good);
  expect(await eventually('the row of the bad one', () => malformed(bad))).toEqual({
    failure_code: 'unstorable',
    failure_message: expect.stringMatching(/^invalid_payload; .*no_poison.*SQLSTATE 23514/) as string,
    raw_fields: {},
  });
  await accept('notification.malformed_intents');
});

test('I6 security-22 an intent that PostgreSQL refuses is set aside with its reason', async () => {
  await refuse('notification.records', 'payload_json');
  const payload = turnPayload(',"note":"poison"');
  const id = await publishChanged({ payload_json: payload, idempotency_key: 'poison' });
  expect(await resultOf(slot, id)).toEqual({ outcome: 'unstorable' });
  expect(await malformed(id)).toMatchObject({
    failure_code: 'unstorable',
    failure_message: expect.stringContaining('no_poison') as string,
  });
  await accept('notification.records');
});

test('I22 security-22 a route whose row takes no outcome fails by name, and a replay settles it without a second entry', async () => {
  await sql(`ALTER TABLE notification.routes ADD CONSTRAINT no_poison
               CHECK (status <> 'published' OR recipient_ref <> 'user:user-66') NOT VALID`);
  const id = await publishTurn(slot.redis, 'poisoned-route', ['user-66', 'user-1']);
  await published(id);
  await published(id, EMAIL);
  const route = slot.client.workflow.getHandle(routeWorkflowId(id, 'push:user:user-66'));
  await untilStarted(route);
  const failure = await route.result().catch((error: unknown) => error);
  expect(causesOf(failure)).toContain('PostgresRefused');
  await routeIn(slot, id, 'push:user:user-66', 'pending');

  await accept('notification.routes');
  for (const channel of ['push', 'email']) {
    await replayRoute(slot, id, `${channel}:user:user-66`);
    await published(id, `${channel}:user:user-66`);
  }
  expect(await resultOf(slot, id)).toMatchObject({ published: 4 });
  expect(await entriesOf(slot, GATEWAY, `${id}/push:user:user-66`)).toHaveLength(1);
});

/** Types of a failure and of its causes. */
const causesOf = (failure: unknown): unknown[] =>
  failure instanceof Error ? ['type' in failure && failure.type, ...causesOf(failure.cause)] : [];

test('I24 security-22 without a table the reader and publication wait, by the name of that, and go on when it is back', async () => {
  await sql('ALTER TABLE notification.malformed_intents RENAME TO away');
  const bad = await publishChanged({ payload_json: '[]' });
  const good = await publishTurn(slot.redis, 'behind-a-missing-table');
  await eventually('the reader to say so', async () => {
    const { raw } = await slot.client.workflow.getHandle(bridgeWorkflowId(INTENTS)).describe();
    return raw.pendingActivities?.some(
      ({ lastFailure }) => lastFailure?.applicationFailureInfo?.type === 'PostgresUnusable',
    );
  });
  await sql('ALTER TABLE notification.away RENAME TO malformed_intents');
  await published(good);
  const row = await eventually('the row of the bad one', () => malformed(bad));
  expect(row).toMatchObject({ failure_code: 'invalid_payload' });
});

test('M1 security-22 a mobile job that PostgreSQL refuses is set aside, and those behind it are taken', async () => {
  await refuse('notifications.notification_log', `concat(content, raw_fields)`);
  const { userId } = await mobile.userWith('token-1');
  const bad = await mobile.publishTo(userId, { title: 'poison' });
  const good = await mobile.publishTo(userId);
  await eventually('the job behind it', async () => (await mobile.logRow(good))?.status === 'sent');
  const row = await eventually('the bad one', () => mobile.logRow(bad));
  expect(row).toMatchObject({ status: 'malformed', error_code: 'unstorable', raw_fields: {} });
  await eventually('nothing to be pending', async () => (await mobile.pending()) === 0);
  await accept('notifications.notification_log');
});

test('M2 security-22 a table that takes nothing spends no delivery of a mobile job', async () => {
  const { userId } = await mobile.userWith('token-2');
  await sql('ALTER TABLE notifications.notification_log RENAME TO away');
  const id = await mobile.publishTo(userId);
  // More often than an entry may be delivered.
  await eventually('it to be tried again and again', async () => {
    const tries = slot.logs.filter(({ msg }) => msg === 'PostgreSQL or Temporal is away; mobile jobs wait');
    return tries.length > 6;
  });
  await sql('ALTER TABLE notifications.away RENAME TO notification_log');
  await eventually('the job', async () => (await mobile.logRow(id))?.status === 'sent');
});

test('C7 security-22 an input that PostgreSQL refuses is passed with its reason, and takes no other along', async () => {
  await refuse('notification.callback_snapshots', 'user_id');
  await appendInputs(
    slot.redis,
    ['A', 'poison', 'B'].map((user) => hour(user, MIDNIGHT - HOUR)),
  );
  await inputsTaken(slot.redis);
  const kept = await bench.rows<{ user_id: string }>(
    'SELECT user_id FROM notification.callback_snapshots ORDER BY 1',
  );
  expect(kept.map(({ user_id: userId }) => userId)).toEqual(['A', 'B']);
  expect(slot.logs.filter(({ failure_code }) => failure_code === 'unstorable')).toContainEqual(
    expect.objectContaining({
      msg: 'malformed account input recorded',
      reason: expect.stringContaining('no_poison') as string,
    }),
  );
  await accept('notification.callback_snapshots');
});

describe('a connection', () => {
  const INSERT = { name: 'insert_something', text: 'INSERT INTO something VALUES ($1)' };
  let db: pg.Pool;
  beforeAll(() => sql('CREATE TABLE something (id integer)'));
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
});
