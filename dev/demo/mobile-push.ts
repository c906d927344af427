/** The demo's part of mobile pushes: one job for the user with sample devices, and what FCM's stand-in got of it. */
import type { Redis } from 'ioredis';
import type pg from 'pg';
import { tableOf } from '../table.ts';
import type { FcmStandIn } from '../stand-ins/mobile-push/fcm.ts';

export interface DeviceResult {
  jobId: string;
  platform: string;
  status: string;
  pushId: string;
  title: string;
  /** From the XADD of the job to the stand-in's receipt. */
  afterMs?: number;
  problem?: string;
}

const TITLE = 'Your turn in Andromeda';
const USER = 'user-1';

/** @returns one row per device, once the job is settled or the time is up. */
export async function demonstrateMobilePush(
  redis: Redis,
  db: pg.Client,
  fcm: FcmStandIn,
  { stream, limitMs }: { stream: string; limitMs: number },
): Promise<DeviceResult[]> {
  const jobId = await redis.xadd(
    stream,
    '*',
    ...['userId', USER, 'title', TITLE, 'body', 'Turn 54 is ready.', 'channel', 'turns'],
    ...['badge', '1', 'data', '{"game_id":"game-42","turn_number":54}'],
  );
  const deadline = Date.now() + limitMs;
  for (;;) {
    const { rows } = await db.query<Omit<DeviceResult, 'title'> & { token: string; isSettled: boolean }>(
      DEVICES,
      [jobId, USER],
    );
    if (rows.every(({ isSettled }) => isSettled) || Date.now() > deadline) {
      return rows.map((row) => resultOf(jobId!, row, fcm));
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function resultOf(
  jobId: string,
  { platform, status, pushId, token }: Omit<DeviceResult, 'title'> & { token: string },
  fcm: FcmStandIn,
): DeviceResult {
  const received = fcm.requests.filter(
    (request) =>
      request.token === token &&
      (request.body.message['data'] as Record<string, string> | undefined)?.['push_id'] === pushId,
  );
  const [first] = received;
  const notification = first?.body.message['notification'] as { title?: string } | undefined;
  const problem =
    status !== 'sent'
      ? 'not sent'
      : received.length === 1
        ? undefined
        : `the stand-in for FCM got it ${received.length} times`;
  return {
    jobId,
    platform,
    status,
    pushId,
    title: notification?.title ?? '',
    ...(first ? { afterMs: Math.max(0, first.at - Number(jobId.split('-')[0])) } : {}),
    ...(problem === undefined ? {} : { problem }),
  };
}

export function tableOfDevices(devices: DeviceResult[]): string {
  const rows = devices.map(({ jobId, platform, status, pushId, title, afterMs, problem }, index) => [
    index === 0 ? 'mobile push' : '',
    index === 0 ? jobId : '',
    platform,
    problem === undefined ? status : `${status}: ${problem}`,
    afterMs === undefined ? '' : `${Math.round(afterMs)} ms`,
    pushId,
    title,
  ]);
  return `${tableOf(['TYPE', 'JOB', 'DEVICE', 'STATUS', 'AFTER', 'PUSH ID', 'TITLE AT FCM'], rows)}\n\n`;
}

const DEVICES = `
  SELECT device.platform, device.token, coalesce(send.status, 'missing') AS status,
         coalesce(send.push_id, '') AS "pushId",
         coalesce(job.status NOT IN ('pending'), false) AS "isSettled"
    FROM public.device_token AS device
    LEFT JOIN notifications.notification_log AS job ON job.job_id = $1
    LEFT JOIN notifications.notification_sends AS send
           ON send.job_id = job.job_id AND send.device_token_id = device.id::text
   WHERE device."userId" = $2
   ORDER BY device.platform`;
