/**
 * 100,000 open routes without a workflow, as after the loss of Temporal: how long until all are taken up,
 * and what new intents notice of it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Bench, Part } from './environment.ts';
import { ROUTES_PER_RECIPIENT, serviceOf } from './intent.ts';
import { openProbe, paced } from './latency.ts';
import type { Measurement } from './measurement.ts';
import { quantile } from './statistics.ts';

const ROUTES = 100_000;
const MOST_SLOWDOWN = 3;
const ALONE_SECONDS = 20;
/** New intents. */
const PER_SECOND = 5;
const LOOK_INTERVAL_MS = 1_000;

export const scaleRecovery = besideNewIntents({
  name: 'scale.open-routes',
  part: 'on_failure',
  work: `${ROUTES} overdue routes without a workflow`,
  done: {
    row: 'taken-up',
    meaning: 'until all of them are published, the wait for the reconciliation included',
  },
  longestS: 600,
  plant,
  countLeft: openRoutes,
});

interface OtherWork {
  name: string;
  part: 'on_failure' | 'direct';
  work: string;
  /** How long it takes, s. */
  done: { row: string; meaning: string };
  longestS: number;
  plant(part: Part): Promise<void>;
  countLeft(part: Part): Promise<number>;
}

/** Other work, and what a few new intents a second notice of it. */
export function besideNewIntents(other: OtherWork): Measurement {
  const { name, work, done, longestS } = other;
  return {
    name,
    meaning: `${work}, while ${PER_SECOND} new intents a second come in`,
    isQuick: false,
    rows: [
      { name: `${name}.${done.row}`, unit: 's', target: { atMost: longestS }, meaning: done.meaning },
      {
        name: `${name}.slowdown`,
        unit: '',
        target: { atMost: MOST_SLOWDOWN },
        meaning: 'p50 from XADD to push event meanwhile, in that of the same intents alone',
      },
    ],
    async run(bench) {
      const part = await bench.part(other.part);
      await serviceOf(bench, other.part);
      const { seconds, slowdown } = await measure(bench, part, other);
      return [
        { row: `${name}.${done.row}`, value: seconds },
        { row: `${name}.slowdown`, ...slowdown },
      ];
    },
  };
}

/**
 * Has other work done while a few new intents a second come in.
 *
 * @returns how long it takes, and p50 of new intents meanwhile in that of the same alone. @throws Error when it takes twice
 * as long as it may.
 */
async function measure(bench: Bench, part: Part, { longestS, plant, countLeft }: OtherWork) {
  const aloneMs = quantile(await latenciesFor(part, ALONE_SECONDS), 0.5);
  bench.report(`p50 alone ${aloneMs.toFixed(1)} ms; planting the other work`);
  await plant(part);
  const beganAt = performance.now();
  const probe = await openProbe(part);
  let isOver = false;
  const publishing = (async () => {
    while (!isOver) await paced(PER_SECOND, 1, () => probe.publish());
  })();
  // Waited for at the end; when the run is stopped before, its failure says nothing.
  publishing.catch(() => undefined);
  let seconds = 0;
  for (let left = Infinity; left > 0;) {
    await sleep(LOOK_INTERVAL_MS);
    left = await countLeft(part);
    seconds = (performance.now() - beganAt) / 1_000;
    if (Math.round(seconds) % 20 === 0) bench.report(`${left} left after ${seconds.toFixed(0)} s`);
    if (seconds > 2 * longestS) throw new Error(`${left} are left after ${seconds.toFixed(0)} s`);
  }
  isOver = true;
  await publishing;
  const meanwhile = await probe.latencies();
  probe.close();
  const p50 = quantile(meanwhile, 0.5);
  const details = { aloneMs, p50, p99: quantile(meanwhile, 0.99) };
  return { seconds, slowdown: { value: p50 / aloneMs, details } };
}

async function latenciesFor(part: Part, seconds: number): Promise<number[]> {
  const probe = await openProbe(part);
  try {
    await paced(PER_SECOND, seconds, () => probe.publish());
    return await probe.latencies();
  } finally {
    probe.close();
  }
}

async function plant({ db }: Part): Promise<void> {
  await db.query(PLANT_RECORDS, [ROUTES / ROUTES_PER_RECIPIENT]);
  await db.query(PLANT_ROUTES);
  await db.query('ANALYZE notification.records, notification.routes');
}

async function openRoutes({ db }: Part): Promise<number> {
  const { rows } = await db.query<{ left: number }>(COUNT_PLANTED);
  return rows[0]!.left;
}

/** Ids of entries of long ago, which nothing that the benchmark publishes has. $1 how many. */
const PLANT_RECORDS = `
  INSERT INTO notification.records
    (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json, idempotency_key,
     request_fingerprint, occurred_at, accepted_at, updated_at, idempotency_expires_at)
  SELECT format('1700000000000-%s', n), 'game.turn.ready', 'game_master', 'user', '["user-1"]',
         '{"game_id":"game-7","game_name":"Andromeda","turn_number":54}', format('planted-%s', n), md5(n::text),
         now(), now(), now(), now() + interval '7 days'
    FROM generate_series(1, $1::int) AS n`;

const PLANT_ROUTES = `
  INSERT INTO notification.routes
    (notification_id, route_id, channel, recipient_ref, status, max_attempts, resolved_email, resolved_locale,
     created_at, updated_at, next_attempt_at)
  SELECT notification_id, channel || ':user:user-1', channel, 'user:user-1', 'pending',
         CASE channel WHEN 'push' THEN 3 ELSE 7 END, CASE channel WHEN 'email' THEN 'someone@example.com' END,
         CASE channel WHEN 'email' THEN 'en' END, now(), now(), now() - interval '10 minutes'
    FROM notification.records, unnest(ARRAY['push', 'email']) AS channel
   WHERE notification_id LIKE '1700000000000-%'`;

const COUNT_PLANTED = `
  SELECT count(*)::int AS left
    FROM notification.routes
   WHERE next_attempt_at IS NOT NULL AND notification_id LIKE '1700000000000-%'`;
