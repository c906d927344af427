/** Users with more devices than are steered one by one: what an outage of FCM costs, and who waits for whom. */
import { NativeConnection, Worker } from '@temporalio/worker';
import type { SendRound } from '../../workflows/mobile-push/contract.ts';
import {
  MOBILE_PUSH_WORKFLOW,
  MOBILE_REPLAY_SIGNAL,
  mobilePushWorkflowId,
} from '../../workflows/mobile-push/contract.ts';
import { workflowBundle } from '../../workers/workflow-bundle.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { QUICK, mobileOfTests } from './jobs.ts';
import { userAttributes } from '../../workflows/search-attributes.ts';

const DEVICES = 130;
/** Six events each: more than one run has. */
const ROUNDS = 60;

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
beforeAll(() => slot.startService({ ...QUICK, NOTIFICATION_MOBILE_SEND_ATTEMPTS: '4' }));
afterEach(() => slot.fcm.heal());

const tokensOf = (name: string) => Array.from({ length: DEVICES }, (_, index) => `${name}-${index}`);
const requestsTo = (name: string) => slot.fcm.requests.filter(({ token }) => token.startsWith(`${name}-`));

async function eventsOf(workflowId: string): Promise<number> {
  const { events } = await slot.client.workflow.getHandle(workflowId).fetchHistory();
  return events?.length ?? 0;
}

test('kinds-V9 M8 an outage of FCM costs a history that does not grow with devices, and each gets its push once', async () => {
  const { userId, ids } = await mobile.userWith(...tokensOf('outage'));
  slot.fcm.fail({ failure: { kind: 'error', error: 'UNAVAILABLE' }, times: 2 * DEVICES });
  const jobId = await mobile.publishTo(userId);

  expect(await mobile.settled(jobId)).toMatchObject({ status: 'sent', tokens: DEVICES, sent: DEVICES });
  expect((await mobile.ended(jobId)).status.name).toBe('COMPLETED');
  const accepted = requestsTo('outage').filter(({ isAccepted }) => isAccepted);
  expect(new Set(accepted.map(({ token }) => token)).size).toBe(DEVICES);
  expect(accepted).toHaveLength(DEVICES);
  expect(await eventsOf(mobilePushWorkflowId(jobId))).toBeLessThan(DEVICES);
  const sends = Object.values(await mobile.sends(jobId, ids));
  expect(sends.filter(({ status }) => status === 'sent')).toHaveLength(DEVICES);
});

test('kinds-V9 M9 a device that waits for an hour holds no other up', async () => {
  const { userId } = await mobile.userWith(...tokensOf('slow'));
  await slot.db.query(
    "UPDATE public.device_token SET id = '00000000-0000-0000-0000-000000000001' WHERE token = 'slow-0'",
  );
  slot.fcm.fail({ token: 'slow-0', failure: { kind: 'error', error: 'UNAVAILABLE', retryAfter: '3600' } });
  const jobId = await mobile.publishTo(userId);

  await eventually('all devices to be asked for', async () => requestsTo('slow').length === DEVICES);
  const handle = slot.client.workflow.getHandle(mobilePushWorkflowId(jobId));
  const details = await eventually('what the job waits for', async () => {
    const metadata = JSON.stringify(await handle.query('__temporal_workflow_metadata'));
    return metadata.includes('messaging/server-unavailable') && metadata;
  });
  expect(details).toContain('the next attempt at ');
  await handle.cancel();
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'partial', sent: DEVICES - 1, failed: 1 });
  expect((await mobile.ended(jobId)).status.name).toBe('CANCELLED');
});

test('kinds-V9 M8 a long job continues in a new run, with what it is found by and a replay that was ordered', async () => {
  const { promise: replayOrdered, resolve: goOn } = Promise.withResolvers<void>();
  const rounds: SendRound[] = Array.from({ length: ROUNDS }, () => ({
    dueInMs: 0,
    unrecorded: [],
    code: 'braked',
  }));
  const opened: (string | undefined)[] = [];
  const outcome = { status: 'sent', tokens: 1, sent: 1, removed: 0, failed: 0 };
  const outcomes = [{ ...outcome, status: 'failed', sent: 0, failed: 1 }, outcome];
  const connection = await NativeConnection.connect({ address: slot.endpoints.temporalAddress! });
  const taskQueue = 'mobile-push-of-this-test';
  const worker = await Worker.create({
    connection,
    namespace: slot.client.options.namespace,
    taskQueue,
    workflowBundle: await workflowBundle(),
    activities: {
      openJob: async ({ requestedBy }: { requestedBy?: string }) => {
        opened.push(requestedBy);
        return { deviceTokenIds: [], hasMore: opened.length === 1 };
      },
      beginRounds: async () => undefined,
      sendRound: async () => {
        if (rounds.length < ROUNDS) await replayOrdered;
        return rounds.pop() ?? { unrecorded: [] };
      },
      settleJob: async () => outcomes.shift(),
    },
  });
  const running = worker.runUntil(async () => {
    const handle = await slot.client.workflow.signalWithStart(MOBILE_PUSH_WORKFLOW, {
      workflowId: 'mobile-push/long',
      taskQueue,
      args: [{ jobId: 'long' }],
      signal: 'not-listened-to',
      typedSearchAttributes: userAttributes(['of-long']),
    });
    await eventually('a round', async () => rounds.length < ROUNDS);
    await handle.signal(MOBILE_REPLAY_SIGNAL, { requestedBy: 'nina' });
    goOn();
    return handle.result() as Promise<unknown>;
  });
  // Whatever becomes of it: an open connection keeps the process from ending.
  const result = await running.finally(() => connection.close());

  expect(result).toEqual(outcome);
  expect(opened).toEqual([undefined, 'nina']);
  expect(await eventsOf('mobile-push/long')).toBeLessThan(300);
  await eventually('both runs to be found by the user, as they ended', async () => {
    const runs: string[] = [];
    for await (const run of slot.client.workflow.list({ query: "UserId = 'of-long'" })) {
      runs.push(run.status.name);
    }
    return runs.sort().join() === 'COMPLETED,CONTINUED_AS_NEW';
  });
});
