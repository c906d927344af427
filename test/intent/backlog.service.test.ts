/** A backlog that waits in its rows, and how it is begun. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { allPublished, append, deliveriesTo, outboundIds } from '../service-process.ts';
import { entryOf, turn } from './entries.ts';

/** More than are begun before the first of them are accepted. */
const INTENTS = 200;
const MOST_UNDER_WAY = 100;
/** Lookups are held for longer than by default. */
const ENV = { NOTIFICATION_USER_SERVICE_TIMEOUT: '1m' };
const LIMIT_MS = 120_000;

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

const turnFor = (n: number) =>
  turn({ idempotency_key: `of-a-backlog-${n}`, recipient_user_ids_json: `["user-${1 + n}"]` });

test.each(['child', 'on_failure'])(
  'I88 I23 of a backlog in mode %s a hundred are begun, the rest waits in its rows',
  async (dispatch) => {
    const lookups = holdAnswers();
    slot.userService.fail({ failure: lookups.failure });
    const ids = await append(
      slot.redis,
      Array.from({ length: INTENTS }, (_, n) => turnFor(n)),
    );
    await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: dispatch });
    const begun = async () => {
      const { rowCount } = await slot.db.query(
        'SELECT FROM notification.intents WHERE dispatched_at IS NOT NULL',
      );
      return rowCount ?? 0;
    };
    await eventually('as many as may be under way', async () => (await begun()) >= MOST_UNDER_WAY);
    await eventually('more lookups', async () => slot.userService.requests.length > 20);
    // Those that were being started when the others were counted.
    expect(await begun()).toBeLessThan(MOST_UNDER_WAY + 50);
    lookups.release();
    await allPublished(slot, 2 * INTENTS, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(
      ids.flatMap((id, n) => deliveriesTo(`user-${1 + n}`, [id])).sort(),
    );
    const eager = await Promise.all(ids.map(wasHandedBack));
    // On a busy machine a worker asks late; without a limit hardly any would be handed back.
    expect(eager.filter(Boolean).length).toBeGreaterThan(0.25 * INTENTS);
  },
  2 * LIMIT_MS,
);

test('I88 a backlog of one producer does not hold up another one', async () => {
  const lookups = holdAnswers();
  const flood = Array.from({ length: INTENTS }, (_, n) => turnFor(n));
  for (let n = 0; n < INTENTS; n += 1)
    slot.userService.fail({ userId: `user-${1 + n}`, failure: lookups.failure });
  const other = { idempotency_key: 'of-another', recipient_user_ids_json: '["user-1000"]' };
  const ids = await append(slot.redis, [...flood, entryOf('lobby.membership.approved', other)]);
  await slot.startService({ ...ENV, NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
  await allPublished(slot, 2, LIMIT_MS);
  const { rows } = await slot.db.query('SELECT notification_id AS id FROM notification.records');
  expect(rows).toEqual([{ id: ids.at(-1) }]);
  lookups.release();
  await allPublished(slot, 2 * ids.length, LIMIT_MS);
});

/** Whether the process that asked for the workflow got its first task with the answer. */
async function wasHandedBack(id: string): Promise<boolean> {
  const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).fetchHistory();
  return events?.[0]?.workflowExecutionStartedEventAttributes?.eagerExecutionAccepted === true;
}
