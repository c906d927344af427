/** Memory of the service while the intent stream holds ten gigabytes of hostile entries. */
import { loadOffset } from '../api/intent/stream.ts';
import { compareEntryIds } from '../api/stream-ids.ts';
import type { Bench } from './environment.ts';
import { MODES } from './environment.ts';
import { burst, serviceOf } from './intent.ts';
import type { Finding, Measurement } from './measurement.ts';
import { watchMemory } from './processes.ts';
import { until } from './rounds.ts';

const STREAM = 'notification:intents';
const TOTAL_BYTES = 10 * 2 ** 30;
const MB = 2 ** 20;
/** The limit of the chart for the role `intent` is 1 GiB. */
const MOST_MEMORY_MB = 0.6 * 1_024;
const MODE = MODES[1];
const SAMPLE_INTERVAL_MS = 100;
const LOOK_INTERVAL_MS = 10;
const WARM_UP_INTENTS = 50;
const ROW = 'scale.hostile-entries';

export const scaleHostile: Measurement = {
  name: ROW,
  meaning: `${TOTAL_BYTES / 2 ** 30} GB of entries that are too large, have too many fields, or fill a read to the brim`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.memory`,
      unit: 'MB',
      target: { atMost: MOST_MEMORY_MB },
      meaning: "resident memory of the service at most; the target is 60 % of the chart's limit",
    },
    { name: `${ROW}.recorded`, unit: '', meaning: 'entries that were recorded as malformed' },
    { name: `${ROW}.rate`, unit: 'MB/s', meaning: 'bytes of the stream that were passed a second' },
  ],
  run: measure,
};

type Fields = (string | Buffer)[];

/** One of each: together a few tens of megabytes. */
function hostileEntries(): { fields: Fields; bytes: number }[] {
  const envelope = (more: Fields): Fields => [
    ...['notification_type', 'game.turn.ready', 'producer', 'game_master', 'audience_kind', 'user'],
    ...['idempotency_key', 'key', 'occurred_at_ms', '1775121700000'],
    ...more,
  ];
  const entries: Fields[] = [
    // Far over the limit.
    envelope(['recipient_user_ids_json', '["u"]', 'payload_json', Buffer.alloc(32 * MB, 'x')]),
    // Far more fields than there may be.
    Array.from({ length: 100_000 }, (_, index) => `field-${index}`),
    // Just within the limit, and refused once it is parsed: a payload, and recipients without end.
    envelope(['recipient_user_ids_json', '["u"]', 'payload_json', `{"a":"${'y'.repeat(MB - 4_096)}"}`]),
    envelope(['recipient_user_ids_json', `[${'"z",'.repeat(250_000)}"z"]`, 'payload_json', '{}']),
    envelope(['recipient_user_ids_json', `[${'{},'.repeat(345_000)}{}]`, 'payload_json', '{}']),
  ];
  return entries.map((fields) => ({
    fields,
    bytes: fields.reduce((sum, part) => sum + Buffer.byteLength(part), 0),
  }));
}

async function measure(bench: Bench): Promise<Finding[]> {
  const [part, service] = [await bench.part(MODE), await serviceOf(bench, MODE)];
  const { redis, db } = part;
  await burst(bench, MODE, WARM_UP_INTENTS);
  const entries = hostileEntries();
  const memory = watchMemory(service.pid, SAMPLE_INTERVAL_MS);
  const startedAt = performance.now();
  let [bytes, appended, reportedGb] = [0, 0, 0];
  try {
    while (bytes < TOTAL_BYTES) {
      let last = '';
      for (const entry of entries) {
        last = (await redis.xadd(STREAM, '*', ...entry.fields))!;
        bytes += entry.bytes;
        appended += 1;
      }
      await until('the entries to be passed', LOOK_INTERVAL_MS, async () => {
        return compareEntryIds(await loadOffset(redis, STREAM), last) >= 0;
      });
      // Redis is to hold a few tens of megabytes, not ten gigabytes.
      await redis.xtrim(STREAM, 'MINID', last);
      if (Math.floor(bytes / 2 ** 30) > reportedGb) {
        reportedGb = Math.floor(bytes / 2 ** 30);
        bench.report(`${reportedGb} GB passed, ${memory.samples.at(-1)?.mb.toFixed(0)} MB resident`);
      }
    }
  } finally {
    memory.stop();
  }
  const seconds = (performance.now() - startedAt) / 1_000;
  const { rows } = await db.query<{ count: number }>(
    'SELECT count(*)::int AS count FROM notification.malformed_intents',
  );
  const recorded = rows[0]!.count;
  if (recorded < appended) throw new Error(`${appended} entries were appended, ${recorded} recorded`);
  return [
    ...(memory.samples.length === 0
      ? []
      : [{ row: `${ROW}.memory`, value: Math.max(...memory.samples.map(({ mb }) => mb)) }]),
    { row: `${ROW}.recorded`, value: recorded },
    { row: `${ROW}.rate`, value: bytes / MB / seconds },
  ];
}
