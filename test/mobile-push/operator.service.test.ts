/** Mobile pushes from the operator's side: the command line on a running service. */
import type { OperationView } from '../../client/operations.ts';
import type { MobileJobSummary, MobileJobView } from '../../client/mobile-push/jobs.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOf, slotOfTests } from '../harness.ts';
import { QUICK, mobileOfTests } from './jobs.ts';

const slot = slotOfTests();
const mobile = mobileOfTests(slot);
const bench = cliOfTests(slot);

beforeAll(() =>
  slot.startService({
    ...QUICK,
    NOTIFICATION_MOBILE_SEND_ATTEMPTS: '2',
    // What a test has lost is not to be found before it looks.
    NOTIFICATION_RECONCILIATION_INTERVAL: '24h',
  }),
);
afterEach(() => slot.fcm.heal());

const send = (userId: string, ...more: string[]) =>
  bench.cli(['mobile', 'send', '--user', userId, '--title', 'Your turn', '--body', 'Andromeda', ...more]);
const listed = async (...filters: string[]) =>
  (await bench.json<{ items: MobileJobSummary[] }>(['mobile', 'list', ...filters])).value.items;
/** Two jobs that some devices do not get. */
async function twoJobsThatEnd(status: string, userId: string, ...down: string[]): Promise<string[]> {
  for (const token of down) mobile.refuse(token, 'UNAVAILABLE');
  const jobs = [await mobile.publishTo(userId), await mobile.publishTo(userId)];
  await untilEnded(jobs, status);
  return jobs;
}
async function untilEnded(jobs: readonly string[], status: string): Promise<void> {
  for (const jobId of jobs) {
    expect(await mobile.settled(jobId)).toMatchObject({ status });
    await mobile.ended(jobId);
  }
}

test('M1 M3 a job is sent from the command line, shown and listed', async () => {
  const { userId } = await mobile.userWith('shown-token');
  const sent = await send(userId, '--badge', '3', '--data', '{"game_id":"g-1"}', '--wait');
  expect(sent).toMatchObject({ code: 0, stderr: '' });
  expect(sent.stdout).toMatch(/ sent +1\n.* removed +0\n.* failed +0\n/);
  // A token is a secret: it is never shown.
  expect(sent.stdout).not.toContain('shown-token');

  const items = await listed('--user', userId);
  expect(items).toMatchObject([{ userId, status: 'sent', tokens: 1, sent: 1 }]);
  const { jobId, link } = items[0]!;
  expect(link).toContain(`/workflows/mobile-push%2F${jobId}`);
  const shown = await bench.json<MobileJobView>(['mobile', 'show', jobId]);
  expect(shown.value.sends).toMatchObject([{ status: 'sent' }]);
  expect((await bench.cli(['mobile', 'show', '1-1'])).code).toBe(3);
});

test('kinds-V10 M1 what FCM would refuse is refused before it is sent', async () => {
  const refused = await send('user-x', '--data', '{"from":"x"}');
  expect(refused).toMatchObject({ code: 2, stdout: '' });
  expect(refused.stderr).toContain('data key "from" is reserved by FCM');
});

test('kinds-V10 M7 a job whose only device was stale is nothing to replay', async () => {
  const { userId } = await mobile.userWith('uninstalled');
  mobile.refuse('uninstalled', 'UNREGISTERED');
  const jobId = await mobile.publishTo(userId);
  expect(await mobile.settled(jobId)).toMatchObject({ status: 'failed', removed: 1, failed: 0 });
  await mobile.ended(jobId);

  const filters = ['--status', 'failed', '--user', userId];
  expect((await bench.cli(['mobile', 'replay', ...filters, '--yes'])).code).toBe(3);
  expect((await bench.cli(['mobile', 'replay', jobId])).code).toBe(3);
  expect(await listed('--replayable', '--user', userId)).toEqual([]);
});

test('kinds-V10 M8 a job that lost its workflow is listed and replayed in bulk', async () => {
  const { userId } = await mobile.userWith('of the lost');
  await slot.db.query(
    `INSERT INTO notifications.notification_log (job_id, user_id, channel, content, created_at, updated_at)
     VALUES ('1-7', $1, 'c', $2, now() - interval '2 hours', now() - interval '2 hours')`,
    [userId, { title: 'T', body: 'B', channel: 'c', data: {} }],
  );
  const items = await listed('--replayable', '--user', userId);
  expect(items).toMatchObject([{ jobId: '1-7', status: 'pending' }]);
  const replayed = await bench.json<OperationView>(['mobile', 'replay', '--user', userId, '--yes']);
  expect(replayed.value).toMatchObject({ kind: 'resend', status: 'done', total: 1, ordered: 1 });
  expect(await mobile.settled('1-7')).toMatchObject({ status: 'sent' });
});

test('M8 what failed is replayed, one job or many, and devices that have the push get none', async () => {
  const { userId } = await mobile.userWith('fine', 'failing');
  const jobs = await twoJobsThatEnd('partial', userId, 'failing');
  slot.fcm.heal();
  const before = mobile.requests();

  const filters = ['--status', 'partial', '--user', userId];
  const dry = await bench.json<object>(['mobile', 'replay', ...filters, '--dry-run']);
  expect(dry).toMatchObject({ code: 0, value: { matching: 2, wouldReplay: 2, groups: [{ jobs: 2 }] } });
  expect((await bench.cli(['mobile', 'replay', ...filters])).code).toBe(2);
  expect((await bench.cli(['mobile', 'replay', jobs[0]!])).code).toBe(0);
  await mobile.sent(jobs[0]!);
  const rest = await bench.json<OperationView>(['mobile', 'replay', ...filters, '--yes']);
  expect(rest).toMatchObject({ code: 0, value: { kind: 'resend', total: 1, ordered: 1 } });
  await mobile.sent(jobs[1]!);
  const after = mobile.requests();
  expect(after['fine']).toBe(before['fine']);
  expect(after['failing']).toBe(before['failing']! + 2);

  await mobile.ended(jobs[0]!);
  expect((await bench.cli(['mobile', 'replay', jobs[0]!])).code).toBe(3);
});

test('U2 M8 many jobs are sent again by an operation, each once, also when a step or its order comes again', async () => {
  const operator = operatorOf(slot);
  const { userId } = await mobile.userWith('again-1', 'again-2');
  const jobs = await twoJobsThatEnd('failed', userId, 'again-1', 'again-2');
  const requests = () => mobile.requests()['again-1']!;
  const before = requests();
  const resent = async (operationId: string) => {
    const ended = await operator.operations.follow(operationId, { limitMs: 30_000 });
    await untilEnded(jobs, 'failed');
    return ended;
  };
  const request = { requestedBy: 'nina', reason: 'INC-9' };
  const { operationId, total } = await operator.operations.begin('resend', { userId }, request);
  expect(total).toBe(2);
  const expected = { kind: 'resend', status: 'done', done: 2, ordered: 2, ...request };
  expect(await resent(operationId)).toMatchObject(expected);
  await eventually('two attempts for each job', async () => requests() === before + 4);

  // As a step leaves it that died before it could say what it did.
  await slot.client.workflow.getHandle(`operation/${operationId}`).result();
  await slot.db.query(`UPDATE notification.operation_items SET was_ordered = NULL`);
  await slot.db.query(
    `UPDATE notification.operations SET done = 0, ordered = 0, ended_at = NULL, outcome = NULL`,
  );
  await operator.operations.resume(operationId, request);
  expect(await resent(operationId)).toMatchObject(expected);
  const job = slot.client.workflow.getHandle(`mobile-push/${jobs[0]}`);
  const { runId } = await job.describe();
  await slot.client.workflow.signalWithStart('mobilePush', {
    ...{ workflowId: job.workflowId, taskQueue: 'mobile-push', args: [{ jobId: jobs[0] }], signal: 'replay' },
    signalArgs: [{ requestedBy: 'nina', orderId: `operation/${operationId}` }],
  });
  await eventually('the run that the order has begun to end', async () => {
    const now = await job.describe();
    return now.runId !== runId && now.status.name === 'FAILED';
  });
  expect(requests()).toBe(before + 4);
});

test('M4 doctor says what the table of device tokens lacks', async () => {
  const lackOf = async (change: string) => {
    await slot.db.query(change);
    const found = await bench.findings({ NOTIFICATION_ROLES: 'mobile-push' });
    const { status, detail } = found['mobile: device tokens']!;
    return `${status}: ${detail}`;
  };
  expect(await lackOf('SELECT')).toMatch(/^ok: /);
  expect(await lackOf('DROP INDEX public.device_token_user_id_idx')).toMatch(/^warn: .*no index/);
  expect(await lackOf('ALTER TABLE public.device_token DROP COLUMN token')).toMatch(
    /^error: .*column "token" does not exist/,
  );
  expect(await lackOf('DROP TABLE public.device_token')).toMatch(/^error: .*does not exist/);
});
