/** Traces and the ids of their spans in the logs. */
import { newGameTurnReady, publishIntent } from '../client/notificationintent.ts';
import type { Slot } from './harness.ts';
import { eventually, takeSlot } from './harness.ts';

let slot: Slot;
let printed: jest.SpyInstance;

beforeAll(async () => {
  // The console exporter prints each span; here it is enough that it does.
  printed = jest.spyOn(console, 'dir').mockImplementation(() => undefined);
  slot = await takeSlot();
  await slot.startService({ NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED: 'true' });
});
afterAll(async () => {
  await slot.release();
  printed.mockRestore();
});

const publish = (key: string) =>
  publishIntent(
    slot.redis,
    newGameTurnReady({
      idempotencyKey: key,
      recipientUserIds: ['user-1'],
      payload: { game_id: 'g', game_name: 'G', turn_number: 1 },
    }),
  );

/** The trace ids with which a notification's acceptance and both publications were logged. */
const traceIdsOf = (id: string) =>
  eventually(`three log lines of ${id}`, async () => {
    const lines = slot.logs.filter(
      (line) =>
        line['notification_id'] === id &&
        ['accepted', 'published'].includes(String(line['outcome'] ?? line['result'])),
    );
    return lines.length === 3 && lines.map((line) => line['otel_trace_id']);
  });

test('I34 one trace reaches from the start of a notification to each publication, another notification has its own', async () => {
  const [first, second] = [await publish('one'), await publish('two')];
  const [ofFirst, ofSecond] = [await traceIdsOf(first), await traceIdsOf(second)];
  expect(ofFirst[0]).toMatch(/^[0-9a-f]{32}$/);
  expect(new Set(ofFirst).size).toBe(1);
  expect(new Set(ofSecond).size).toBe(1);
  expect(ofFirst[0]).not.toBe(ofSecond[0]);
});

test('I34 the spans name the workflow and the activity they belong to', async () => {
  const id = await publish('three');
  await traceIdsOf(id);
  const names = await eventually('exported spans', async () => {
    const spans = printed.mock.calls.map(([span]) => span as { name: string });
    const found = new Set(spans.map(({ name }) => name));
    return found.has('RunActivity:publishRoute') && found;
  });
  expect([...names]).toEqual(
    expect.arrayContaining(['StartWorkflow:notification', 'RunActivity:acceptIntent']),
  );
});
