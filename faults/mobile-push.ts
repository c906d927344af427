/** Pushes to phones: each device of each job once, unless nobody can know whether it got it. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import { plantedText, plantedTokenPrefix } from './planted.ts';
import type { Arena, Verdict, Work } from './work.ts';
import { noVerdict } from './work.ts';

const JOBS = 'stream.notifications.jobs';
const GROUP = 'notifications';
const USERS = 60;
/** No JSON. */
const CUT_OFF = '{"title":';
const NOBODY = 'user-without-devices';
/** Between a send and what spoiled its answer, by the clocks of both: a process that is killed was sending shortly before. */
const AMBIGUOUS_MS = 15_000;

export async function openMobilePush(arena: Arena): Promise<Work> {
  const random = arena.random('mobile-push');
  const fcm = await startFcm();
  const caFile = path.join(arena.dataDir, 'fcm-ca.pem');
  writeFileSync(caFile, fcm.caPem);
  const devices = Array.from({ length: USERS }, (_, user) =>
    Array.from(
      { length: random.between(1, 3) },
      (_, device) => [userOf(user), tokenOf(user, device)] as const,
    ),
  ).flat();
  await arena.db.query(
    'INSERT INTO public.device_token ("userId", token) SELECT * FROM unnest($1::text[], $2::text[])',
    [devices.map(([user]) => user), devices.map(([, token]) => token)],
  );

  return {
    name: 'mobile-push',
    env: {
      NOTIFICATION_FCM_ENDPOINT: fcm.url,
      NOTIFICATION_FCM_CA_FILE: caFile,
      NOTIFICATION_FCM_BRAKE: '1s',
      NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: '5s',
      NOTIFICATION_MOBILE_SEND_INTERVAL: '1s',
    },
    planted: [
      { what: 'device tokens', value: plantedTokenPrefix, mayBeInHistories: false },
      { what: 'titles and texts of pushes', value: plantedText('push'), mayBeInHistories: false },
    ],
    async load() {
      for await (const index of arena.spread(Math.ceil(arena.intents / 10))) {
        const fields = {
          userId: random.chance(0.03) ? NOBODY : userOf(random.between(0, USERS - 1)),
          title: plantedText('push'),
          body: `${plantedText('push')} ${index}`,
          channel: 'alerts',
        };
        const data = random.chance(0.5) ? { index: String(index) } : {};
        const entry = random.chance(0.5)
          ? Object.entries({ ...fields, data: JSON.stringify(data) }).flat()
          : ['payload', random.chance(0.05) ? CUT_OFF : JSON.stringify({ ...fields, data })];
        await arena.persist('a job to be appended', () => arena.redis.xadd(JOBS, '*', ...entry));
        if (random.chance(0.1)) {
          fcm.heal();
          fcm.fail({
            failure: random.oneOf([
              { kind: 'error', error: 'UNAVAILABLE' },
              { kind: 'error', error: 'QUOTA_EXCEEDED', retryAfter: '1' },
              { kind: 'delay', ms: 800 },
              { kind: 'reset' },
            ] as const),
            times: random.between(1, 3),
          });
        }
      }
    },
    async settle() {
      await allDone();
      // Jobs whose devices had too many failures, or that were in the hands of too many processes that died.
      for (;;) {
        const replayed = await arena.persist('replaying jobs', () =>
          arena.operator.mobile.replayMany({}, { ratePerSecond: 50, requestedBy: 'faults' }),
        );
        await allDone();
        if (replayed.length === 0) return;
      }
    },
    verify: () => verify(),
    stop: () => fcm.stop(),
  };

  async function allDone(): Promise<void> {
    await arena.until('every mobile push job to be done', async () => {
      const groups = (await arena.redis.xinfo('GROUPS', JOBS)) as unknown[][];
      const group = new Map(groups.map((flat) => [flat[1], flat])).get(GROUP) ?? [];
      const valueOf = (name: string) => Number(group[group.indexOf(name) + 1]);
      const { rows } = await arena.db.query<{ open: number }>(
        "SELECT count(*)::int AS open FROM notifications.notification_log WHERE status = 'pending'",
      );
      const running = await arena.temporal.workflow.count(
        "ExecutionStatus = 'Running' AND WorkflowType = 'mobilePush'",
      );
      const left = {
        unread: valueOf('lag'),
        pending: valueOf('pending'),
        open: rows[0]!.open,
        running: running.count,
      };
      if (Object.values(left).every((count) => count === 0)) return true;
      throw new Error(JSON.stringify(left));
    });
  }

  async function verify(): Promise<Verdict> {
    const verdict = noVerdict();
    const jobs = new Map((await arena.redis.xrange(JOBS, '-', '+')).map(([id, fields]) => [id, fields]));
    const { rows } = await arena.db.query<{ job_id: string; status: string; user_id: string | null }>(
      'SELECT job_id, status, user_id FROM notifications.notification_log',
    );
    const byId = new Map(rows.map((row) => [row.job_id, row]));
    const counts: Record<string, number> = {};
    for (const [id, fields] of jobs) {
      const row = byId.get(id);
      if (!row) verdict.lost.push(`job ${id} has no row`);
      const status = row?.status ?? 'missing';
      counts[status] = (counts[status] ?? 0) + 1;
      const isMalformed = fields[0] === 'payload' && fields[1] === CUT_OFF;
      const wanted = isMalformed ? 'malformed' : row?.user_id === NOBODY ? 'no_tokens' : 'sent';
      if (row && status !== wanted) verdict.wrong.push(`job ${id} is ${status}, not ${wanted}`);
    }
    for (const id of byId.keys()) if (!jobs.has(id)) verdict.wrong.push(`job ${id} was not published`);

    const sends = await arena.db.query<{ push_id: string; status: string }>(
      'SELECT push_id, status FROM notifications.notification_sends',
    );
    const accepted = new Map<string, number[]>();
    for (const { body, isAccepted, at } of fcm.requests) {
      const pushId = (body.message['data'] as Record<string, string>)['push_id'] ?? '';
      if (isAccepted) accepted.set(pushId, [...(accepted.get(pushId) ?? []), at]);
    }
    const { rows: wanted } = await arena.db.query<{ sends: number }>(
      `SELECT count(*)::int AS sends
         FROM notifications.notification_log JOIN public.device_token ON "userId" = user_id
        WHERE status <> 'malformed'`,
    );
    if (sends.rows.length !== wanted[0]!.sends) {
      verdict.lost.push(`${sends.rows.length} sends are recorded, of ${wanted[0]!.sends}`);
    }
    for (const { push_id: pushId, status } of sends.rows) {
      if (status !== 'sent') verdict.wrong.push(`push ${pushId} is ${status}`);
      if (!accepted.has(pushId)) verdict.lost.push(`push ${pushId} never reached FCM`);
    }
    const known = new Set(sends.rows.map(({ push_id }) => push_id));
    let ambiguous = 0;
    for (const [pushId, times] of accepted) {
      if (!known.has(pushId)) verdict.wrong.push(`push ${pushId} is nobody's`);
      for (let index = 1; index < times.length; index += 1) {
        if (wasSpoiled(times[index - 1]!, times[index]!)) ambiguous += 1;
        else verdict.duplicated.push(`push ${pushId} was sent twice, and nothing was in the way`);
      }
    }
    verdict.figures = {
      jobs: jobs.size,
      ...counts,
      pushes: accepted.size,
      'repeated because the answer was lost': ambiguous,
    };
    return verdict;
  }

  /** Whether something can have taken the answer to a send, or what was to be written down of it. */
  function wasSpoiled(sentAt: number, sentAgainAt: number): boolean {
    return arena.faults.some(
      ({ startedAt, endedAt }) => startedAt <= sentAgainAt && endedAt >= sentAt - AMBIGUOUS_MS,
    );
  }
}

const userOf = (index: number): string => `faults-phone-user-${index}`;
const tokenOf = (user: number, device: number): string => `${plantedTokenPrefix}${user}-${device}`;
