/** What tests of mobile push share: devices, jobs, and where to see what became of them. */
import { given } from '../../api/given.ts';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import { shared } from '../of-tests.ts';

export const JOBS = 'stream.notifications.jobs';
export const GROUP = 'notifications';

/** Short gaps; the defaults are the seed's half minutes. */
export const QUICK = {
  NOTIFICATION_ROLES: 'mobile-push',
  NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: '300ms',
  NOTIFICATION_FCM_BRAKE: '200ms',
};

interface LogRow {
  status: string;
  content: unknown;
  raw_fields: Record<string, string> | null;
}

interface SendRow {
  device_token_id: string;
  push_id: string;
  status: string;
  attempts: number;
  last_code: string | null;
}

export type MobileSlot = ReturnType<typeof mobilePushOf>;

/** Prepares the slot's database as it is in production: ours migrated, the tokens' table there. */
export async function withMobilePush(slot: Slot): Promise<MobileSlot> {
  await createDeviceTokens(slot.ownerDsn, { samples: false });
  return mobilePushOf(slot);
}

/** Of the slot of a file, or of that of each test. */
export const { ofTests: mobileOfTests, ofEachTest: mobileOfEachTest } = shared(withMobilePush);

/** For a database that is prepared already. */
export function mobilePushOf(slot: Slot) {
  let users = 0;

  /** @returns a user with a device for each token, and the devices' ids by token. */
  async function userWith(...tokens: string[]) {
    const userId = `user-${(users += 1)}`;
    const { rows } = await slot.db.query<{ id: string; token: string }>(
      'INSERT INTO public.device_token ("userId", token) SELECT $1, unnest($2::text[]) RETURNING id, token',
      [userId, tokens],
    );
    return { userId, ids: new Map(rows.map(({ id, token }) => [token, id])) };
  }

  const publish = async (fields: Record<string, string>): Promise<string> =>
    (await slot.redis.xadd(JOBS, '*', ...Object.entries(fields).flat()))!;

  const publishTo = (userId: string, more: Record<string, string> = {}): Promise<string> =>
    publish({ userId, title: 'Secret title', body: 'Secret body', channel: 'alerts', ...more });

  async function logRow(jobId: string): Promise<LogRow | undefined> {
    const { rows } = await slot.db.query<LogRow>(
      `SELECT *, token_count AS tokens, sent_count AS sent, removed_count AS removed, failed_count AS failed
         FROM notifications.notification_log WHERE job_id = $1`,
      [jobId],
    );
    return rows[0];
  }

  /** Waits for a status that nothing changes by itself any more. */
  const settled = (jobId: string, limitMs?: number): Promise<LogRow> =>
    eventually(
      `job ${jobId} to be settled`,
      async () => {
        const row = await logRow(jobId);
        return row !== undefined && row.status !== 'pending' && row;
      },
      limitMs,
    );

  return {
    userWith,
    publish,
    publishTo,
    logRow,
    settled,

    /** Waits for a job that may have had another end before. */
    sent: (jobId: string) =>
      eventually(`job ${jobId} to be sent`, async () => (await logRow(jobId))?.status === 'sent'),

    /** What FCM says of this token; default: each time until it is healed. */
    refuse: (
      token: string,
      error: FcmError,
      more: { times?: number | undefined; retryAfter?: string } = {},
    ) => {
      const { times, ...how } = more;
      slot.fcm.fail({ token, failure: { kind: 'error', error, ...how }, ...given({ times }) });
    },

    /** The different push ids under which FCM was asked to send to a token. */
    pushIdsTo: (token: string): string[] => [
      ...new Set(
        slot.fcm.requests
          .filter((request) => request.token === token)
          .map(({ body }) => (body.message['data'] as { push_id: string }).push_id),
      ),
    ],

    /** The sends of a job by token. */
    async sends(jobId: string, ids: ReadonlyMap<string, string>): Promise<Record<string, SendRow>> {
      const { rows } = await slot.db.query<SendRow>(
        'SELECT * FROM notifications.notification_sends WHERE job_id = $1',
        [jobId],
      );
      return Object.fromEntries(
        [...ids].flatMap(([token, id]) => {
          const row = rows.find(({ device_token_id }) => device_token_id === id);
          return row ? [[token, row]] : [];
        }),
      );
    },

    /** Tokens that the user still has. */
    async tokensOf(userId: string): Promise<string[]> {
      const { rows } = await slot.db.query<{ token: string }>(
        'SELECT token FROM public.device_token WHERE "userId" = $1 ORDER BY token',
        [userId],
      );
      return rows.map(({ token }) => token);
    },

    /** How often FCM was asked to send to each token. */
    requests(): Record<string, number> {
      const counts: Record<string, number> = {};
      for (const { token } of slot.fcm.requests) counts[token] = (counts[token] ?? 0) + 1;
      return counts;
    },

    /** Waits until the job's workflow has ended, whichever way. */
    ended: (jobId: string) =>
      eventually(`the workflow of job ${jobId} to end`, async () => {
        const description = await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).describe();
        return description.status.name !== 'RUNNING' && description;
      }),

    /** Entries that were delivered and not acknowledged. */
    async pending(): Promise<number> {
      const [count] = (await slot.redis.xpending(JOBS, GROUP)) as [number];
      return count;
    },

    logged: (event: string) => slot.logs.filter((line) => line['event'] === event),
  };
}
