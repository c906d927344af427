/** Slices, and a process that dies after each step of one: no intent is lost, and each route is handed off once. */
import { startSlice } from '../../activities/intent/start.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { sliceWorkflowId } from '../../workflows/intent/slice-contract.ts';
import type { CrashWalk } from '../crash-walk.ts';
import { createCrashWalk } from '../crash-walk.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { GATEWAY, allPublished, deliveriesTo, nothingLeftRunning, outboundIds } from '../service-process.ts';
import { accepted, turn } from './entries.ts';

const LIMIT_MS = 240_000;
const TEST_LIMIT_MS = 600_000;
const OF_A_SLICE = 2;

let slot: Slot;
let walk: CrashWalk | undefined;
let ids: string[];
beforeEach(async () => {
  slot = await takeSlot();
  walk = undefined;
  ids = [];
});
afterEach(async () => {
  await walk?.release();
  await slot.release();
});

const entryOfTurn = (key: string) => turn({ idempotency_key: key, recipient_user_ids_json: '["user-1"]' });

/** Past the reader: whoever took it from the dead would make every step wait for its heartbeat. */
async function putSlice(): Promise<() => Promise<boolean>> {
  const now = Date.now();
  const intents = Array.from({ length: OF_A_SLICE }, (_, index): Intent => ({
    ...accepted(entryOfTurn(`key-${now}-${index}`)),
    notificationId: `${now}-${index}`,
  }));
  ids.push(...intents.map(({ notificationId }) => notificationId));
  await startSlice(slot.client.workflow, intents);
  const handle = slot.client.workflow.getHandle(sliceWorkflowId(`${now}-0`));
  return async () => (await handle.describe()).status.name === 'COMPLETED';
}

async function expectEachOnce(): Promise<void> {
  await allPublished(slot, 2 * ids.length, LIMIT_MS);
  await nothingLeftRunning(slot, LIMIT_MS);
  expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
  const { rows } = await slot.db.query<{ id: string }>(
    'SELECT notification_id AS id FROM notification.records',
  );
  expect(rows.map(({ id }) => id).sort()).toEqual([...ids].sort());
}

test(
  'I56 I3 I23 a process that dies after any step of a slice: the next one goes on, and each route is handed off once',
  async () => {
    walk = createCrashWalk(slot);
    // The records; the first hand-offs, their rows, and giving leases back.
    const delivered = await walk.through('deliverSlice', putSlice, 12);
    console.info(`processes that died: ${delivered}`);
    expect(delivered).toBeGreaterThanOrEqual(6);
    await walk.survivor();
    await expectEachOnce();
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I3 I12 a process that dies after any step of a slice that waits: the next one goes on, and each route is handed off once',
  async () => {
    walk = createCrashWalk(slot);
    const putWaiting = () => {
      // The first try, and some of those after it.
      slot.userService.fail({ failure: { kind: 'status', status: 503 }, times: 8 });
      return putSlice();
    };
    // What waits; the records, hand-offs, rows and leases as of any slice.
    const died = await walk.through('deliverWaitingSlice', putWaiting, 14);
    console.info(`processes that died: ${died}`);
    expect(died).toBeGreaterThanOrEqual(6);
    await walk.survivor();
    await expectEachOnce();
  },
  TEST_LIMIT_MS,
);

test(
  'I56 I3 I21 a process that dies while it hands the intents of a slice on: each has one workflow, and its budget exactly',
  async () => {
    walk = createCrashWalk(slot, {
      NOTIFICATION_ROUTE_BACKOFF_MIN: '100ms',
      NOTIFICATION_ROUTE_BACKOFF_MAX: '200ms',
      NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS: '2',
    });
    await slot.redis.set(GATEWAY, 'not a stream');
    const died = await walk.through('beginNotifications', putSlice, 5);
    console.info(`processes that died: ${died}`);
    expect(died).toBeGreaterThanOrEqual(2);
    await walk.survivor();
    await eventually(
      'all pushes to be dead',
      async () => {
        const { rows } = await slot.db.query(
          "SELECT FROM notification.routes WHERE channel = 'push' AND status = 'dead_letter' AND attempt_count = 2",
        );
        return rows.length === ids.length;
      },
      LIMIT_MS,
    );
    await nothingLeftRunning(slot, LIMIT_MS);
    await slot.redis.del(GATEWAY);
    expect(await outboundIds(slot.redis)).toEqual(
      deliveriesTo('user-1', ids).filter((id) => id.includes('/email:')),
    );
  },
  TEST_LIMIT_MS,
);
