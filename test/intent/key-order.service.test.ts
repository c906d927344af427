/** Two intents with one key, of which one reader has started the earlier, and the next one comes upon the later. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { parseIntent } from '../../api/intent/entry.ts';
import { createKeyOrder } from '../../activities/intent/key-order.ts';
import { startNotification } from '../../activities/intent/start.ts';
import { savePosition } from '../../activities/intent/stream-position.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { dispatch, eventually, takeSlot } from '../harness.ts';
import { namespaceOf } from '../slots.ts';
import { accepted, turn } from './entries.ts';

const STREAM = 'notification:intents';
const PAIRS = 3;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.stopServices());
afterAll(() => slot.release());

const publish = (key: string, recipient: string) =>
  publishIntent(
    slot.redis,
    newGameTurnReady({
      idempotencyKey: key,
      recipientUserIds: [recipient],
      occurredAt: new Date('2026-11-22T12:00Z'),
      payload: { game_id: 'game', game_name: 'Andromeda', turn_number: 1 },
    }),
  );

/** A worker that takes a workflow and dies: Temporal gives it to another one when the time-out of its task is over. */
async function takeAndDie(): Promise<void> {
  const { connection } = slot.client;
  const namespace = namespaceOf(slot.slot);
  const { taskToken } = await connection.withDeadline(Date.now() + 60_000, () =>
    connection.workflowService.pollWorkflowTaskQueue({
      ...{ namespace, taskQueue: { name: INTENT_TASK_QUEUE }, identity: 'a worker that dies' },
    }),
  );
  if (taskToken.length === 0) throw new Error('there was no workflow to take');
}

async function intentOf(id: string): Promise<Intent> {
  const [[, flat]] = (await slot.redis.xrangeBuffer(STREAM, id, id)) as [[Buffer, Buffer[]]];
  const pairs = Array.from({ length: flat.length / 2 }, (_, index) => flat.slice(2 * index, 2 * index + 2));
  const parsed = parseIntent(id, pairs as [Buffer, Buffer][]);
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  return parsed.intent;
}

const settings = { dispatch: dispatch() === 'child' ? 'child' : 'on_failure', isUrgent: false } as const;

/** What a reader does that is killed together with its worker before anything is decided. */
async function startAsReader(id: string): Promise<void> {
  const intent = await intentOf(id);
  // Who reads tries again, too.
  await eventually(`${id} to be begun`, async () => {
    await startNotification(slot.client.workflow, intent, settings);
    return true;
  });
}

test('intent-D13 of two intents with one key the earlier wins, though its reader died before it was decided', async () => {
  const keys = Array.from({ length: PAIRS }, (_, index) => `key-${index}`);
  const earlier: string[] = [];
  for (const key of keys) earlier.push(await publish(key, 'user-1'));
  await Promise.all(earlier.map(startAsReader));
  await Promise.all(earlier.map(takeAndDie));
  const offset = earlier.at(-1)!;
  await savePosition(slot.redis, STREAM, { offset, entriesPassed: PAIRS, startedId: offset });
  const later: string[] = [];
  for (const key of keys) later.push(await publish(key, 'user-2'));

  await slot.startService();

  await eventually('all later ones to be refused for the earlier ones', async () => {
    const { rows } = await slot.db.query<{ id: string; with: string }>(
      'SELECT stream_entry_id AS id, conflicts_with AS with FROM notification.malformed_intents ORDER BY recorded_at',
    );
    const refused = new Map(rows.map((row) => [row.id, row.with]));
    const wrong = earlier.filter((id) => refused.has(id));
    if (wrong.length > 0) throw new Error(`${wrong.length} of ${PAIRS} earlier ones were refused`);
    return later.every((id, index) => refused.get(id) === earlier[index]);
  });
});

test('intent-D13 I52 the later of two with one key waits for the earlier that PostgreSQL has forgotten, until it is decided again', async () => {
  const { workflow } = slot.client;
  await slot.startService();
  const both = ['user-1', 'user-2'].map((user) =>
    accepted(turn({ idempotency_key: 'forgotten', recipient_user_ids_json: JSON.stringify([user]) })),
  );
  const now = Date.now();
  const [earlier, later] = both.map((intent, index) => ({
    ...intent,
    notificationId: `${now}-${index}`,
  })) as [Intent, Intent];
  await startNotification(workflow, { ...later, earlier: earlier.notificationId } as Intent, settings);
  await eventually('the later one to wait for it', async () => {
    const { rows } = await slot.db.query<{ reason: string }>(
      'SELECT reason FROM notification.waiting_intents WHERE notification_id = $1 AND attempt > 0',
      [later.notificationId],
    );
    return rows[0]?.reason.includes(`${earlier.notificationId} came earlier`);
  });
  await startNotification(workflow, earlier, settings);
  await eventually('the later one to be refused for it', async () => {
    const { rows } = await slot.db.query(
      'SELECT FROM notification.malformed_intents WHERE stream_entry_id = $1 AND conflicts_with = $2',
      [later.notificationId, earlier.notificationId],
    );
    return rows.length === 1;
  });
});

test('intent-D13 I52 a reader tells each intent of the earlier one with its key, also in slices', async () => {
  const begun: [string, string | undefined][][] = [];
  const inOrder = createKeyOrder(slot.db, [intentNamed('1-0', 'a')]);
  const begin = (...intents: Intent[]) =>
    inOrder(intents, async (told) => {
      begun.push(told.map(({ notificationId, earlier }) => [notificationId, earlier]));
    });
  await begin(intentNamed('2-0', 'a'));
  await begin(intentNamed('3-0', 'b'), intentNamed('3-1', 'c'));
  await begin(intentNamed('4-0', 'c'), intentNamed('4-1', 'a'), intentNamed('4-2', 'd'));
  // Read again.
  await begin(intentNamed('3-1', 'c'));
  expect(begun).toEqual([
    [['2-0', '1-0']],
    [
      ['3-0', undefined],
      ['3-1', undefined],
    ],
    [
      ['4-0', '3-1'],
      ['4-1', '2-0'],
      ['4-2', undefined],
    ],
    [['3-1', undefined]],
  ]);
});

const intentNamed = (notificationId: string, idempotencyKey: string): Intent => ({
  ...accepted(turn({ idempotency_key: idempotencyKey })),
  notificationId,
});
