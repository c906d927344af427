/** A Redis that is killed with all its data, again and again, while producers write into an outbox. */
import { writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { newGameTurnReady } from '../../client/notificationintent.ts';
import type { OutboxRelay } from '../../client/outbox.ts';
import { outboxStatus, publishToOutbox, readOutboxSql, startOutboxRelay } from '../../client/outbox.ts';
import type { EmbeddedRedis } from '../../dev/servers/redis.ts';
import { startRedis } from '../../dev/servers/redis.ts';
import { freePort } from '../../dev/servers/ports.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';

const LOSSES = 10;
/** Between two losses, longer each time by a part of it: some meet what was just published, some what was just passed. */
const BETWEEN_MS = 2_000;
const WRITE_EVERY_MS = 20;
const LIMIT_MS = 100_000;
const [GATEWAY, MAIL] = ['gateway:client-events', 'mail:delivery_commands'];

let slot: Slot;
let folder: string;
let server: EmbeddedRedis;
let port: number;
beforeEach(async () => {
  slot = await takeSlot();
  folder = await mkdtemp(path.join(tmpdir(), 'galaxy-notify-outbox-'));
  port = await freePort();
  server = await start(0);
});
afterEach(async () => {
  await slot.stopServices();
  await server.stop();
  await rm(folder, { recursive: true, force: true });
  await slot.release();
});

/** The same address, and a data directory that has never been used. */
const start = (number: number) =>
  startRedis({ dataDir: path.join(folder, String(number)), port, durable: false, report: () => undefined });

const connect = () => {
  const redis = new Redis({
    host: '127.0.0.1',
    port,
    db: 0,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 100,
  });
  redis.on('error', () => undefined);
  return redis;
};

/** Gateway or Mail Service: reads all the time, drops what it has seen by its id, and begins anew with a new Redis. */
function startConsumer(stream: string, idField: string) {
  const redis = connect();
  const seen = new Set<string>();
  let isRunning = true;
  const reading = (async () => {
    let last = '0-0';
    while (isRunning) {
      try {
        const [newest] = await redis.xrevrange(stream, '+', '-', 'COUNT', 1);
        if (newest === undefined) last = '0-0';
        for (const [id, fields] of await redis.xrange(stream, `(${last}`, '+', 'COUNT', 1_000)) {
          seen.add(fields[fields.indexOf(idField) + 1]!);
          last = id;
        }
      } catch {
        last = '0-0';
      }
      await sleep(20);
    }
  })();
  return {
    seen,
    async stop() {
      isRunning = false;
      await reading;
      redis.disconnect();
    },
  };
}

test(
  'I75 a Redis that is killed with its data 10 times under load loses no intent of an outbox, and none has two effects',
  async () => {
    await slot.db.query(await readOutboxSql());
    await slot.startService(
      {
        NOTIFICATION_REDIS_DB: '0',
        NOTIFICATION_ROUTE_LEASE_TTL: '2s',
        NOTIFICATION_REDIS_OPERATION_TIMEOUT: '1s',
        // A budget that is spent while there is no Redis would be another story.
        NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '1000',
        NOTIFICATION_ROUTE_BACKOFF_MAX: '2s',
        NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN: '100000',
      },
      { redis: { host: '127.0.0.1', port } },
    );
    const redis = [connect(), connect()];
    const relays: OutboxRelay[] = [];
    for (const own of redis) relays.push(await startOutboxRelay({ db: slot.db, redis: own, pollMs: 100 }));
    const consumers = [startConsumer(GATEWAY, 'event_id'), startConsumer(MAIL, 'delivery_id')];

    let written = 0;
    const write = async () => {
      await publishToOutbox(
        slot.db,
        newGameTurnReady({
          idempotencyKey: `key-${written}`,
          recipientUserIds: ['user-1'],
          occurredAt: 1_790_000_000_000,
          payload: { game_id: 'game-7', game_name: 'Andromeda', turn_number: written },
        }),
      );
      written += 1;
    };
    let isWriting = true;
    const writing = (async () => {
      while (isWriting) {
        await write();
        await sleep(WRITE_EVERY_MS);
      }
    })();
    try {
      for (let loss = 1; loss <= LOSSES; loss += 1) {
        await sleep(BETWEEN_MS + (loss * BETWEEN_MS) / LOSSES);
        process.kill(server.pid, 'SIGKILL');
        await server.stop().catch(() => undefined);
        await rm(path.join(folder, String(loss - 1)), { recursive: true, force: true });
        server = await start(loss);
      }
    } finally {
      isWriting = false;
      await writing;
    }

    await eventually(
      'every row to be passed',
      async () => {
        const { counts } = await outboxStatus(slot.db);
        return counts.passed === written;
      },
      LIMIT_MS,
    );
    const records = await eventually(
      'every intent to be published on both channels',
      async () => {
        const { rows } = await slot.db.query<{ id: string; key: string; published: number }>(
          `SELECT notification_id AS id, idempotency_key AS key,
                  count(*) FILTER (WHERE status = 'published')::int AS published
             FROM notification.records JOIN notification.routes USING (notification_id)
            GROUP BY notification_id`,
        );
        return rows.length >= written && rows.every(({ published }) => published === 2) && rows;
      },
      LIMIT_MS,
    ).catch(async (error: Error) => {
      const q = async (sql: string) => JSON.stringify((await slot.db.query(sql)).rows);
      writeFileSync(
        '/tmp/obx/diag.txt',
        [
          written,
          await q('SELECT count(*) FROM notification.records'),
          await q(
            'SELECT channel, status, last_error_classification, count(*) FROM notification.routes GROUP BY 1,2,3',
          ),
          await q('SELECT * FROM notification.waiting_intents LIMIT 5'),
          await q(
            'SELECT failure_code, failure_message, count(*) FROM notification.malformed_intents GROUP BY 1,2 LIMIT 10',
          ),
          await q('SELECT * FROM notification.outbound_streams'),
          await q(
            "SELECT id, entry ->> 'idempotency_key' AS key, publications, entry_id, batch, published_at, ended_at FROM notification_outbox.intents WHERE NOT EXISTS (SELECT FROM notification.records WHERE idempotency_key = entry ->> 'idempotency_key') ORDER BY id LIMIT 20",
          ),
          await q("SELECT * FROM notification.routes WHERE status <> 'published' LIMIT 5"),
          JSON.stringify(
            slot.logs.filter((l) => l.level !== 'debug' && l.level !== 'info').slice(-40),
            null,
            1,
          ),
          JSON.stringify(slot.logs.filter((l) => /stream/.test(l.msg)).slice(-60), null, 0),
        ].join('\n\n'),
      );
      throw error;
    });
    // Each key has one notification, and its consumers have seen the ids of that one, and of no other.
    expect(new Set(records.map(({ key }) => key)).size).toBe(records.length);
    expect(records).toHaveLength(written);
    for (const [consumer, channel] of [
      [consumers[0]!, 'push'],
      [consumers[1]!, 'email'],
    ] as const) {
      const wanted = new Set(records.map(({ id }) => `${id}/${channel}:user:user-1`));
      await eventually(
        `every ${channel} to be seen`,
        async () => [...wanted].every((id) => consumer.seen.has(id)),
        LIMIT_MS,
      );
      expect([...consumer.seen].filter((id) => !wanted.has(id))).toEqual([]);
    }
    const lost = relays.reduce((sum, { counts }) => sum + counts.lost, 0);
    expect(lost).toBeGreaterThan(0);
    console.info(`${written} intents, ${LOSSES} times all data lost, ${lost} entries published again`);
    await Promise.all([...relays, ...consumers].map((one) => one.stop()));
    for (const one of redis) one.disconnect();
  },
  3 * LIMIT_MS,
);
