/** A process that is told to stop in the middle of its jobs. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { slotOfEachTest, untilLocked } from '../harness.ts';
import { QUICK, mobileOfEachTest } from './jobs.ts';
import { scratchFolder } from '../scratch.ts';
import { fleetOfEachTest } from '../service-process.ts';

// Everything must arrive in the end; a machine that is busy with other things may take its time.
jest.setTimeout(480_000);
const JOB_COUNT = 200;
const TOKENS = Array.from({ length: JOB_COUNT }, (_, index) => [`${index}-phone`, `${index}-tablet`]);

const slot = slotOfEachTest();
const mobile = mobileOfEachTest(slot);
const fleet = fleetOfEachTest(() => slot);
const scratch = scratchFolder('fcm');

test('M10 I35 a process told to stop ends in time, also when a statement of an activity takes longer', async () => {
  const SHUTDOWN_MS = 3_000;
  const answers = holdAnswers();
  slot.fcm.fail({ failure: answers.failure });
  const service = await fleet.start({
    ...QUICK,
    NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
    NOTIFICATION_HTTP_CA_FILE: scratch.write('ca.pem', slot.fcm.caPem),
    NOTIFICATION_SHUTDOWN_TIMEOUT: `${SHUTDOWN_MS}ms`,
    NOTIFICATION_POSTGRES_OPERATION_TIMEOUT: '10m',
  });
  const users = await Promise.all(TOKENS.map((tokens) => mobile.userWith(...tokens)));
  await Promise.all(users.map(({ userId }) => mobile.publishTo(userId)));
  await answers.arrived;
  const other = await slot.db.connect();
  await other.query('BEGIN');
  await other.query('LOCK TABLE notifications.notification_sends');
  answers.release();
  await untilLocked(slot.db);
  const beganAt = performance.now();
  expect(await service.end('SIGTERM')).toBe(0);
  expect(performance.now() - beganAt).toBeLessThan(10 * SHUTDOWN_MS);
  await other.query('ROLLBACK');
  other.release();
});
