/** A user with more devices than a history has room for, and a device that is down. */
import { ApplicationFailure } from '@temporalio/common';
import { MOBILE_SEND_FAILED } from '../../workflows/failures.ts';
import type { OpenOrder, SendKey } from '../../workflows/mobile-push/contract.ts';
import { MOBILE_REPLAY_SIGNAL } from '../../workflows/mobile-push/contract.ts';
import { startWorkflow } from '../workflow-tier.ts';

const DEVICES = 1_200;
const PAGE = 100;
const SENT = { status: 'sent', tokens: DEVICES, sent: DEVICES, removed: 0, failed: 0 } as const;

test('kinds-V9 M8 many devices are sent to page by page, in as many runs as that takes, and a replay meanwhile comes after', async () => {
  const left = Array.from({ length: DEVICES }, (_, index) => `device-${index}`);
  const sent: string[] = [];
  const orders: OpenOrder[] = [];
  const results = [{ ...SENT, status: 'partial', sent: DEVICES - 1, failed: 1 } as const, SENT];
  const run = await startWorkflow('mobilePush', [{ jobId: 'long' }], {
    activities: {
      openJob(order: OpenOrder) {
        orders.push(order);
        if (orders.length === 2) run.signal(MOBILE_REPLAY_SIGNAL, { requestedBy: 'nina' });
        return { deviceTokenIds: left.slice(0, PAGE), hasMore: left.length > PAGE };
      },
      sendToDevice({ deviceTokenId }: SendKey) {
        left.splice(left.indexOf(deviceTokenId), 1);
        sent.push(deviceTokenId);
        return { status: 'sent', messageId: 'm', isRecorded: true };
      },
      settleJob: () => results.shift(),
    },
  });

  expect(await run.result()).toEqual(SENT);
  expect(new Set(sent).size).toBe(DEVICES);
  expect(sent).toHaveLength(DEVICES);
  expect(run.continuations).toHaveLength(1);
  expect(run.historyLength).toBeLessThan(1_200);
  const replay = orders.pop();
  expect(replay).toMatchObject({ requestedBy: 'nina' });
  expect(new Set(orders.map(({ openedBy }) => openedBy)).size).toBe(1);
  expect(orders.map(({ openedBy }) => openedBy)).not.toContain(replay!.openedBy);
});

test('M6 M8 a send that failed is made again when its failure says, and shows that until it has ended', async () => {
  const details = { code: 'UNAVAILABLE', attempts: 1, maxAttempts: 5, retryInMs: 30_000 };
  const run = await startWorkflow('mobilePush', [{ jobId: 'down' }], {
    activities: {
      openJob: () => ({ deviceTokenIds: ['device'], hasMore: false }),
      sendToDevice() {
        if (run.calls('sendToDevice').length > 1)
          return { status: 'sent', messageId: 'm', isRecorded: false };
        throw ApplicationFailure.create({ type: MOBILE_SEND_FAILED, details: [details] });
      },
      recordSent: () => undefined,
      settleJob: () => ({ ...SENT, tokens: 1, sent: 1 }),
    },
  });
  const statusOf = () => run.searchAttributes.get({ name: 'MobileStatus', type: 'KEYWORD' });
  await run.advance(29_999);
  expect([run.calls('sendToDevice').length, statusOf()]).toEqual([1, 'retrying']);
  expect(run.searchAttributes.get({ name: 'FailureClassification', type: 'KEYWORD' })).toBe('UNAVAILABLE');
  await run.result();
  expect(run.calls('recordSent').map(({ args }) => args)).toEqual([
    [{ jobId: 'down', deviceTokenId: 'device' }, 'm'],
  ]);
  expect(statusOf()).toBe('sent');
  expect(await run.details()).toBe('sent: 1 of 1 devices reached, 0 stale, 0 failed');
});
