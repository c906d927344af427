/** Entries that are far too large, over a slow link to Redis. */
import { MAX_ENTRY_BYTES } from '../../api/intent/entry.ts';
import { startTcpProxy } from '../../dev/servers/tcp-proxy.ts';
import { publishTurn } from './entries.ts';
import { eventually, slotOfTests } from '../harness.ts';

const INTENTS = 'notification:intents';
const MB = 1_000_000;
/** Together they would take 48 s at 10 Mbit/s. */
const [HOSTILE, HOSTILE_BYTES] = [30, 2 * MB];
const LINK = { kind: 'narrow', bytesPerSecond: 1_250_000 } as const;

const slot = slotOfTests();

test('security-3 intent-D4 I4 entries that are too large are recorded without being transferred, and hold up no other entry', async () => {
  const proxy = await startTcpProxy(slot.endpoints.redis);
  await proxy.set(LINK);
  const payload = Buffer.alloc(HOSTILE_BYTES, 'x');
  const hostile: string[] = [];
  for (let index = 0; index < HOSTILE; index += 1) {
    const id = await slot.redis.xadd(INTENTS, '*', 'producer', 'game_master', 'payload_json', payload);
    hostile.push(id!);
  }
  const good = await publishTurn(slot.redis, 'behind them');
  const last = await slot.redis.xadd(INTENTS, '*', 'payload_json', payload);
  const service = await slot.startService(
    // To read all of it takes ten times as long.
    { NOTIFICATION_REDIS_OPERATION_TIMEOUT: '5s' },
    { redis: { host: proxy.host, port: proxy.port } },
  );
  try {
    await eventually('the good one to be accepted', async () => {
      const { rows } = await slot.db.query('SELECT FROM notification.records WHERE notification_id = $1', [
        good,
      ]);
      return rows.length === 1;
    });
    const rows = await eventually('all others to be recorded', async () => {
      const found = await slot.db.query<{
        id: string;
        producer: string | null;
        message: string;
        raw: object;
      }>(
        `SELECT stream_entry_id AS id, producer, failure_code || ': ' || failure_message AS message, raw_fields AS raw
           FROM notification.malformed_intents ORDER BY recorded_at, stream_entry_id`,
      );
      return found.rows.length === HOSTILE + 1 && found.rows;
    });
    expect(new Set(rows.map(({ id }) => id))).toEqual(new Set([...hostile, last]));
    const bytes = HOSTILE_BYTES + 'producergame_masterpayload_json'.length;
    expect(rows[0]).toMatchObject({
      producer: 'game_master',
      message: `entry_too_large: the entry has ${bytes} bytes; at most ${MAX_ENTRY_BYTES} are accepted`,
      raw: {
        producer: 'game_master',
        payload_json: `${'x'.repeat(4_096)}… (cut, ${HOSTILE_BYTES} bytes in all)`,
      },
    });
    // Of 62 MB in the stream, and with all else that Redis was asked for.
    expect(proxy.answeredBytes).toBeLessThan(4 * MB);
    expect(slot.logs.filter(({ msg }) => /connection (to Redis )?failed/.test(msg))).toEqual([]);
  } finally {
    await service.stop();
    await proxy.stop();
    await slot.redis.del(INTENTS);
  }
});
