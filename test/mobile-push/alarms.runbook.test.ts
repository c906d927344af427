/** Alarms about mobile pushes, each with its fault, and its section of the runbook carried out. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { eventually } from '../harness.ts';
import { drillGround } from '../runbook/drill.ts';
import type { MobileSlot } from './jobs.ts';
import { GROUP, JOBS, withMobilePush } from './jobs.ts';
import { scratchFolder } from '../scratch.ts';

/** The job of the runbook's examples. */
const EXAMPLE = '1790000000000-0';

const caFile = path.join(scratchFolder('alarms').dir, 'fcm-ca.pem');
let mobile: MobileSlot;
let jobId = '';

const ground = drillGround({
  env: () => ({
    NOTIFICATION_ROLES: 'mobile-push',
    NOTIFICATION_FCM_ENDPOINT: ground.slot.fcm.url,
    NOTIFICATION_HTTP_CA_FILE: caFile,
    // What waits long waits briefly.
    NOTIFICATION_MOBILE_SEND_ATTEMPTS: '3',
    NOTIFICATION_MOBILE_AUTOCLAIM_MIN_IDLE: '300ms',
    NOTIFICATION_FCM_BRAKE: '1s',
  }),
});
const { drill } = ground;

beforeAll(async () => {
  mobile = await withMobilePush(ground.slot);
  writeFileSync(caFile, ground.slot.fcm.caPem);
  await ground.start();
}, 300_000);

const answers = (error: FcmError) => ground.slot.fcm.fail({ failure: { kind: 'error', error } });
const heal = async () => ground.slot.fcm.heal();
const publish = async () => {
  const { userId } = await mobile.userWith(`device of ${Date.now()}`);
  jobId = await mobile.publishTo(userId);
};
const publishInto = (error: FcmError) => {
  answers(error);
  return publish();
};
const healAndSend = async () => {
  await heal();
  await mobile.sent(jobId);
};
const example = () => ({ [EXAMPLE]: jobId });
/** A replay once the cause is gone. */
const replayAfter = (words: string) => [{ words, act: heal, before: 'galaxy-notify mobile replay' }];

drill({
  alarm: 'MobilePushCredentialRefused',
  fault: 'FCM refuses the service account',
  inject: () => publishInto('UNAUTHENTICATED'),
  deeds: replayAfter('renew the credential'),
  cleanUp: healAndSend,
});

drill({
  alarm: 'MobilePushSendsFail',
  fault: 'FCM refuses what is shown',
  inject: async () => answers('INVALID_PAYLOAD'),
  load: publish,
  examples: example,
  deeds: replayAfter('replay when the cause is gone'),
  says: { 'galaxy-notify mobile show': /invalid/ },
  cleanUp: heal,
});

drill({
  alarm: 'MobilePushLate',
  fault: 'FCM does not answer',
  prepare: async () => {
    await ground.killAll();
    await ground.start({ NOTIFICATION_MOBILE_SEND_ATTEMPTS: '1000' });
  },
  inject: async () => {
    await publishInto('UNAVAILABLE');
    // Its opening counts as new.
    await eventually('the job to be opened', async () => {
      const { rowCount } = await ground.slot.db.query(
        `UPDATE notifications.notification_log SET updated_at = updated_at - interval '61 minutes'
          WHERE job_id = $1 AND opened_by IS NOT NULL`,
        [jobId],
      );
      return rowCount === 1;
    });
  },
  examples: example,
  says: {
    'galaxy-notify mobile list': /pending/,
    'galaxy-notify mobile show': /server-unavailable/,
    'temporal workflow list': /mobilePush/,
  },
  deeds: [{ words: 'which says what it waits for, then fix that', act: heal }],
  cleanUp: async () => {
    await healAndSend();
    await ground.killAll();
  },
});

drill({
  alarm: 'MobilePushBraked',
  fault: 'the quota of FCM is spent',
  inject: async () => answers('QUOTA_EXCEEDED'),
  load: publish,
  deeds: [{ words: 'have the quota raised', act: heal }],
  cleanUp: heal,
});

drill({
  alarm: 'MobilePushGivenUp',
  fault: 'FCM answered 503 to every attempt',
  inject: () => publishInto('UNAVAILABLE'),
  deeds: replayAfter('replay when the cause is gone'),
  cleanUp: healAndSend,
});

drill({
  alarm: 'MobilePushEntriesLost',
  fault: 'a process died with an entry, which a client deleted',
  inject: async () => {
    const { redis } = ground.slot;
    await ground.killAll();
    const { userId } = await mobile.userWith('lost');
    const entry = await mobile.publishTo(userId);
    await redis.xreadgroup('GROUP', GROUP, 'dead', 'STREAMS', JOBS, '>');
    await redis.xdel(JOBS, entry);
    await ground.start();
  },
  deeds: [{ words: 'must send those jobs again', act: publish }],
});

drill({
  alarm: 'MobilePushMalformedJobs',
  fault: 'a producer appends what the contract forbids',
  inject: () => mobile.publish({ x: 'y' }),
  says: { 'galaxy-notify mobile list': /malformed/ },
});
