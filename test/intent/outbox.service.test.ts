/**
 * The outbox for producers on real PostgreSQL and Redis. The service is played by its saved offset, which is all that a
 * relay sees of it.
 */
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Vector, Vectors } from '../../dev/contracts/vectors.ts';
import { entryOfVector } from '../../dev/contracts/vectors.ts';
import { entryFieldsOf, envelopeOf } from '../../api/intent/entry.ts';
import { parseCatalog } from '../../api/intent/galaxy.ts';
import { offsetKey } from '../../api/intent/stream.ts';
import { fieldsOf } from '../../api/stream-ids.ts';
import { newGameGenerationFailed, newGameTurnReady } from '../../client/notificationintent.ts';
import { sampleIntentOf } from '../../client/testing.ts';
import type { OutboxLog, OutboxRelay, OutboxRelayOptions } from '../../client/outbox.ts';
import {
  outboxStatus,
  publishToOutbox,
  readOutboxSql,
  relayOnce,
  startOutboxRelay,
} from '../../client/outbox.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { asUser } from '../redis-users.ts';
import type { Shop } from './shop.ts';
import { createShop, statementIn } from './shop.ts';
import { parseIntent } from './galaxy.ts';
import { turnIntent } from './entries.ts';

const STREAM = 'notification:intents';
const ONE_BY_ONE = { batch: { rows: 1, bytes: 1 << 20 } };

const slot = slotOfTests();
const cli = cliOfTests(slot);
let shop: Shop;
let db: Shop['db'];
const relays: OutboxRelay[] = [];
const lines: { fields: object; message: string }[] = [];
const note: OutboxLog['info'] = (fields, message) => void lines.push({ fields, message });
beforeEach(async () => {
  await slot.redis.flushdb();
  shop = await createShop(slot);
  db = shop.db;
  lines.splice(0);
});
afterEach(async () => {
  await Promise.all(relays.splice(0).map((relay) => relay.stop()));
  await shop.drop();
});

const options = (more: Partial<OutboxRelayOptions> = {}): OutboxRelayOptions => ({
  ...{ db, redis: slot.redis, log: { info: note, warn: note } },
  // So that each test waits for conditions and not for intervals.
  pollMs: 50,
  ...more,
});
const relayPending = (more?: Partial<OutboxRelayOptions>) => relayOnce(options(more));
async function start(more?: Partial<OutboxRelayOptions>): Promise<OutboxRelay> {
  const relay = await startOutboxRelay(options(more));
  relays.push(relay);
  return relay;
}

/** Redis, with something around the ends of its transactions. */
function withExec(around: (entries: number, execute: () => Promise<unknown>) => Promise<unknown>): Redis {
  const redis = Object.create(slot.redis) as Redis;
  redis.multi = (() => {
    const transaction = slot.redis.multi();
    const execute = transaction.exec.bind(transaction);
    // MULTI is one of its commands.
    return Object.assign(transaction, { exec: () => around(transaction.length - 1, execute) });
  }) as unknown as Redis['multi'];
  return redis;
}

/** What stands in the rows that the relay has given up. */
async function setAsideRows() {
  const { rows } = await db.query<Record<string, string>>(
    `SELECT entry ->> 'idempotency_key' AS key, problem_code, problem
       FROM notification_outbox.intents WHERE state = 'set_aside'`,
  );
  return rows;
}

const intentOf = (idempotencyKey: string, turn = 1) =>
  turnIntent(idempotencyKey, undefined, { turn_number: turn });
const write = (key: string, turn?: number, client: Pool | PoolClient = db) =>
  publishToOutbox(client, intentOf(key, turn));

/** Writes an intent that the contract refuses. */
const writeBroken = () => publishToOutbox(db, { ...intentOf('broken'), notificationType: 'game.turn.lost' });
/** Appends an intent of another producer. @param id of its entry. */
const appendOther = (id = '*') =>
  slot.redis.xadd(STREAM, id, ...Object.entries(envelopeOf(intentOf('of-another'))).flat());

async function entriesIn(stream = STREAM): Promise<Record<string, string>[]> {
  const entries = await slot.redis.xrange(stream, '-', '+');
  return entries.map(([, fields]) => fieldsOf(fields));
}
const keysInStream = async (stream?: string) =>
  (await entriesIn(stream)).map(({ idempotency_key: key }) => key);
const states = async (): Promise<Record<string, number>> =>
  Object.fromEntries(Object.entries((await outboxStatus(db)).counts).filter(([, count]) => count > 0));
/** As the service does after it has begun all entries. */
async function passAll(): Promise<void> {
  const [newest] = await slot.redis.xrevrange(STREAM, '+', '-', 'COUNT', 1);
  await slot.redis.set(offsetKey(STREAM), newest![0]);
}
const untilStates = (wanted: Record<string, number>) =>
  eventually(`the rows to be ${JSON.stringify(wanted)}`, async () => {
    const found = await states();
    return JSON.stringify(found) === JSON.stringify(wanted);
  });

describe('the function in the transaction of a producer', () => {
  test('I75 what a transaction commits is in the stream with the same entry, what it rolls back is not', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await write('rolled-back', 1, client);
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await write('committed', 2, client);
    await client.query('COMMIT');
    client.release();
    await relayPending();
    expect(await entriesIn()).toEqual([envelopeOf(intentOf('committed', 2))]);
  });

  test('I75 its fields make the same entry as the client does, from any language that speaks SQL', async () => {
    await db.query(
      `SELECT notification_outbox.publish(
         notification_type => 'game.turn.ready', producer => 'game_master',
         recipient_user_ids => ARRAY['user-1', 'user "2"'], idempotency_key => 'game-7/turn-54',
         occurred_at => '2026-11-22T12:00:00.123999Z', request_id => 'r-1',
         deliver_at => '2026-11-22T13:00:00.2509Z', expires_at => '2026-11-22T14:00:00.5Z',
         payload => '{"game_id": "game-7", "game_name": "Andromeda", "turn_number": 54}')`,
    );
    await db.query(
      `SELECT notification_outbox.publish('game.generation_failed', 'game_master', 'game-7/failed', to_timestamp(1790000000),
         '{"game_id": "game-7", "game_name": "Andromeda", "failure_reason": "out of memory"}')`,
    );
    await relayPending();
    const game = { game_id: 'game-7', game_name: 'Andromeda' };
    const intents = [
      newGameTurnReady({
        ...{ recipientUserIds: ['user-1', 'user "2"'], idempotencyKey: 'game-7/turn-54', requestId: 'r-1' },
        occurredAt: Date.parse('2026-11-22T12:00:00.123Z'),
        deliverAt: Date.parse('2026-11-22T13:00:00.250Z'),
        expiresAt: Date.parse('2026-11-22T14:00:00.500Z'),
        payload: { ...game, turn_number: 54 },
      }),
      newGameGenerationFailed({
        ...{ idempotencyKey: 'game-7/failed', occurredAt: 1_790_000_000_000 },
        payload: { ...game, failure_reason: 'out of memory' },
      }),
    ];
    const parsed = (entry: Record<string, string>) => parseIntent('1-0', entryFieldsOf(entry));
    expect((await entriesIn()).map(parsed)).toEqual(intents.map((intent) => parsed(envelopeOf(intent))));
  });

  test('I75 it takes any entry of texts, and the relay judges each as the service does', async () => {
    const { entries } = JSON.parse(readFileSync('api/intent/vectors.json', 'utf8')) as Vectors;
    const written: Vector[] = [];
    for (const vector of entries) {
      const fields = entryOfVector(vector);
      const entry = Object.fromEntries(fields.map(([name, value]) => [String(name), String(value)]));
      // An object has no name twice, and JSON no other bytes than text.
      if (Object.keys(entry).length < fields.length || !fields.flat().every(isUtf8)) continue;
      await db.query('SELECT notification_outbox.publish($1::jsonb)', [JSON.stringify(entry)]);
      written.push(vector);
    }
    await relayPending();
    const { rows } = await db.query<{ code: string | null }>(
      'SELECT problem_code AS code FROM notification_outbox.intents ORDER BY id',
    );
    expect(rows.map(({ code }, index) => [written[index]!.name, code])).toEqual(
      written.map(({ name, refused }) => [name, refused?.code ?? null]),
    );
    const published = written.filter(({ refused }) => !refused).length;
    expect(published).toBeGreaterThan(50);
    expect(written.length - published).toBeGreaterThan(100);
    expect(await keysInStream()).toHaveLength(published);
  });

  test.each([
    ...['[]', '"text"', '{"producer": 1}', '{"producer": ["shop"]}', '{"note": []}'],
    `{"producer": "${'x'.repeat(9 << 20)}"}`,
  ])('I75 what no entry can be is refused in the transaction (%#)', async (entry) => {
    const writing = db.query('SELECT notification_outbox.publish($1::jsonb)', [entry]);
    await expect(writing).rejects.toMatchObject({ code: '23514' });
  });

  test('I75 a producer needs rights on the function alone, a relay others, and the file may be run again', async () => {
    await write('before');
    await db.query(await readOutboxSql());
    const role = `shop_${slot.slot}_${Date.now()}`;
    await db.query(`CREATE ROLE ${role}; GRANT USAGE ON SCHEMA notification_outbox TO ${role};
                    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA notification_outbox TO ${role}`);
    const client = await db.connect();
    try {
      await client.query(`SET ROLE ${role}`);
      await write('as-shop', 1, client);
      const relay = startOutboxRelay(options({ db: client as unknown as Pool }));
      await expect(relay).rejects.toThrow(/permission denied.*see the GRANTs in outbox.sql/);
    } finally {
      client.release(true);
    }
    expect(await states()).toEqual({ pending: 2 });
    await db.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  });
});

describe('the relay', () => {
  test('I75 what the contract refuses is set aside with its reason, holds up no other row, and can be published once it is corrected', async () => {
    await writeBroken();
    await write('good');
    await relayPending();
    expect(await keysInStream()).toEqual(['good']);
    const problem = 'notification_type is not in the catalog';
    expect(await setAsideRows()).toEqual([
      { key: 'broken', problem_code: 'unknown_notification_type', problem },
    ]);
    expect(lines).toContainEqual({
      message: 'outbox row set aside',
      fields: expect.objectContaining({ failure_code: 'unknown_notification_type' }) as object,
    });
    await db.query(
      `UPDATE notification_outbox.intents SET entry = jsonb_set(entry, '{notification_type}', '"game.turn.ready"')`,
    );
    await db.query(statementIn('docs/producers/outbox.md', 'UPDATE'));
    await relayPending();
    expect(await keysInStream()).toEqual(['good', 'broken']);
  });

  test('I75 batches are bounded in rows and bytes, and keep the order of rows', async () => {
    const sizes: number[] = [];
    const counting = withExec((entries, execute) => {
      sizes.push(entries);
      return execute();
    });
    for (let i = 0; i < 40; i += 1) await write(`key-${i}`, i);
    await relayPending({ redis: counting, batch: { rows: 7, bytes: 1_000_000 } });
    expect(sizes).toEqual([7, 7, 7, 7, 7, 5]);
    const turnOf = ({ payload_json }: Record<string, string>) =>
      (JSON.parse(payload_json!) as { turn_number: number }).turn_number;
    expect((await entriesIn()).map(turnOf)).toEqual(Array.from({ length: 40 }, (_, i) => i));
    sizes.splice(0);
    for (let i = 0; i < 10; i += 1) await write(`large-${i}`);
    await relayPending({ redis: counting, batch: { rows: 500, bytes: 700 } });
    expect(sizes).toEqual([3, 3, 3, 1]);
  });

  test('I75 three concurrent relays, one of which dies in the middle of a batch, publish all in order and none is left', async () => {
    // It has appended a batch, and is gone before it could write that down.
    const dying = withExec(async (_, execute) => {
      await execute();
      throw new Error('the process is gone');
    });
    for (let i = 0; i < 300; i += 1) await write(`key-${i}`);
    await expect(relayPending({ redis: dying, batch: { rows: 50, bytes: 1 << 20 } })).rejects.toThrow('gone');
    await Promise.all([start({ batch: { rows: 20, bytes: 1 << 20 } }), start(), start()]);
    for (let i = 300; i < 400; i += 1) await write(`key-${i}`);
    await untilStates({ published: 400 });
    const keys = await keysInStream();
    const firsts = [...new Set(keys)];
    expect(firsts).toEqual(Array.from({ length: 400 }, (_, i) => `key-${i}`));
    expect(keys).toHaveLength(450);
  });

  test('I75 servers that are away are waited for, PostgreSQL and Redis alike', async () => {
    const relay = await start();
    // Other tests use this Redis, so only the stream is away.
    await slot.redis.set(STREAM, 'not a stream');
    await write('one');
    await eventually('the relay to say that it waits', async () =>
      lines.some(({ message }) => message === 'outbox relay waits'),
    );
    await slot.redis.del(STREAM);
    await eventually('the entry', async () => (await keysInStream()).length === 1);
    await slot.db.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [
      shop.database,
    ]);
    // As a producer does, as often as its pool has connections that ended.
    await eventually('the row to be written', () =>
      write('two').then(
        () => true,
        () => false,
      ),
    );
    await eventually('the second entry', async () => relay.counts.published >= 2);
  });
});

describe('what is kept, and for how long', () => {
  test('I75 rows go after their time, passed ones and those set aside, and no others', async () => {
    await writeBroken();
    await write('passed');
    await relayPending();
    await passAll();
    await write('published');
    await relayPending();
    await untilStates({ published: 1, passed: 1, set_aside: 1 });
    await start({ keepPassedMs: 0 });
    await untilStates({ published: 1, set_aside: 1 });
    await start({ keepPassedMs: 0, keepSetAsideMs: 0 });
    await untilStates({ published: 1 });
  });

  test('I75 a Redis that was emptied is filled again with what the service had not passed, in its order', async () => {
    for (let i = 0; i < 5; i += 1) await write(`passed-${i}`);
    const relay = await start();
    await untilStates({ published: 5 });
    await passAll();
    await untilStates({ passed: 5 });
    for (let i = 0; i < 30; i += 1) await write(`lost-${i}`);
    await untilStates({ published: 30, passed: 5 });
    await slot.redis.flushdb();
    await eventually('all to be there again', async () => (await keysInStream()).length === 30);
    expect(await keysInStream()).toEqual(Array.from({ length: 30 }, (_, i) => `lost-${i}`));
    expect(relay.counts.lost).toBe(30);
    expect(lines.map(({ message }) => message)).toContain('Redis lost entries: published again');
    // The loss is over: nothing more is published.
    await passAll();
    await untilStates({ passed: 35 });
    expect(relay.counts.published).toBe(65);
  });

  test('I75 a Redis that fell back gets the entries behind its state again, and no others', async () => {
    for (let i = 0; i < 3; i += 1) await write(`kept-${i}`);
    await relayPending(ONE_BY_ONE);
    const stream = await slot.redis.dumpBuffer(STREAM);
    for (let i = 0; i < 4; i += 1) await write(`lost-${i}`);
    await relayPending(ONE_BY_ONE);
    await slot.redis.restore(STREAM, 0, stream, 'REPLACE');
    // Before the relay looks, another producer appends: by the last id of the stream nothing would show.
    await appendOther();
    await write('new');
    await relayPending(ONE_BY_ONE);
    const keys = ['kept-0', 'kept-1', 'kept-2', 'of-another', 'lost-0', 'lost-1', 'lost-2', 'lost-3', 'new'];
    expect(await keysInStream()).toEqual(keys);
  });

  test('I75 what is lost so late that its key may be forgotten is set aside, not told twice', async () => {
    await write('old');
    await relayPending();
    await slot.redis.flushdb();
    await start({ keyLifetimeMs: 0 });
    await untilStates({ set_aside: 1 });
    expect(await setAsideRows()).toMatchObject([{ key: 'old', problem_code: 'key_may_be_forgotten' }]);
    expect(await keysInStream()).toEqual([]);
  });

  test('I75 a database that was put back to an hour ago publishes again, and hides no later loss', async () => {
    await write('one');
    await relayPending();
    await db.query(
      "UPDATE notification_outbox.intents SET state = 'pending', entry_id = NULL, published_at = NULL",
    );
    await write('two');
    const relay = await start();
    await untilStates({ published: 2 });
    expect(await keysInStream()).toEqual(['one', 'one', 'two']);
    await slot.redis.flushdb();
    await eventually('both again', async () => (await keysInStream()).length === 2);
    expect(relay.counts.lost).toBe(2);
  });

  test('I75 another entry that has the id of a lost one, after Redis fell back, hides no loss', async () => {
    await write('lost');
    await relayPending();
    const [[id]] = (await slot.redis.xrange(STREAM, '-', '+')) as [[string, string[]]];
    await slot.redis.flushdb();
    await appendOther(id);
    await relayPending();
    expect(await keysInStream()).toEqual(['of-another', 'lost']);
  });

  test('I75 what was lost in front of an entry that is there is found when the offset passes it', async () => {
    for (const key of ['first', 'lost', 'last']) await write(key);
    await relayPending();
    const [, lost] = await slot.redis.xrange(STREAM, '-', '+');
    await slot.redis.xdel(STREAM, lost![0]);
    await passAll();
    await relayPending();
    expect(await keysInStream()).toEqual(['first', 'last', 'lost']);
    expect(await states()).toEqual({ published: 1, passed: 2 });
  });

  test('I75 a relay that is given another stream brings there what was not passed in the one before', async () => {
    await write('one');
    await relayPending();
    await passAll();
    await relayPending();
    await write('two');
    await relayPending();
    await relayPending({ stream: 'other' });
    expect(await keysInStream('other')).toEqual(['two']);
  });
});

test('I75 the command judges rows by the catalog of NOTIFICATION_CATALOG_FILE, until it is asked to end', async () => {
  const file = 'catalog/shop.yaml';
  const catalog = parseCatalog(readFileSync(file, 'utf8'));
  await publishToOutbox(db, sampleIntentOf(catalog, 'shop.order.shipped', 'user', 'own-type'));
  const dsn = Object.assign(new URL(slot.endpoints.postgresDsn), { pathname: `/${shop.database}` });
  const changes = {
    ...asUser('outbox'),
    NOTIFICATION_OUTBOX_POSTGRES_DSN: dsn.href,
    NOTIFICATION_CATALOG_FILE: file,
  };
  expect(await cli.cli(['outbox', 'status'], { changes })).toMatchObject({ code: 0 });
  await db.query("UPDATE notification_outbox.intents SET created_at = now() - interval '2 minutes'");
  expect(await cli.cli(['outbox', 'status'], { changes })).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no relay publishes') as string,
  });
  const relay = cli.start(['outbox', 'relay'], { changes });
  await untilStates({ published: 1 });
  relay.send('SIGTERM');
  expect(await relay.ended).toMatchObject({ code: 0, stdout: '' });
  expect(await keysInStream()).toEqual(['own-type']);
});

test('I75 a database without an outbox is told so in words', async () => {
  await db.query('DROP SCHEMA notification_outbox CASCADE');
  await expect(startOutboxRelay(options())).rejects.toThrow(
    'this database has no outbox: run outbox.sql there',
  );
});
