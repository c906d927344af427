/**
 * Intents and mobile pushes, and a process that dies after each step with which it changes something outside: whatever it
 * was doing is done in the end, and done once.
 */
import { beginIntent } from '../../dev/intent-rows.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { mobilePushWorkflowId } from '../../workflows/mobile-push/contract.ts';
import { crashWalksOfEachTest } from '../crash-walk.ts';
import { accepted, entryOf, turn } from '../intent/entries.ts';
import { dispatch, eventually, slotOfEachTest } from '../harness.ts';
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

const count = async (sql: string, values: unknown[]): Promise<number> =>
  (await slot.db.query<{ count: number }>(`SELECT count(*)::int AS count FROM ${sql}`, values)).rows[0]!
    .count;

test('I2 I3 I6 I23 a process that dies after any step of an intent: one entry for each route, one row for each refusal', async () => {
  const walk = beginWalk({ NOTIFICATION_ADMIN_EMAILS_GAME_GENERATION_FAILED: ADMINISTRATOR });
  const [good, bad, urgent]: [string[], string[], string[]] = [[], [], []];
  const entryOfTurn = () =>
    turn({ idempotency_key: `good-${good.length}`, recipient_user_ids_json: '["user-1"]' });
  const isNotified = (id: string) => async () =>
    (await slot.client.workflow.getHandle(notificationWorkflowId(id)).describe()).status.name === 'COMPLETED';
  // Past the reader: a process that took it from the dead one would make every step wait for its heartbeat.
  const startGood = async () => {
    const intent = { ...accepted(entryOfTurn()), notificationId: `${Date.now()}-${good.length}` };
    good.push(intent.notificationId);
    await beginIntent({ db: slot.db, workflows: slot.client.workflow }, intent, dispatch());
    return isNotified(intent.notificationId);
  };
  const putGood = async () => {
    const [id] = await append(slot.redis, [entryOfTurn()]);
    good.push(id!);
    return async () => (await slot.redis.get(OFFSET_KEY)) === id && isNotified(id)();
  };
  const putUrgent = async () => {
    const [id] = await append(slot.redis, [
      entryOf('game.generation_failed', { idempotency_key: `urgent-${urgent.length}` }),
    ]);
    urgent.push(id!);
    return async () => (await slot.redis.get(OFFSET_KEY)) === id && isNotified(id)();
  };
  const putBad = async () => {
    const [id] = await append(slot.redis, [
      turn({ idempotency_key: `bad-${bad.length}`, payload_json: '{' }),
    ]);
    bad.push(id!);
    return async () =>
      (await count('notification.malformed_intents WHERE stream_entry_id = $1', [id])) === 1 &&
      (await slot.redis.get(OFFSET_KEY)) === id;
  };
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
  console.info(`processes that died: ${JSON.stringify(kills)}`);
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
  const { rows } = await slot.db.query<{ id: string }>(
    'SELECT notification_id AS id FROM notification.records ORDER BY 1',
  );
  expect(rows.map(({ id }) => id)).toEqual([...good, ...urgent].sort());
  const malformed = await slot.db.query<{ id: string }>(
    'SELECT stream_entry_id AS id FROM notification.malformed_intents ORDER BY 1',
  );
  expect(malformed.rows.map(({ id }) => id)).toEqual([...bad].sort());
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
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills.taken).toBe(3);
  expect(kills.opened).toBeGreaterThanOrEqual(1);
  expect(kills.sent).toBeGreaterThanOrEqual(2);
  expect(kills.settled).toBeGreaterThanOrEqual(1);

  await walk.survivor();
  await eventually(
    'every job to be sent',
    async () =>
      (await count("notifications.notification_log WHERE status = 'sent'", [])) === jobs.length &&
      (await mobile.pending()) === 0,
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
  const pushIds = new Map<string, Set<unknown>>();
  for (const { token, body } of slot.fcm.requests) {
    const { push_id: id } = body.message['data'] as Record<string, string>;
    pushIds.set(token, (pushIds.get(token) ?? new Set()).add(id));
  }
  expect([...pushIds.values()].every((ids) => ids.size === 1)).toBe(true);
});
