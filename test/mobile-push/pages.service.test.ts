/** A user with more devices than a page, and who waits for whom. */
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { QUICK, mobileOfTests } from './jobs.ts';

const DEVICES = 130;

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
beforeAll(() => slot.startService({ ...QUICK, NOTIFICATION_MOBILE_SEND_ATTEMPTS: '4' }));
afterEach(() => slot.fcm.heal());

const tokensOf = (name: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${name}-${index}`);
const requestsTo = (name: string) => slot.fcm.requests.filter(({ token }) => token.startsWith(`${name}-`));

test('kinds-V9 M8 each of many devices gets its push once, through an outage of FCM', async () => {
  const { userId, ids } = await mobile.userWith(...tokensOf('outage', DEVICES));
  slot.fcm.fail({ failure: { kind: 'error', error: 'UNAVAILABLE' }, times: 2 * DEVICES });
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', tokens: DEVICES, sent: DEVICES });
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
  const accepted = requestsTo('outage').filter(({ isAccepted }) => isAccepted);
  expect(new Set(accepted.map(({ token }) => token)).size).toBe(DEVICES);
  expect(accepted).toHaveLength(DEVICES);
  const sends = Object.values(await mobile.sends(jobId, ids));
  expect(sends.filter(({ status }) => status === 'sent')).toHaveLength(DEVICES);
});

test('kinds-V9 M9 a device that waits for an hour holds no other of its page up', async () => {
  const { userId } = await mobile.userWith(...tokensOf('slow', 10));
  slot.fcm.fail({ token: 'slow-0', failure: { kind: 'error', error: 'UNAVAILABLE', retryAfter: '3600' } });
  const jobId = await mobile.publishTo(userId);

  await eventually('all devices to be asked for', async () => requestsTo('slow').length === 10);
  await slot.client.workflow.getHandle(mobilePushWorkflowId(jobId)).cancel();
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: 9, failed: 1 });
  expect((await mobile.ended(jobId)).status.name).toBe('CANCELLED');
});
