/**
 * Urgent intents while 20,000 others wait: how long each takes from its XADD to its entry for Mail Service, both by the
 * clock of Redis, and what is left to the others meanwhile.
 */
import { randomUUID } from 'node:crypto';
import { newRuntimeImagePullFailed, publishIntent } from '../client/notificationintent.ts';
import type { Bench, Part, Way } from './environment.ts';
import { WAYS, appendedAtMs } from './environment.ts';
import { MAIL_STREAM, ROUTES_PER_RECIPIENT, appendIntents, countHandOffs } from './intent.ts';
import { paced } from './latency.ts';
import type { Measurement } from './measurement.ts';
import { until } from './rounds.ts';
import { quantile } from './statistics.ts';

const WAITING = 20_000;
const MOST_MS = 1_000;
const URGENT = 300;
/** Those of one way are published within the time in which it works off what is there besides. */
const PER_SECOND: Record<Way, number> = { child: 5, on_failure: 5, direct: 15 };
const WORKED_OFF: Record<Way, number> = { child: 4_000, on_failure: 8_000, direct: 80_000 };
/** Of the others: the service is warm then, after some seconds. */
const BEGUN: Record<Way, number> = { child: 200, on_failure: 200, direct: 4_000 };
const LOOK_INTERVAL_MS = 200;
const PAGE = 1_000;

export const urgent = WAYS.map((way): Measurement => {
  const row = (name: string) => `urgent.${way}.${name}`;
  return {
    name: `urgent.${way}`,
    meaning: `urgent intents, while ${WAITING} others wait`,
    isQuick: false,
    rows: [
      { name: row('p50'), unit: 'ms', meaning: 'XADD to e-mail command, while 20,000 others wait' },
      { name: row('p99'), unit: 'ms', target: { atMost: MOST_MS }, meaning: 'the same' },
      { name: row('others'), unit: '/s', meaning: 'of the others meanwhile' },
    ],
    async run(bench) {
      const { latencies, othersPerSecond } = await measure(bench, way);
      return [
        { row: row('p50'), value: quantile(latencies, 0.5), details: { msEach: latencies } },
        { row: row('p99'), value: quantile(latencies, 0.99) },
        { row: row('others'), value: othersPerSecond },
      ];
    },
  };
});

async function measure(bench: Bench, way: Way) {
  const name = `urgent-${way}` as const;
  const part = await bench.part(name);
  const others = WAITING + WORKED_OFF[way];
  await appendIntents(part, others);
  await bench.service(name, {
    NOTIFICATION_ROUTE_DISPATCH: way,
    NOTIFICATION_ADMIN_EMAILS_RUNTIME_IMAGE_PULL_FAILED: 'operator@example.com',
  });
  try {
    await until('the backlog to be worked on', LOOK_INTERVAL_MS, async () => (await done(part)) > BEGUN[way]);
    const [before, startedAt] = [await done(part), performance.now()];
    bench.report(`${way}: ${PER_SECOND[way]} urgent intents a second, while ${others} others wait`);
    const ids = new Set<string>();
    await paced(PER_SECOND[way], URGENT / PER_SECOND[way], async () =>
      ids.add(await publishIntent(part.redis, failureReport())),
    );
    const [after, elapsedMs] = [await done(part), performance.now() - startedAt];
    const latencies = await arrivals(part, ids);
    if (others - after < WAITING) throw new Error(`only ${others - after} of the others waited in the end`);
    return { latencies, othersPerSecond: (1_000 * (after - before)) / elapsedMs };
  } finally {
    // The pushes that are left are dropped.
    await bench.stopService(name);
  }
}

/** Intents of the others that are handed off, nearly. */
const done = async (part: Part): Promise<number> => (await countHandOffs(part)) / ROUTES_PER_RECIPIENT;

const failureReport = () =>
  newRuntimeImagePullFailed({
    idempotencyKey: randomUUID(),
    occurredAt: Date.now(),
    payload: {
      ...{
        game_id: 'game-7',
        image_ref: 'engine:7',
        error_code: 'not_found',
        error_message: 'no such image',
      },
      attempted_at_ms: Date.now(),
    },
  });

/** @returns ms from the entry of each of these intents to its e-mail command. */
async function arrivals({ redis }: Part, ids: ReadonlySet<string>): Promise<number[]> {
  const latencies = new Map<string, number>();
  let last = '0-0';
  await until(`${ids.size} e-mail commands`, LOOK_INTERVAL_MS, async () => {
    for (;;) {
      const page = await redis.xrange(MAIL_STREAM, `(${last}`, '+', 'COUNT', PAGE);
      for (const [entryId, fields] of page) {
        last = entryId;
        // `<notification id>/<route id>`
        const [id = ''] = fields[fields.indexOf('delivery_id') + 1]!.split('/');
        if (ids.has(id)) latencies.set(id, appendedAtMs(entryId) - appendedAtMs(id));
      }
      if (page.length < PAGE) return latencies.size >= ids.size;
    }
  });
  return [...latencies.values()];
}
