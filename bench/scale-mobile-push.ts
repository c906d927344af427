/**
 * One push job for a user with 10,000 devices while FCM is away for ten minutes: whether each device gets its push, how
 * long the histories of the job become, and how soon all is sent once FCM is back.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import { mobilePushWorkflowId } from '../workflows/mobile-push/contract.ts';
import type { Bench, Part } from './environment.ts';
import type { Finding, Measurement } from './measurement.ts';
import { JOBS_STREAM, jobFor, startMobileService } from './mobile-push.ts';
import { until } from './rounds.ts';

const DEVICES = 10_000;
const OUTAGE_MS = 600_000;
/** The time between two attempts is the default, 30 s: these last for a quarter of an hour. */
const ATTEMPTS = 30;
const LONGEST_HISTORY = 10_000;
/** The wait for the next attempt, and a little more than ten milliseconds for each send. */
const LONGEST_RECOVERY_S = 150;
const LOOK_INTERVAL_MS = 250;
const PART = 'mobile-push';
const ROW = 'scale.devices';

export const scaleMobilePush: Measurement = {
  name: ROW,
  meaning: `one push job for ${DEVICES} devices, FCM answers 503 for its first ${OUTAGE_MS / 60_000} minutes`,
  isQuick: false,
  rows: [
    {
      name: `${ROW}.sent`,
      unit: '',
      target: { atLeast: DEVICES },
      meaning: 'devices of which FCM took one push and no second one',
    },
    {
      name: `${ROW}.history`,
      unit: '',
      target: { atMost: LONGEST_HISTORY },
      meaning: "events of the longest run of the job's workflow",
    },
    {
      name: `${ROW}.recovery`,
      unit: 's',
      target: { atMost: LONGEST_RECOVERY_S },
      meaning: 'from the end of the outage to the end of the job',
    },
    { name: `${ROW}.attempts`, unit: '', meaning: 'requests to FCM during the outage' },
  ],
  run: measure,
};

async function measure(bench: Bench): Promise<Finding[]> {
  const part = await bench.part(PART);
  const fcm = await startFcm();
  try {
    // Not the service of other measurements: it sends to another FCM, and gives up sooner.
    await bench.stopService(PART);
    await startMobileService(bench, fcm, { NOTIFICATION_MOBILE_SEND_ATTEMPTS: String(ATTEMPTS) });
    const userId = `scale-${randomUUID()}`;
    await part.db.query(REGISTER_DEVICES, [userId, DEVICES]);

    bench.report(`${DEVICES} devices, FCM is away for ${OUTAGE_MS / 1_000} s`);
    fcm.fail({ failure: { kind: 'error', error: 'UNAVAILABLE' } });
    const jobId = String(await part.redis.xadd(JOBS_STREAM, '*', ...jobFor(userId)));
    const attempts = await outage(fcm);
    bench.report(`${attempts} attempts in vain; FCM is back`);
    const backAtMs = Date.now();
    await until('the job to end', LOOK_INTERVAL_MS, () => isSettled(part, jobId));
    const recoveryMs = Date.now() - backAtMs;

    const { longest, runs } = await historiesOf(part, jobId);
    return [
      { row: `${ROW}.sent`, value: countOnce(fcm.requests), details: await findJob(part, jobId) },
      { row: `${ROW}.history`, value: longest, details: { runs } },
      { row: `${ROW}.recovery`, value: recoveryMs / 1_000 },
      { row: `${ROW}.attempts`, value: attempts },
    ];
  } finally {
    await bench.stopService(PART);
    await fcm.stop();
  }
}

type Fcm = Awaited<ReturnType<typeof startFcm>>;

/** @returns requests that FCM got meanwhile. They are forgotten on the way: they would fill the memory. */
async function outage(fcm: Fcm): Promise<number> {
  const endsAt = performance.now() + OUTAGE_MS;
  let attempts = 0;
  const forget = (): void => {
    attempts += fcm.requests.length;
    fcm.forget();
  };
  while (performance.now() < endsAt) {
    await sleep(LOOK_INTERVAL_MS);
    forget();
  }
  fcm.heal();
  return attempts;
}

function countOnce(requests: Fcm['requests']): number {
  const pushes = new Map<string, number>();
  for (const { token, isAccepted } of requests) {
    if (isAccepted) pushes.set(token, (pushes.get(token) ?? 0) + 1);
  }
  return [...pushes.values()].filter((count) => count === 1).length;
}

interface JobRow {
  status: string;
  token_count: number;
  sent_count: number;
  removed_count: number;
  failed_count: number;
}

async function findJob({ db }: Part, jobId: string): Promise<JobRow | undefined> {
  const { rows } = await db.query<JobRow>(FIND_JOB, [jobId]);
  return rows[0];
}

async function isSettled(part: Part, jobId: string): Promise<boolean> {
  const job = await findJob(part, jobId);
  return job !== undefined && job.status !== 'pending';
}

/** Of all runs of the job's workflow, once the last of them is known to have closed. */
async function historiesOf({ client }: Part, jobId: string): Promise<{ longest: number; runs: number }> {
  const workflowId = mobilePushWorkflowId(jobId);
  await until('the workflow to be closed', LOOK_INTERVAL_MS, async () => {
    const { status } = await client.workflow.getHandle(workflowId).describe();
    return status.name !== 'RUNNING';
  });
  let [longest, runs] = [0, 0];
  let { runId }: { runId: string | undefined } = await client.workflow.getHandle(workflowId).describe();
  while (runId) {
    const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    longest = Math.max(longest, events?.length ?? 0);
    runs += 1;
    runId = events?.[0]?.workflowExecutionStartedEventAttributes?.continuedExecutionRunId ?? undefined;
  }
  return { longest, runs };
}

/** $1 user id, $2 devices. */
const REGISTER_DEVICES = `
  INSERT INTO public.device_token ("userId", token)
  SELECT $1::text, format('%s-%s', $1::text, device) FROM generate_series(1, $2::int) AS device`;

/** $1 job id. */
const FIND_JOB = `
  SELECT status, token_count, sent_count, removed_count, failed_count
    FROM notifications.notification_log WHERE job_id = $1`;
