/**
 * Rows that say of subscriptions what is true no longer: those of a PostgreSQL that was put back to an earlier state,
 * and those of a worker whose work another one undid late.
 */
import { eventually } from '../harness.ts';
import { keepRows } from '../put-back.ts';
import { agentOfTests } from './agent.ts';

const BEATS = `notification:stream_beats:subscription:${Buffer.from('notification:subscription-events').toString('base64url')}`;

const agent = agentOfTests();
beforeAll(async () => {
  // Longer than a command of a worker is on its way.
  await agent.start({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' });
  await agent.activateToken();
});

const liveIds = () =>
  agent.routers.ntf[0]!.subscriptions()
    .filter(({ status }) => !['END', 'DELETED'].includes(status))
    .map(({ subscriptionId }) => subscriptionId);

const lookedAgain = async () => {
  const before = await agent.slot.redis.get(BEATS);
  await eventually('a look more', async () => (await agent.slot.redis.get(BEATS)) !== before);
};

test('N4 I52 subscriptions that PostgreSQL has forgotten the end of are found immediately, and made again', async () => {
  const [kept, switched] = await agent.createMany(2);
  await agent.active([kept!, switched!]);
  await agent.idle();
  const before = (await agent.record(switched!))!;
  await lookedAgain();
  const { putBack } = await keepRows(agent.slot.db);

  await agent.toggle([switched!], false);
  await eventually('its record to go', async () => (await agent.record(switched!)) === undefined);
  await agent.toggle([switched!], true);
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

/**
 * Has a command of a worker be on its way while another worker sends it once more.
 *
 * @returns has it come to the router.
 */
async function comeLate(op: string, work: () => Promise<unknown>): Promise<() => void> {
  const router = agent.routers.smp[0]!;
  const asked = () => router.calls.filter((call) => call.op === op);
  const before = asked().length;
  const { promise: until, resolve: arrive } = Promise.withResolvers<void>();
  router.fail({ failure: { kind: 'hold', until }, subject: op, times: 1 });
  await work();
  await eventually('the command to be under way', async () => asked().length > before);
  await agent.worker('ntf-smp', router.address).terminate();
  await agent.sweep();
  await eventually('another worker to send it', async () => asked()[before + 1]?.answer !== undefined);
  return arrive;
}

test('N4 N13 credentials that a worker makes late, when another one has made others, cost no subscription', async () => {
  let connId: string | undefined;
  const arrive = await comeLate('NKEY', async () => {
    [connId] = await agent.createMany(1);
  });
  const before = (await agent.active([connId!])).find((row) => row.conn_id === connId)!;
  expect(liveIds()).toContain(before.ntf_sub_id);

  arrive();
  await eventually('a subscription that lives, with other credentials', async () => {
    const row = (await agent.record(connId!))!;
    return row.ntf_sub_id !== before.ntf_sub_id && liveIds().includes(row.ntf_sub_id ?? '');
  });
  expect(await agent.events()).toEqual([]);
});

test('N10 N13 credentials that a worker removes late, when another one has made new ones, cost no subscription', async () => {
  const [connId] = await agent.createMany(1);
  await agent.active([connId!]);
  const arrive = await comeLate('NDEL', () => agent.toggle([connId!], false));
  await eventually('its record to go', async () => (await agent.record(connId!)) === undefined);
  await agent.toggle([connId!], true);
  const [before] = (await agent.active([connId!])).filter((row) => row.conn_id === connId);
  expect(liveIds()).toContain(before!.ntf_sub_id);

  arrive();
  await eventually('a subscription that lives, with other credentials', async () => {
    const row = (await agent.record(connId!))!;
    return row.ntf_sub_id !== before!.ntf_sub_id && liveIds().includes(row.ntf_sub_id ?? '');
  });
  expect(await agent.events()).toEqual([]);
});
