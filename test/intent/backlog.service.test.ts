/** A backlog that waits in its stream, and how a process begins it. */
import { DISPATCH_MODES, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { takeSlot } from '../harness.ts';
import { allPublished, append, deliveriesTo, outboundIds } from '../service-process.ts';
import { entryOf, turn } from './entries.ts';

const INTENTS = 200;
const LIMIT_MS = 120_000;

let slot: Slot;
beforeEach(async () => {
  slot = await takeSlot();
});
afterEach(() => slot.release());

test.each(DISPATCH_MODES)(
  'I88 I23 of a backlog in mode %s no more is begun than the process works on: Temporal hands it back without a queue',
  async (dispatch) => {
    const ids = await append(
      slot.redis,
      Array.from({ length: INTENTS }, (_, n) =>
        turn({ idempotency_key: `of-a-backlog-${n}`, recipient_user_ids_json: '["user-1"]' }),
      ),
    );
    await slot.startService({ NOTIFICATION_ROUTE_DISPATCH: dispatch });
    await allPublished(slot, 2 * INTENTS, LIMIT_MS);
    expect(await outboundIds(slot.redis)).toEqual(deliveriesTo('user-1', ids));
    const eager = await Promise.all(ids.map(wasHandedBack));
    // On a busy machine a worker asks late; without a limit hardly any would be handed back.
    expect(eager.filter(Boolean).length).toBeGreaterThan(0.25 * INTENTS);
  },
  2 * LIMIT_MS,
);

test('I88 a backlog of one producer does not hold up another one', async () => {
  const key = (n: number) => ({ idempotency_key: `${n}`, recipient_user_ids_json: '["user-1"]' });
  const flood = Array.from({ length: 2 * INTENTS }, (_, n) => turn(key(n)));
  const ids = await append(slot.redis, [...flood, entryOf('lobby.membership.approved', key(0))]);
  await slot.startService({ NOTIFICATION_ROUTE_DISPATCH: 'on_failure' });
  await allPublished(slot, 2 * ids.length, LIMIT_MS);
  const { rows } = await slot.db.query<{ earlier: number }>(
    `SELECT count(*)::int AS earlier FROM notification.records AS other
      WHERE accepted_at < (SELECT accepted_at FROM notification.records WHERE notification_id = $1)`,
    [ids.at(-1)],
  );
  expect(rows[0]!.earlier).toBeLessThan(INTENTS);
});

/** Whether the process that asked for the workflow got its first task with the answer. */
async function wasHandedBack(id: string): Promise<boolean> {
  const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(id)).fetchHistory();
  return events?.[0]?.workflowExecutionStartedEventAttributes?.eagerExecutionAccepted === true;
}
