/**
 * Intents and mobile pushes, and a process that dies after each step with which it changes something outside: whatever it
 * was doing is done in the end, and done once.
 */
import type { EntryFields } from '../../api/intent/entry.ts';
import { beginIntent } from '../../dev/intent-rows.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { accepted, entryOf, turn } from '../intent/entries.ts';
import { dispatch, eventually, slotOfEachTest } from '../harness.ts';
import { countOf } from '../intent/rows.ts';
import { QUICK, withMobilePush } from '../mobile-push/jobs.ts';
import { scratchFolder } from '../scratch.ts';
import {
  OFFSET_KEY,
  allPublished,
  append,
  deliveriesTo,
  nothingLeftRunning,
  outboundIds,
} from '../service-process.ts';

/** Everything must be done in the end; a machine that is busy with other things may take its time. */
const LIMIT_MS = 240_000;
jest.setTimeout(600_000);
const ADMINISTRATOR = 'operator@example.com';

const slot = slotOfEachTest();
const beginWalk = crashWalksOfEachTest(() => slot);
const scratch = scratchFolder('crash-fcm');

const listOf = async (sql: string) => (await slot.db.query<{ id: string }>(sql)).rows.map(({ id }) => id);

test('I2 I3 I6 I23 a process that dies after any step of an intent: one entry for each route, one row for each refusal', async () => {
  const walk = beginWalk({ NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: ADMINISTRATOR });
  const [good, bad, urgent]: [string[], string[], string[]] = [[], [], []];
  const entryOfTurn = () =>
    turn({ idempotency_key: `good-${good.length}`, recipient_user_ids_json: '["user-1"]' });
  const isNotified = async (id: string) =>
    (await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe()).status.name === 'COMPLETED';
  const isRefused = async (id: string) =>
    (await countOf(slot, 'malformed_intents', 'stream_entry_id = $1', [id])) === 1;
  // Past the reader: a process that took it from the dead one would make every step wait for its heartbeat.
  const startGood = async () => {
    const intent = { ...accepted(entryOfTurn()), notificationId: `${Date.now()}-${good.length}` };
    good.push(intent.notificationId);
    await beginIntent({ db: slot.db, workflows: slot.client.workflow }, intent, dispatch());
    return () => isNotified(intent.notificationId);
  };
  /** Through the stream: done once the reader has passed it, and `isDone`. */
  const put = async (ids: string[], fields: EntryFields, isDone: (id: string) => Promise<boolean>) => {
    const [id] = (await append(slot.redis, [fields])) as [string];
    ids.push(id);
    return async () => (await slot.redis.get(OFFSET_KEY)) === id && isDone(id);
  };
  const putGood = () => put(good, entryOfTurn(), isNotified);
  const putUrgent = () => {
    const fields = entryOf('game.generation_failed', { idempotency_key: `urgent-${urgent.length}` });
    return put(urgent, fields, isNotified);
  };
  const putBad = () => put(bad, turn({ idempotency_key: `bad-${bad.length}`, payload_json: '{' }), isRefused);
  const kills = {
    // The record; the hand-off, and the row.
    accepted: await walk.through('acceptIntent', startGood),
    published: await walk.through(dispatch() === 'child' ? 'publishRoute' : 'publishSlice', startGood),
    // The row with the offset, its copy, the workflow, and what is noted of that; the refused row and the offset. The activity does
    // not end, and what its process has left is taken over 30 s later.
    started: await walk.through('bridgeStream', putGood, 4),
    recorded: await walk.through('bridgeStream', putBad, 2),
    urgent: await walk.through('bridgeStream', putUrgent, 1),
  };
  expect(kills.accepted).toBeGreaterThanOrEqual(1);
  expect(kills.published).toBeGreaterThanOrEqual(2);
  expect([kills.started, kills.recorded, kills.urgent]).toEqual([4, 2, 1]);

  await walk.survivor();
  await eventually(
    'the offset to reach the end',
    async () => (await slot.redis.get(OFFSET_KEY)) === urgent.at(-1),
    LIMIT_MS,
  );
  await allPublished(slot, 2 * good.length + urgent.length, LIMIT_MS);
  await nothingLeftRunning(slot, LIMIT_MS);
  const toAdministrator = urgent.map((id) => `${id}/email:email:${ADMINISTRATOR}`);
  expect(await outboundIds(slot.redis)).toEqual([...deliveriesTo('user-1', good), ...toAdministrator].sort());
  const records = await listOf('SELECT notification_id AS id FROM notification.records ORDER BY 1');
  expect(records).toEqual([...good, ...urgent].sort());
  const refusals = await listOf(
    'SELECT stream_entry_id AS id FROM notification.malformed_intents ORDER BY 1',
  );
  expect(refusals).toEqual(bad.toSorted());
});

test('M1 M3 M8 a process that dies after any step of a mobile push: every device has it, twice only if the answer was lost', async () => {
  const mobile = await withMobilePush(slot);
  const walk = beginWalk({
    ...QUICK,
    NOTIFICATION_FCM_ENDPOINT: slot.fcm.url,
    NOTIFICATION_HTTP_CA_FILE: scratch.write('ca.pem', slot.fcm.caPem),
    // Jobs that were in the hands of processes that died are to be taken, not given up.
    NOTIFICATION_MOBILE_MAX_DELIVERY_COUNT: '50',
  });
  const jobs: string[] = [];
  const put = async () => {
    const { userId } = await mobile.userWith(`${jobs.length}-phone`, `${jobs.length}-tablet`);
    const jobId = await mobile.publishTo(userId);
    jobs.push(jobId);
    const workflow = slot.client.workflow.getHandle(mobilePushWorkflowId(jobId));
    // Its end comes after the last step's answer.
    return async () =>
      (await mobile.pending()) === 0 && (await workflow.describe()).status.name === 'COMPLETED';
  };
  const kills = {
    // The row, the workflow, the acknowledgement.
    taken: await walk.through('intake', put, 3),
    opened: await walk.through('openJob', put),
    sent: await walk.through('sendToDevice', put),
    settled: await walk.through('settleJob', put),
  };
  expect(kills.taken).toBe(3);
  expect(kills.opened).toBeGreaterThanOrEqual(1);
  expect(kills.sent).toBeGreaterThanOrEqual(2);
  expect(kills.settled).toBeGreaterThanOrEqual(1);

  await walk.survivor();
  await eventually(
    'every job to be sent',
    async () =>
      (await listOf("SELECT job_id AS id FROM notifications.notification_log WHERE status = 'sent'"))
        .length === jobs.length && (await mobile.pending()) === 0,
    LIMIT_MS,
  );
  await Promise.all(jobs.map((jobId) => mobile.ended(jobId)));
  const requests = mobile.requests();
  expect(Object.keys(requests).sort()).toEqual(
    jobs.flatMap((_, index) => [`${index}-phone`, `${index}-tablet`]).sort(),
  );
  // The other device of a job may have been under way when the process died. Of the one that it died of, the answer was
  // lost once; after its next steps Redis knows that FCM has it. A process that dies while it takes a job may have both
  // of its devices under way.
  const repeated = Object.values(requests).filter((times) => times > 1);
  expect(repeated.length).toBeLessThanOrEqual(1 + kills.sent + 2 * kills.taken);
  expect(Math.max(...Object.values(requests))).toBeLessThanOrEqual(1 + kills.sent);
  const sends = slot.fcm.requests.map(({ token, body }) => [token, body.message['data']] as const);
  const idsOfPushes = sends.map(([token, data]) => `${token} ${(data as Record<string, string>)['push_id']}`);
  expect(new Set(idsOfPushes).size).toBe(2 * jobs.length);
});
