/** Mobile push jobs that are under way: one with a device that FCM refuses for now, one read and not yet kept. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import type { Held, OpenWork } from '../open-work.ts';
import { holdEntries } from '../open-work.ts';
import { GROUP, JOBS, mobilePushOf } from './jobs.ts';

/** @param dir for files that the service reads. */
export async function openMobileWork(slot: Slot, dir: string): Promise<OpenWork> {
  await createDeviceTokens(slot.ownerDsn, { samples: false });
  const caFile = path.join(dir, 'fcm-ca.pem');
  writeFileSync(caFile, slot.fcm.caPem);
  const mobile = mobilePushOf(slot);
  let jobs: string[] = [];
  let held: Held | undefined;

  return {
    role: 'mobile-push',
    env: {
      NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
      NOTIFICATION_HTTP_CA_FILE: caFile,
      NOTIFICATION_MOBILE_SEND_ATTEMPTS: '1000',
      NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: '1s',
    },

    async begin() {
      slot.fcm.fail({ token: 'refused', failure: { kind: 'error', error: 'UNAVAILABLE' } });
      const both = await mobile.userWith('taken', 'refused');
      const other = await mobile.userWith('unread');
      const retried = await mobile.publishTo(both.userId);
      await eventually('one device to have the push, the other to be tried again', async () => {
        const { taken, refused } = await mobile.sends(retried, both.ids);
        return taken?.status === 'sent' && refused!.attempts > 1;
      });
      const entries = await holdEntries(slot, {
        stream: JOBS,
        group: GROUP,
        table: 'notifications.notification_log',
      });
      held = entries;
      const unread = await mobile.publishTo(other.userId);
      await entries.untilRead(unread);
      jobs = [retried, unread];
    },

    stopped: async () => held?.release(),

    heal: async () => slot.fcm.heal(),

    async finish() {
      const rows = await Promise.all(jobs.map(mobile.settled));
      expect(rows.map(({ status, tokens, sent }) => ({ status, tokens, sent }))).toEqual([
        { status: 'sent', tokens: 2, sent: 2 },
        { status: 'sent', tokens: 1, sent: 1 },
      ]);
      const accepted = slot.fcm.requests.filter(({ isAccepted }) => isAccepted).map(({ token }) => token);
      expect(accepted.sort()).toEqual(['refused', 'taken', 'unread']);
      for (const job of jobs) expect((await mobile.ended(job)).status.name).toBe('COMPLETED');
      await eventually('every entry to be acknowledged', async () => (await mobile.pending()) === 0);
    },

    release: async () => held?.release(),
  };
}
