/**
 * Devices that FCM refuses, and a process that dies after each step of that. The way without failures is in
 * ../platform/crash-points.hard.test.ts, and the steps of operations are in ../intent/crash-points.ts.
 */
import type { FcmError } from '../../dev/stand-ins/mobile-push/fcm.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { slotOfEachTest } from '../harness.ts';
import { scratchFolder } from '../scratch.ts';
import { QUICK, mobileOfEachTest } from './jobs.ts';

const slot = slotOfEachTest();
const mobile = mobileOfEachTest(slot);
const scratch = scratchFolder('crash-fcm');
const beginWalk = crashWalksOfEachTest(() => slot);

test('M5 M6 M7 a process that dies after any step of a refused send: the token is gone, counted once, and no other is', async () => {
  const walk = beginWalk({
    ...QUICK,
    NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
    NOTIFICATION_HTTP_CA_FILE: scratch.write('ca.pem', slot.fcm.caPem),
    // Jobs that were in the hands of processes that died are to be taken, not given up.
    NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: '50',
  });
  const jobs: { jobId: string; userId: string }[] = [];
  /** A device that takes the push, and one that FCM refuses it for. */
  const put = (error: FcmError, times?: number) => async () => {
    const [good, odd] = [`${jobs.length}-good`, `${jobs.length}-odd`];
    const { userId } = await mobile.userWith(good, odd);
    mobile.refuse(odd, error, { times });
    const jobId = await mobile.publishTo(userId);
    jobs.push({ jobId, userId });
    return async () => ((await mobile.logRow(jobId))?.status ?? 'pending') !== 'pending';
  };
  const kills = {
    // The answer, the deletion of the token, and the row that says so.
    malformed: await walk.through('sendToDevice', put('INVALID_ARGUMENT'), 4),
    stale: await walk.through('sendToDevice', put('UNREGISTERED'), 4),
  };
  const refused = jobs.length;
  const retried = await walk.through('sendToDevice', put('UNAVAILABLE', 1), 4);
  console.info(`processes that died: ${JSON.stringify({ ...kills, retried })}`);
  expect(Math.min(kills.malformed, kills.stale, retried)).toBeGreaterThanOrEqual(2);

  await walk.survivor();
  for (const [index, { jobId, userId }] of jobs.entries()) {
    const [sent, removed] = index < refused ? [1, 1] : [2, 0];
    expect(await mobile.settled(jobId, 240_000)).toMatchObject({ tokens: 2, sent, removed, failed: 0 });
    await mobile.ended(jobId);
    const tokens = [`${index}-good`, `${index}-odd`].slice(0, sent);
    expect(await mobile.tokensOf(userId)).toEqual(tokens);
  }
}, 600_000);
