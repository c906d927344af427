/** Checks over time: nothing before it is due, everything then, and histories that stay small over a month. */
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';

/** A day of the tests, ms. */
const DAY = 500;
const DAYS = 30;
/** The first check: a subscription is to be seen before it, ms. */
const FIRST = 5_000;
/** What a slow machine may add to the wait for a check, which never comes early, ms. */
const SLACK = 60_000;

let agent: SubscriptionAgent;
beforeAll(async () => {
  agent = await takeSubscriptionAgent({ smp: 2 });
});
afterAll(() => agent.release());

const ntf = () => agent.routers.ntf[0]!;
const checksOf = (subscriptionId: string) =>
  ntf()
    .calls.filter(({ op, entity }) => op === 'SCHK' && entity === subscriptionId)
    .map(({ at }) => at);

describe('with checks of the usual length', () => {
  test('N3 N17 scenario 28: a check in an hour is left alone; a creation before it is served immediately', async () => {
    const service = await agent.start({ NOTIFICATION_SUBSCRIPTION_FIRST_CHECK: '1h' });
    await agent.activateToken();
    const [first] = await agent.createMany(1);
    const [row] = await agent.active([first!]);
    await agent.idle();
    const handle = agent.worker('ntf-ntf', ntf().address);
    const waiting = await eventually('the worker to wait', async () => {
      const state = await agent.workerState('ntf-ntf', ntf().address);
      return state.doing === 'waiting' && state;
    });
    expect(waiting.nextDueMs).toBe(row!.action_ms);
    const { historyLength } = await handle.describe();
    const calls = ntf().calls.length;

    const [second] = await agent.createMany(1);
    await agent.active([first!, second!]);
    await agent.idle();
    expect(
      ntf()
        .calls.slice(calls)
        .map(({ op }) => op),
    ).toEqual(['SNEW']);

    // A mixed batch: what is due now, and a check that is not.
    await agent.rows(
      `UPDATE subscriptions.ntf_subscriptions SET ntf_action = 'N', ntf_sub_id = NULL, status = 'KEY', action_ts = now()
        WHERE conn_id = $1`,
      [second],
    );
    await handle.signal('work');
    await agent.active([first!, second!]);
    expect(
      ntf()
        .calls.slice(calls)
        .map(({ op }) => op),
    ).toEqual(['SNEW', 'SNEW']);
    await eventually('the worker to wait again', async () => {
      const state = await agent.workerState('ntf-ntf', ntf().address);
      return state.doing === 'waiting' && state.nextDueMs === row!.action_ms;
    });
    // It does not look while it waits.
    expect((await handle.describe()).historyLength - historyLength).toBeLessThan(100);

    // Its time comes.
    await agent.rows('UPDATE subscriptions.ntf_subscriptions SET action_ts = now() WHERE conn_id = $1', [
      first,
    ]);
    await handle.signal('work');
    await eventually('the check', async () => checksOf(row!.ntf_sub_id!).length === 1);
    expect(
      ntf()
        .calls.slice(calls)
        .map(({ op }) => op),
    ).toEqual(['SNEW', 'SNEW', 'SCHK']);
    await agent.update('deleteConnections', { connIds: [first, second] });
    await agent.idle();
    await service.stop();
  });
});

test('N3 N4 thirty days: the first check when it is due, the others three days apart, and histories stay small', async () => {
  await agent.start({
    NOTIFICATION_SUBSCRIPTION_FIRST_CHECK: `${FIRST}ms`,
    NOTIFICATION_SUBSCRIPTION_CHECK_INTERVAL: `${3 * DAY}ms`,
  });
  // Spread over the days, so that the worker has many a wait.
  const firstDue = new Map<string, number>();
  for (let index = 0; index < 6; index += 1) {
    const connIds = await agent.createMany(1);
    const rows = await agent.active(connIds);
    const row = rows.find(({ conn_id }) => conn_id === connIds[0])!;
    // On a busy machine its first check may have come already.
    if (row.status === 'CREATED NEW') firstDue.set(row.ntf_sub_id!, row.action_ms!);
  }
  expect(firstDue.size).toBeGreaterThan(0);
  await eventually('the checks of thirty days', async () =>
    [...firstDue.keys()].every((id) => checksOf(id).length > DAYS / 3),
  );

  for (const [id, dueMs] of firstDue) {
    const times = checksOf(id);
    const gaps = times.slice(1).map((at, index) => at - times[index]!);
    // Each is due an interval after the one before it began, so none can come before its day, and none too many.
    expect(times.filter((at, index) => at < dueMs + index * 3 * DAY)).toEqual([]);
    expect(times[0]! - dueMs).toBeLessThanOrEqual(SLACK);
    expect(gaps.every((gap) => gap <= 3 * DAY + SLACK)).toBe(true);
  }
  const counted = ntf().calls.filter(({ op }) => op === 'SCHK').length;
  const lengths: number[] = [];
  for await (const { workflowId, runId } of agent.slot.client.workflow.list()) {
    const { historyLength } = await agent.slot.client.workflow.getHandle(workflowId, runId).describe();
    lengths.push(historyLength);
  }
  expect(Math.max(...lengths)).toBeLessThan(430);
  expect(await agent.events()).toEqual([]);
  expect((await agent.records()).every(({ status }) => status === 'CREATED ACTIVE')).toBe(true);
  console.info(
    `${DAYS} days: ${counted} checks of ${firstDue.size}; longest history ${Math.max(...lengths)} events`,
  );
});
