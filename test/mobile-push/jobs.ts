/** What tests of mobile push share: devices, jobs, and where to see what became of them. */
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import type { MobilePushResult } from '../../workflows/mobile-push/contract.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import { ofEachTest, ofTests } from '../of-tests.ts';

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
  user_id: string | null;
  channel: string | null;
  error_code: string | null;
  error_message: string | null;
  tokens: number;
  sent: number;
  removed: number;
  failed: number;
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

/** Of the slot of a file. */
export const mobileOfTests = (slot: Slot): MobileSlot => ofTests(() => withMobilePush(slot));

/** Of the slot of each test. */
export const mobileOfEachTest = (slot: Slot): MobileSlot => ofEachTest(() => withMobilePush(slot));

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
      `SELECT status, content, raw_fields, user_id, channel, error_code, error_message, token_count AS tokens,
              sent_count AS sent, removed_count AS removed, failed_count AS failed
         FROM notifications.notification_log WHERE job_id = $1`,
      [jobId],
    );
    return rows[0];
  }

  /** Waits for a status that nothing changes by itself any more. */
  const settled = (jobId: string): Promise<LogRow> =>
    eventually(`job ${jobId} to be settled`, async () => {
      const row = await logRow(jobId);
      return row !== undefined && row.status !== 'pending' && row;
    });

  return {
    userWith,
    publish,
    publishTo,
    logRow,
    settled,

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

    outcome: (jobId: string): Promise<MobilePushResult> =>
      slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).result(),

    /** Everything that Temporal keeps about a job, with its payloads in clear. */
    async historyText(jobId: string): Promise<string> {
      const history = await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).fetchHistory();
      return JSON.stringify(history).replaceAll(
        /"data":"([^"]*)"/g,
        (_, base64: string) => `"data":${Buffer.from(base64, 'base64').toString()}`,
      );
    },

    /** Entries that were delivered and not acknowledged. */
    async pending(): Promise<number> {
      const [count] = (await slot.redis.xpending(JOBS, GROUP)) as [number];
      return count;
    },

    logged: (event: string) => slot.logs.filter((line) => line['event'] === event),
  };
}
