/**
 * The acceptance of mobile push, from outside: a service process that is killed in the middle of its jobs. What it may
 * cost is a second push to a device whose first one had no answer yet, with the push id by which the device can tell.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import type { MobileSlot } from './jobs.ts';
import { QUICK, withMobilePush } from './jobs.ts';
import { createFleet } from '../service-process.ts';

/** Everything must arrive in the end; a machine that is busy with other things may take its time. */
const LIMIT_MS = 240_000;
const TEST_LIMIT_MS = 2 * LIMIT_MS;

const { failure: NEVER } = holdAnswers();

const JOB_COUNT = 200;
const TOKENS = Array.from({ length: JOB_COUNT }, (_, index) => [`${index}-phone`, `${index}-tablet`]);
/**
 * A send that FCM was asked for and that is not written down yet is a running local activity, of which a process has two
 * for each connection to PostgreSQL: 50 by default. Those that wait for their answer are bounded by as many sockets.
 */
const MOST_UNDER_WAY = 50;

let slot: Slot;
let mobile: MobileSlot;
let fleet: ReturnType<typeof createFleet>;
let folder: string;
const nothingHeld = async (): Promise<void> => undefined;
let letGo = nothingHeld;
beforeEach(async () => {
  slot = await takeSlot();
  mobile = await withMobilePush(slot);
  fleet = createFleet(slot);
  folder = mkdtempSync(path.join(tmpdir(), 'galaxy-notify-fcm-'));
});
afterEach(async () => {
  await letGo();
  await fleet.killAll();
  await slot.release();
  rmSync(folder, { recursive: true, force: true });
});

function start(env: Record<string, string> = {}) {
  const caFile = path.join(folder, 'ca.pem');
  writeFileSync(caFile, slot.fcm.caPem);
  return fleet.start({
    ...QUICK,
    NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
    NOTIFICATION_HTTP_CA_FILE: caFile,
    ...env,
  });
}

/** One job for each user, so that a token stands for one send. */
async function publishAll(): Promise<string[]> {
  const users = await Promise.all(TOKENS.map((tokens) => mobile.userWith(...tokens)));
  return Promise.all(users.map(({ userId }) => mobile.publishTo(userId)));
}

/** Another transaction stays open after this statement. */
async function hold(text: string): Promise<void> {
  const other = await slot.db.connect();
  letGo = async () => {
    letGo = nothingHeld;
    await other.query('ROLLBACK');
    other.release();
  };
  await other.query('BEGIN');
  await other.query(text);
}

async function statusCounts(table: 'notification_log' | 'notification_sends') {
  const { rows } = await slot.db.query<{ status: string; count: number }>(
    `SELECT status, count(*)::int AS count FROM notifications.${table} GROUP BY status`,
  );
  return Object.fromEntries(rows.map(({ status, count }) => [status, count])) as Partial<
    Record<string, number>
  >;
}

/** Kills the process; what it had written to FCM's sockets is read when all of them are closed. */
async function kill(service: Awaited<ReturnType<typeof start>>): Promise<void> {
  await service.end('SIGKILL');
  await eventually("the dead process's sockets to be closed", async () => slot.fcm.sockets.open === 0);
}

/** Each job is `sent`, each of its sends was written down once, and each push carries the id of its send. */
async function expectAllSent(jobIds: string[]): Promise<void> {
  await eventually(
    'all jobs to be sent',
    async () => {
      const counts = await statusCounts('notification_log');
      if (counts['sent'] === JOB_COUNT) return true;
      throw new Error(`there are ${JSON.stringify(counts)}`);
    },
    LIMIT_MS,
  );
  await eventually('the acknowledgements', async () => (await mobile.pending()) === 0, LIMIT_MS);
  await Promise.all(jobIds.map((jobId) => mobile.ended(jobId)));
  const jobs = await slot.db.query<{ job_id: string }>('SELECT job_id FROM notifications.notification_log');
  expect(jobs.rows.map(({ job_id }) => job_id).sort()).toEqual([...jobIds].sort());

  const { rows: sends } = await slot.db.query<Record<'token' | 'push_id' | 'status', string>>(
    `SELECT token, push_id, send.status, attempts
       FROM notifications.notification_sends AS send
       JOIN public.device_token AS device ON device.id::text = send.device_token_id`,
  );
  expect(sends).toHaveLength(2 * JOB_COUNT);
  for (const send of sends) expect(send).toMatchObject({ status: 'sent', attempts: 1 });
  expect(pushIdsAtFcm()).toEqual(new Map(sends.map(({ token, push_id }) => [token, new Set([push_id])])));
}

function pushIdsAtFcm(): Map<string, Set<string>> {
  const pushIds = new Map<string, Set<string>>();
  for (const { token, body } of slot.fcm.requests) {
    const { push_id } = body.message['data'] as { push_id: string };
    pushIds.set(token, (pushIds.get(token) ?? new Set()).add(push_id));
  }
  return pushIds;
}

/** Tokens that FCM was asked to send to more than once, sorted. */
function repeated(): string[] {
  const requests = Object.entries(mobile.requests());
  expect(requests.filter(([, count]) => count > 2)).toEqual([]);
  return requests.flatMap(([token, count]) => (count === 2 ? [token] : [])).sort();
}

test(
  'M1 M2 M8 of a process that is killed exactly the sends are repeated whose answers were lost',
  async () => {
    const [answered, unanswered] = [80, 20];
    slot.fcm.fail({ failure: { kind: 'hold', until: Promise.resolve() }, times: answered });
    slot.fcm.fail({ failure: NEVER });
    const first = await start();
    const jobIds = await publishAll();
    await eventually(
      'answers that do not come',
      async () =>
        slot.fcm.requests.length >= answered + unanswered &&
        (await statusCounts('notification_sends'))['sent'] === answered,
      LIMIT_MS,
    );
    await kill(first);
    const lost = slot.fcm.requests.slice(answered).map(({ token }) => token);
    expect(lost.length).toBeLessThanOrEqual(MOST_UNDER_WAY);

    slot.fcm.heal();
    await start();
    await expectAllSent(jobIds);
    expect(repeated()).toEqual(lost.sort());
  },
  TEST_LIMIT_MS,
);

test(
  'M10 I35 a process told to stop ends in time, also when a statement of an activity takes longer',
  async () => {
    const SHUTDOWN_MS = 3_000;
    const answers = holdAnswers();
    slot.fcm.fail({ failure: answers.failure });
    const service = await start({
      NOTIFICATION_SHUTDOWN_TIMEOUT: `${SHUTDOWN_MS}ms`,
      NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '10m',
    });
    await publishAll();
    await answers.arrived;
    await hold('LOCK TABLE notifications.notification_sends');
    answers.release();
    await eventually('a statement to wait for the lock', async () => {
      const { rows } = await slot.db.query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      );
      return rows.length > 0;
    });
    const beganAt = performance.now();
    expect(await service.end('SIGTERM')).toBe(0);
    expect(performance.now() - beganAt).toBeLessThan(10 * SHUTDOWN_MS);
  },
  TEST_LIMIT_MS,
);
