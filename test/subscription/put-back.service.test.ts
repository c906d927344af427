/** A PostgreSQL that was put back to an earlier state: its rows name subscriptions that routers ended since. */
import { eventually } from '../harness.ts';
import { keepRows } from '../put-back.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';

const BEATS = `notification:stream_beats:${Buffer.from('notification:subscription-events').toString('base64url')}`;

let agent: SubscriptionAgent;
beforeAll(async () => {
  agent = await takeSubscriptionAgent();
  await agent.start();
  await agent.activateToken();
});
afterAll(() => agent.release());

const liveIds = () =>
  agent.routers.ntf[0]!.subscriptions()
    .filter(({ status }) => !['END', 'DELETED'].includes(status))
    .map(({ subscriptionId }) => subscriptionId);

const lookedAgain = async () => {
  const before = await agent.slot.redis.get(BEATS);
  await eventually('a look more', async () => (await agent.slot.redis.get(BEATS)) !== before);
};

test('N4 I52 subscriptions that PostgreSQL has forgotten the end of are found at once, and made anew', async () => {
  const [kept, switched] = await agent.createMany(2);
  await agent.active([kept!, switched!]);
  await agent.idle();
  const before = (await agent.record(switched!))!;
  await lookedAgain();
  const { putBack } = await keepRows(agent.slot.db);

  await agent.update('toggleConnections', { connIds: [switched], enable: false });
  await eventually('its record to go', async () => (await agent.record(switched!)) === undefined);
  await agent.update('toggleConnections', { connIds: [switched], enable: true });
  await agent.active([switched!]);
  await agent.idle();
  await lookedAgain();
  await putBack();

  await eventually('a subscription that the router has', async () => {
    const row = (await agent.record(switched!))!;
    return row.ntf_sub_id !== before.ntf_sub_id && liveIds().includes(row.ntf_sub_id ?? '');
  });
  await agent.idle();
  const unchanged = (await agent.record(kept!))!;
  expect(liveIds()).toContain(unchanged.ntf_sub_id);
  expect(agent.slot.logs).toContainEqual(
    expect.objectContaining({
      msg: 'PostgreSQL fell back to an earlier state, all subscriptions are checked',
    }),
  );
  expect(await agent.events()).toEqual([]);
});
