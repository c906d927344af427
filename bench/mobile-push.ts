/**
 * Mobile push jobs and sends a second, and how long a push takes from the XADD of its job to FCM's receipt. The stand-in
 * for FCM runs in the process of the benchmark: what is measured is the orchestration.
 */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FcmStandIn } from '../dev/stand-ins/mobile-push/fcm.ts';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import { baselinesOf } from './baselines.ts';
import type { Bench, Part } from './environment.ts';
import { appendedAtMs } from './environment.ts';
import type { Measurement } from './measurement.ts';
import { ROUND_LIMIT_MS, interleave, medianOf } from './rounds.ts';
import { median, quantile, ratios } from './statistics.ts';

export const JOBS_STREAM = 'stream.notifications.jobs';
const DEVICES = 2;
const WARM_UP_JOBS = 30;
const LOOK_INTERVAL_MS = 50;

/** Latencies, ms, are from the XADD of a job to FCM's receipt of each of its pushes. */
type MobileRound = Record<'perSecond' | 'sendsPerSecond' | 'p50Ms' | 'p99Ms', number>;

export const mobilePush: Measurement = {
  name: 'mobile-push',
  meaning: `mobile push jobs for ${DEVICES} devices each, published together`,
  isQuick: false,
  rows: [
    { name: 'mobile-push.jobs', unit: '/s', meaning: `jobs for ${DEVICES} devices each` },
    { name: 'mobile-push.sends', unit: '/s', meaning: 'sends to FCM' },
    { name: 'mobile-push.p50', unit: 'ms', meaning: 'XADD to FCM, in a burst' },
    { name: 'mobile-push.p99', unit: 'ms', meaning: 'XADD to FCM, in a burst' },
  ],

  async run(bench) {
    const { intents: jobs, rounds } = bench.sizes;
    const baselines = await baselinesOf(bench);
    const part = await bench.part('mobile-push');
    const fcm = await startFcm();
    bench.onClose(() => fcm.stop());
    await startMobileService(bench, fcm);
    await part.db.query(REGISTER_DEVICES, [Math.max(jobs, WARM_UP_JOBS), DEVICES]);
    await send(part, fcm, WARM_UP_JOBS);

    const found: MobileRound[] = [];
    const { ceiling } = await interleave<'ceiling' | 'mobile-push', { perSecond: number }>(
      rounds,
      {
        ceiling: () => baselines.round('emptyTree', jobs),
        'mobile-push': async () => {
          const round = await send(part, fcm, jobs);
          found.push(round);
          return round;
        },
      },
      bench.report,
    );
    const of = (name: keyof MobileRound) => found.map((round) => round[name]);
    const ceilingRates = ceiling.map(({ perSecond }) => perSecond);
    return [
      {
        ...medianOf('mobile-push.jobs', of('perSecond')),
        ofCeiling: median(ratios(of('perSecond'), ceilingRates)),
        details: { jobs, devices: DEVICES, highestSockets: fcm.sockets.highest },
      },
      {
        ...medianOf('mobile-push.sends', of('sendsPerSecond')),
        ofCeiling: median(ratios(of('sendsPerSecond'), ceilingRates)),
      },
      medianOf('mobile-push.p50', of('p50Ms')),
      medianOf('mobile-push.p99', of('p99Ms')),
    ];
  },
};

/** Starts the service of this part, which sends to the stand-in. @param env adds to its configuration. */
export async function startMobileService(
  bench: Bench,
  fcm: FcmStandIn,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const caFile = path.join(bench.dataDir, 'fcm-ca.pem');
  writeFileSync(caFile, fcm.caPem);
  await bench.service('mobile-push', {
    NOTIFICATION_ROLES: 'mobile-push',
    NOTIFICATION_FCM_ENDPOINT: fcm.url,
    NOTIFICATION_HTTP_CA_FILE: caFile,
    ...env,
  });
}

/** @returns the fields of a job's entry, in the form that XADD takes. */
export function jobFor(userId: string, data: Readonly<Record<string, unknown>> = {}): string[] {
  const content = ['title', 'Your turn', 'body', 'Turn 54 is ready.', 'channel', 'turns'];
  return ['userId', userId, ...content, 'data', JSON.stringify(data)];
}

/** Publishes so many jobs together and waits until all of them are sent. */
async function send({ redis, db }: Part, fcm: FcmStandIn, jobs: number): Promise<MobileRound> {
  const [before, pipeline] = [fcm.requests.length, redis.pipeline()];
  for (let user = 1; user <= jobs; user += 1) {
    pipeline.xadd(JOBS_STREAM, '*', ...jobFor(`bench-${user}`, { user }));
  }
  const ids = ((await pipeline.exec()) ?? []).map(([error, id]) => {
    if (error) throw error;
    return String(id);
  });
  const endedAt = await settled(db, ids);
  const receipts = fcm.requests.slice(before);
  const sends = jobs * DEVICES;
  if (receipts.length !== sends) throw new Error(`FCM got ${receipts.length} requests for ${sends} sends`);
  const beganAt = appendedAtMs(ids[0]!);
  const latencies = receipts.map(
    ({ at, body }) => at - appendedAtMs(ids[Number((body.message['data'] as { user: string }).user) - 1]!),
  );
  return {
    perSecond: (jobs * 1_000) / (endedAt - beganAt),
    sendsPerSecond: (sends * 1_000) / (receipts.at(-1)!.at - beganAt),
    p50Ms: quantile(latencies, 0.5),
    p99Ms: quantile(latencies, 0.99),
  };
}

/** @returns when the last of these jobs was settled, ms since the epoch. @throws Error unless all of them are sent. */
async function settled(db: Part['db'], ids: string[]): Promise<number> {
  const deadline = Date.now() + ROUND_LIMIT_MS;
  for (;;) {
    const { rows } = await db.query<{ settled: number; sent: number; at: Date }>(COUNT_SETTLED, [ids]);
    const { settled, sent, at } = rows[0]!;
    if (settled === ids.length && sent === settled) return at.getTime();
    if (settled > sent || Date.now() > deadline) {
      throw new Error(`of ${ids.length} jobs ${settled} are settled and ${sent} sent`);
    }
    await sleep(LOOK_INTERVAL_MS);
  }
}

/** $1 users, $2 devices of each. */
const REGISTER_DEVICES = `
  INSERT INTO public.device_token ("userId", token)
  SELECT format('bench-%s', "user"), format('bench-%s-%s', "user", device)
    FROM generate_series(1, $1::int) AS "user", generate_series(1, $2::int) AS device`;

/** $1 job ids. */
const COUNT_SETTLED = `
  SELECT (count(*) FILTER (WHERE status <> 'pending'))::int AS settled,
         (count(*) FILTER (WHERE status = 'sent'))::int AS sent, max(updated_at) AS at
    FROM notifications.notification_log WHERE job_id = ANY ($1)`;
