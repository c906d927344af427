/** Two intents with one key, of which one reader has started the earlier, and the next one comes upon the later. */
import { newGameTurnReady, publishIntent } from '../../client/notificationintent.ts';
import { parseIntent } from '../../api/intent/entry.ts';
import { startNotification } from '../../activities/intent/start.ts';
import { savePosition } from '../../activities/intent/stream-position.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { DISPATCH, eventually, takeSlot } from '../harness.ts';
import { namespaceOf } from '../slots.ts';

const STREAM = 'notification:intents';
const PAIRS = 3;

let slot: Slot;
beforeAll(async () => {
  slot = await takeSlot();
});
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

/** What a reader does that is killed together with its worker before anything is decided. */
async function startAsReader(id: string): Promise<void> {
  const [[, flat]] = (await slot.redis.xrangeBuffer(STREAM, id, id)) as [[Buffer, Buffer[]]];
  const pairs = Array.from({ length: flat.length / 2 }, (_, index) => flat.slice(2 * index, 2 * index + 2));
  const parsed = parseIntent(id, pairs as [Buffer, Buffer][]);
  if (!parsed.ok) throw new Error(parsed.malformed.failureMessage);
  const settings = { dispatch: DISPATCH === 'child' ? 'child' : 'on_failure', isUrgent: false } as const;
  await startNotification(slot.client.workflow, parsed.intent, settings);
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
