/** Retention: what the scheduled run deletes, and what it must leave. */
import { Pool } from 'pg';
import { intentTables } from '../../activities/intent/retention.ts';
import { RETENTION_WORKFLOW } from '../../workflows/recovery-contract.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { deleteAllExpired, deleteExpired } from '../../dev/retention.ts';
import { publishTurn } from './entries.ts';
import { plantRecords, resultOf, routesOf } from './rows.ts';

const HOUR_MS = 3_600_000;

/** @param keyHours for which keys stay reserved. */
const tablesKept = (keyHours: number) =>
  intentTables({
    ...{ recordRetentionMs: 720 * HOUR_MS, malformedIntentRetentionMs: 720 * HOUR_MS },
    ...{ outcomeRetentionMs: HOUR_MS, idempotencyTtlMs: keyHours * HOUR_MS },
  });

const slot = slotOfTests();
beforeAll(async () => {
  await slot.startService();
  // It would run at each hour as well; a paused schedule still runs when it is triggered.
  await schedule().pause();
});
const schedule = () => slot.client.schedule.getHandle('intent-retention');

/** Records with a dead push each. Ages and remaining key reservations are PostgreSQL intervals. */
async function insertRecords(prefix: string, count: number, age: string, reservedFor: string): Promise<void> {
  await plantRecords(slot, prefix, count, { age, reservedFor });
  await slot.db.query(
    `WITH dead AS (
       UPDATE notification.routes SET status = 'dead_letter', next_attempt_at = NULL, dead_lettered_at = now()
        WHERE starts_with(notification_id, $1) RETURNING *)
     INSERT INTO notification.dead_letters
     SELECT notification_id, route_id, channel, recipient_ref, 3, 3, 'c', 'm', 'h', now() FROM dead`,
    [prefix],
  );
}

const insertMalformed = (prefix: string, count: number, age: string) =>
  slot.db.query(
    `INSERT INTO notification.malformed_intents (stream_entry_id, failure_code, failure_message, raw_fields, recorded_at)
     SELECT $1 || n, 'invalid_envelope', 'm', '{}', now() - $3::interval FROM generate_series(1, $2) AS n`,
    [prefix, count, age],
  );

const insertCancelled = (prefix: string, count: number, age: string) =>
  slot.db.query(
    `INSERT INTO notification.intents (notification_id, notification_type, producer, idempotency_key, fingerprint, lane,
            status, read_at, updated_at)
     SELECT $1 || n, 'game.turn.ready', 'game_master', $1 || n, 'f', 1, 'cancelled', now(), now() - $3::interval
       FROM generate_series(1, $2) AS n`,
    [prefix, count, age],
  );

async function idsIn(table: string, column: string): Promise<string[]> {
  const { rows } = await slot.db.query<{ id: string }>(
    `SELECT ${column} AS id FROM notification.${table} ORDER BY 1`,
  );
  return rows.map(({ id }) => id);
}

test('I10 I29 a run deletes what has expired in batches, and nothing whose idempotency window is open', async () => {
  await insertRecords('old-', 5_005, '721 hours', '-1 hour');
  await insertRecords('reserved-', 1, '721 hours', '1 hour');
  await insertRecords('young-', 1, '719 hours', '-1 hour');
  await insertMalformed('old-', 1_005, '2161 hours');
  await insertMalformed('young-', 1, '2159 hours');
  await insertCancelled('gone-', 1_005, '721 hours');
  await insertCancelled('known-', 1, '719 hours');
  await slot.db.query(
    `INSERT INTO notification.throttles
     VALUES ('user:gone', 'a.b', '', ARRAY[now()], 1, now() - interval '1 s'), ('user:kept', 'a.b', '', ARRAY[now()], 1, now() + interval '1 h')`,
  );

  await schedule().trigger();
  const outcome: unknown = await eventually('the retention run', async () => {
    const query = `WorkflowType = '${RETENTION_WORKFLOW}'`;
    for await (const { workflowId } of slot.client.workflow.list({ query })) {
      return (await slot.client.workflow.getHandle(workflowId).result()) as unknown;
    }
    return undefined;
  });

  expect(outcome).toMatchObject({ routes: 5_005, records: 5_005, intents: 1_005, malformed_intents: 1_005 });
  for (const table of ['records', 'routes', 'dead_letters']) {
    expect([table, await idsIn(table, 'notification_id')]).toEqual([table, ['reserved-1', 'young-1']]);
  }
  expect(await idsIn('malformed_intents', 'stream_entry_id')).toEqual(['young-1']);
  expect(await idsIn('intents', 'notification_id')).toEqual(['known-1']);
  expect(await idsIn('throttles', 'recipient_ref')).toEqual(['user:kept']);
});

test('intent-2 a key that retention has freed is free, and what had it is not sent again', async () => {
  const before = await publishTurn(slot.redis, 'again', ['user-1']);
  await resultOf(slot, before);
  await slot.db.query(
    `UPDATE notification.records
        SET accepted_at = now() - interval '721 hours', idempotency_expires_at = now() - interval '1 hour'
      WHERE notification_id = $1`,
    [before],
  );
  await schedule().trigger();
  await eventually('the record to be deleted', async () => (await routesOf(slot, before)).length === 0);
  const again = await publishTurn(slot.redis, 'again', ['user-2']);
  expect(await resultOf(slot, again)).toMatchObject({ published: 2 });
  const { answers } = await operatorOf(slot).why('user-1');
  expect(answers.map(({ cause }) => cause)).not.toContain('waiting_for_acceptance');
  expect(await outboundIds(slot.redis)).toEqual(
    [...deliveriesTo('user-1', [before]), ...deliveriesTo('user-2', [again])].sort(),
  );
});

test('I44 intent-D7 intent-P7 records with many routes are deleted piece by piece, and those with open routes are kept', async () => {
  await slot.db.query('DELETE FROM notification.records');
  await insertRecords('many-', 20, '722 hours', '-1 hour');
  await plantRecords(slot, 'open-', 1, { age: '722 hours', reservedFor: '-1 hour' });
  await slot.db.query(
    `INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
       created_at, updated_at, published_at)
     SELECT notification_id, 'push:user:' || n, 'push', 'user:' || n, 'published', 3, now(), now(), now()
       FROM notification.records, generate_series(1, 20) AS n`,
  );
  // A disk on which a route takes 10 ms: together they take longer than a statement may.
  await slot.db.query(`
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN old; END';
    CREATE TRIGGER slow BEFORE DELETE ON notification.routes FOR EACH ROW EXECUTE FUNCTION slow()`);
  const impatient = new Pool({ connectionString: slot.ownerDsn, options: '-c statement_timeout=2s' });
  await deleteAllExpired(impatient, tablesKept(168));
  await impatient.end();
  expect(await idsIn('records', 'notification_id')).toEqual(['open-1']);
  expect(await idsIn('routes', 'notification_id')).toEqual(Array.from({ length: 21 }, () => 'open-1'));
});

test('I10 intent-P8 keys that are reserved for longer than records are kept cost a run no look at their records', async () => {
  const tables = tablesKept(1_221);
  const hours = Object.fromEntries(tables.map(({ name, keepMs }) => [name, keepMs / HOUR_MS]));
  expect(hours).toMatchObject({ routes: 1_221, records: 1_221, intents: 720 });
  await slot.db.query('DELETE FROM notification.records');
  await insertRecords('reserved-', 5, '721 hours', '500 hours');
  await insertRecords('free-', 3, '1500 hours', '-1 hour');
  const { deleted } = await deleteExpired(slot.db, tables);
  expect(deleted).toMatchObject({ routes: 3, records: 3 });
  expect(await idsIn('records', 'notification_id')).toHaveLength(5);
});

test('I29 a table that fails does not stop the others, and the failure names it', async () => {
  await slot.db.query('DELETE FROM notification.malformed_intents');
  await insertMalformed('old-', 3, '721 hours');
  const broken = { name: 'gone', table: 'notification.gone', since: 'created_at', keepMs: 1 };
  await expect(deleteExpired(slot.db, [broken, ...tablesKept(168)])).rejects.toThrow(/gone/);
  expect(await idsIn('malformed_intents', 'stream_entry_id')).toEqual([]);
});

test('I29 outcomes that nothing relays go when they are old, the others stay', async () => {
  await slot.db.query(`
    INSERT INTO notification.outcomes (events, event_count, written_at)
    SELECT '[[]]', 1, now() - n % 2 * interval '721 hours' FROM generate_series(1, 12000) AS n`);
  const tables = tablesKept(168).filter(({ name }) => name === 'unrelayed_outcomes');
  const { deleted } = await deleteExpired(slot.db, tables);
  expect(deleted).toEqual({ unrelayed_outcomes: 6_000 });
});
