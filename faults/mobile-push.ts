/** Pushes to phones: each device of each job once, unless a fault hid the result. ledger/mobile-push.ts judges. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { FcmStandIn } from '../dev/stand-ins/mobile-push/fcm.ts';
import { startFcm } from '../dev/stand-ins/mobile-push/fcm.ts';
import type { FcmRequest, SentJob } from './ledger/mobile-push.ts';
import { jobEntryOf, judgeMobilePushes } from './ledger/mobile-push.ts';
import type { Verdict } from './ledger/verdict.ts';
import { plantedText, plantedTokenPrefix } from './planted.ts';
import type { Arena, Work } from './work.ts';

const JOBS = 'stream.notifications.jobs';
const GROUP = 'notifications';
const USERS = 60;
const USER_WITHOUT_DEVICES = 'user-without-devices';
/** Services are killed meanwhile. */
const FOLLOW_LIMIT_MS = 600_000;

export async function openMobilePush(arena: Arena): Promise<Work> {
  const random = arena.random('mobile-push');
  // One for each process of the service, so that it is known who sent what.
  const fcms: FcmStandIn[] = [];
  for (let service = 0; service < arena.services; service += 1) fcms.push(await startFcm());
  const caFileOf = (service: number) => path.join(arena.dataDir, `fcm-ca-${service}.pem`);
  for (const [service, { caPem }] of fcms.entries()) writeFileSync(caFileOf(service), caPem);
  const devices = new Map(
    Array.from({ length: USERS }, (_, user) => [
      userOf(user),
      Array.from({ length: random.between(1, 3) }, (_, device) => tokenOf(user, device)),
    ]),
  );
  const rows = [...devices].flatMap(([user, tokens]) => tokens.map((token) => [user, token] as const));
  await arena.db.query(
    'INSERT INTO public.device_token ("userId", token) SELECT * FROM unnest($1::text[], $2::text[])',
    [rows.map(([user]) => user), rows.map(([, token]) => token)],
  );
  const producer = arena.openProducer(JOBS, jobEntryOf);

  return {
    name: 'mobile-push',
    env: {
      NOTIFICATION_FCM_BRAKE: '1s',
      NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: '5s',
    },
    envOf: (service) => ({
      NOTIFICATION_FCM_ENDPOINT: fcms[service]!.url,
      NOTIFICATION_HTTP_CA_FILE: caFileOf(service),
    }),
    planted: [
      { what: 'device tokens', value: plantedTokenPrefix },
      { what: 'titles and texts of pushes', value: plantedText('push') },
    ],
    async load() {
      for await (const index of arena.spread(Math.ceil(arena.intents / 10))) {
        await producer.post(jobOf(index));
        if (random.chance(0.1)) {
          const failure = random.oneOf([
            { kind: 'error', error: 'UNAVAILABLE' },
            { kind: 'error', error: 'QUOTA_EXCEEDED', retryAfter: '1' },
            { kind: 'delay', ms: 800 },
            { kind: 'reset' },
          ] as const);
          const times = random.between(1, 3);
          for (const fcm of fcms) {
            fcm.heal();
            fcm.fail({ failure, times });
          }
        }
      }
    },
    async settle() {
      await arena.persist('jobs that the stream has lost to be put in again', () => producer.repeatLost());
      await allDone();
      // Jobs whose devices had too many failures, or that were in the hands of too many processes that died.
      for (;;) {
        const left = await arena.persist('looking for jobs', () =>
          arena.operator.operations.preview('resend', {}),
        );
        if (left.length === 0) return;
        const { operationId } = await arena.persist('replaying jobs', () =>
          arena.operator.operations.begin('resend', {}, { ratePerSecond: 50, requestedBy: 'faults' }),
        );
        await arena.persist('following the replay', () =>
          arena.operator.operations.follow(operationId, { limitMs: FOLLOW_LIMIT_MS }),
        );
        await allDone();
      }
    },
    verify,
    async stop() {
      producer.stop();
      await Promise.all(fcms.map((fcm) => fcm.stop()));
    },
  };

  function jobOf(index: number): SentJob {
    const form = random.oneOf(['flat', 'payload'] as const);
    return {
      mark: `mark-${index}`,
      userId: random.chance(0.03) ? USER_WITHOUT_DEVICES : userOf(random.between(0, USERS - 1)),
      title: plantedText('push'),
      channel: 'alerts',
      data: random.chance(0.5) ? { index, list: [index, null], text: `«${index}»` } : {},
      form: form === 'payload' && random.chance(0.05) ? 'cut-off' : form,
    };
  }

  async function allDone(): Promise<void> {
    await arena.until('every mobile push job to be done', async () => {
      const groups = (await arena.redis.xinfo('GROUPS', JOBS)) as unknown[][];
      const group = new Map(groups.map((flat) => [flat[1], flat])).get(GROUP) ?? [];
      const valueOf = (name: string) => group[group.indexOf(name) + 1];
      // Not the group's lag: after a failover Redis counts too many.
      const unread = await arena.redis.xrange(
        JOBS,
        `(${String(valueOf('last-delivered-id'))}`,
        '+',
        'COUNT',
        1,
      );
      const { rows: found } = await arena.db.query<{ open: number }>(
        "SELECT count(*)::int AS open FROM notifications.notification_log WHERE status = 'pending'",
      );
      const running = await arena.temporal.workflow.count(
        "ExecutionStatus = 'Running' AND WorkflowType = 'mobilePush'",
      );
      const left = {
        unread: unread.length,
        pending: Number(valueOf('pending')),
        open: found[0]!.open,
        running: running.count,
      };
      if (Object.values(left).every((count) => count === 0)) return true;
      throw new Error(JSON.stringify(left));
    });
  }

  async function verify(): Promise<Verdict> {
    const { rows: log } = await arena.db.query<{ job_id: string; status: string }>(
      'SELECT job_id, status FROM notifications.notification_log',
    );
    const verdict = judgeMobilePushes({
      postings: producer.postings,
      devices,
      requests: fcms.flatMap(requestsOf),
      rows: new Map(log.map(({ job_id, status }) => [job_id, status])),
      spoiled: arena.faults,
    });
    const missing = await producer.repeatLost();
    if (missing > 0) verdict.lost.push(`the stream lacks ${missing} jobs that it had acknowledged`);
    return verdict;
  }
}

const requestsOf = ({ requests }: FcmStandIn, service: number): FcmRequest[] =>
  requests.map(({ token, body, isAccepted, at, answeredAt = Date.now() }) => ({
    service,
    token,
    message: body.message,
    isAccepted,
    at,
    answeredAt,
  }));

const userOf = (index: number): string => `faults-phone-user-${index}`;
const tokenOf = (user: number, device: number): string => `${plantedTokenPrefix}${user}-${device}`;
