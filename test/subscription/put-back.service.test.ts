/**
 * Rows that say of subscriptions what is true no longer: those of a PostgreSQL that was put back to an earlier state,
 * and those of a worker whose work another one undid late.
 */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { eventually } from '../harness.ts';
import { anotherLook, keepRows } from '../put-back.ts';
import { agentOfTests } from './agent.ts';

const agent = agentOfTests();
// Longer than a command of a worker is on its way.
beforeAll(() => agent.startActive({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' }));

const createActive = () => agent.createActive(2) as Promise<[string, string]>;

const liveIds = () =>
  agent.routers.ntf[0]!.subscriptions()
    .filter(({ status }) => !['END', 'DELETED'].includes(status))
    .map(({ subscriptionId }) => subscriptionId);

/** Waits for another subscription in the place of `formerId`, which the router has. @returns its id. */
const remade = (connId: string, formerId: string | null) =>
  eventually('a subscription that the router has', async () => {
    const { ntf_sub_id: id } = (await agent.record(connId))!;
    return id !== formerId && id !== null && liveIds().includes(id);
  });

const lookedAgain = () => anotherLook(agent.slot.redis, 'subscription', 'notification:subscription-events');

test('N4 I52 subscriptions that PostgreSQL has forgotten the end of are found immediately, and made again', async () => {
  const [kept, switched] = await createActive();
  const { ntf_sub_id: formerId } = (await agent.record(switched))!;
  await lookedAgain();
  const { putBack } = await keepRows(agent.slot.db);

  await agent.toggle([switched], false);
  await agent.gone(switched);
  await agent.toggle([switched], true);
  await agent.active([switched]);
  await agent.idle();
  await lookedAgain();
  await putBack();

  await remade(switched, formerId);
  await agent.idle();
  const unchanged = (await agent.record(kept))!;
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
  const held = holdAnswers();
  router.fail({ failure: held.failure, subject: op, times: 1 });
  await work();
  await held.arrived;
  await agent.worker('ntf-smp', router.address).terminate();
  await agent.sweep();
  await eventually('another worker to send it', async () => asked()[before + 1]?.answer !== undefined);
  return held.release;
}

test('N4 N13 credentials that a worker makes late, when another one has made others, cost no subscription', async () => {
  let connId = '';
  const arrive = await comeLate('NKEY', async () => {
    [connId = ''] = await agent.createMany(1);
  });
  await agent.active([connId]);
  const { ntf_sub_id: formerId } = (await agent.record(connId))!;
  expect(liveIds()).toContain(formerId);

  arrive();
  await remade(connId, formerId);
  expect(await agent.events()).toEqual([]);
});

test('N10 N13 credentials that a worker removes late, when another one has made new ones, cost no subscription', async () => {
  const [connId] = await createActive();
  const arrive = await comeLate('NDEL', () => agent.toggle([connId], false));
  await agent.gone(connId);
  await agent.toggle([connId], true);
  await agent.active([connId]);
  const { ntf_sub_id: formerId } = (await agent.record(connId))!;
  expect(liveIds()).toContain(formerId);

  arrive();
  await remade(connId, formerId);
  expect(await agent.events()).toEqual([]);
});
