/** A process that dies, or loses PostgreSQL, between a router's doing and its own writing down. */
import { createFleet } from '../service-process.ts';
import { eventually } from '../harness.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';

let agent: SubscriptionAgent;
let fleet: ReturnType<typeof createFleet>;
let env: Record<string, string>;
beforeAll(async () => {
  agent = await takeSubscriptionAgent();
  fleet = createFleet(agent.slot);
  const [{ address }] = agent.routers.ntf as [(typeof agent.routers.ntf)[number]];
  env = {
    ...agent.env,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(address, 'ntf'),
    NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '30s',
    // It helps no case in these tests.
    NOTIFICATION_RECONCILIATION_INTERVAL: '12m',
  };
});
afterEach(async () => {
  await fleet.killAll();
  for (const router of [...agent.routers.smp, ...agent.routers.ntf]) router.heal();
});
afterAll(() => agent.release());

const smp = () => agent.routers.smp[0]!;
const ntf = () => agent.routers.ntf[0]!;
const calls = (op: string) => [...smp().calls, ...ntf().calls].filter((call) => call.op === op);

/** Records, queues and both routers have the same notifier and subscription for each of these. */
async function expectAgreement(connIds: readonly string[]): Promise<void> {
  await eventually('records and routers to agree', async () => {
    const live = ntf()
      .subscriptions()
      .filter(({ status }) => status === 'ACTIVE');
    expect(live).toHaveLength((await agent.records()).length);
    for (const connId of connIds) {
      const row = (await agent.record(connId))!;
      const [queue] = await agent.rows<{ rcv_id: string; ntf_id: string }>(
        'SELECT rcv_id, ntf_id FROM subscriptions.rcv_queues WHERE conn_id = $1',
        [connId],
      );
      const stored = smp()
        .queues()
        .find(({ recipientId }) => recipientId === queue!.rcv_id);
      expect([queue!.ntf_id, stored?.notifier?.notifierId]).toEqual([row.smp_ntf_id, row.smp_ntf_id]);
      expect(live.find(({ subscriptionId }) => subscriptionId === row.ntf_sub_id)?.notifierId).toBe(
        row.smp_ntf_id,
      );
    }
    return true;
  });
}

test('N1 N13 killed after the router has made a key: the next process makes another one, and that one holds', async () => {
  const service = await fleet.start(env);
  await agent.activateToken();
  // The router has done it, and its answer does not get through.
  smp().fail({ failure: { kind: 'silence', isExecuted: true }, subject: 'NKEY', times: 1 });
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await eventually('the key to be made', async () => calls('NKEY').length === 1);
  await service.end('SIGKILL');
  expect(await agent.record(connId!)).toMatchObject({ status: 'NEW', smp_action: 'K' });
  await fleet.start(env);
  await agent.active([connId!], 90_000);
  expect(calls('NKEY')).toHaveLength(2);
  await expectAgreement([connId!]);
}, 180_000);

test('N1 N13 killed after the router has subscribed: asking again gives the same subscription', async () => {
  const service = await fleet.start(env);
  ntf().fail({ failure: { kind: 'silence', isExecuted: true }, subject: 'SNEW', times: 1 });
  const before = ntf().subscriptions().length;
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await eventually('the subscription there', async () => ntf().subscriptions().length > before);
  await service.end('SIGKILL');
  expect(await agent.record(connId!)).toMatchObject({ status: 'KEY', ntf_sub_id: null });
  await fleet.start(env);
  await agent.active([connId!], 90_000);
  expect(ntf().subscriptions()).toHaveLength(before + 1);
  await expectAgreement([connId!]);
}, 180_000);

test('N13 stopped in the middle of a call: it is not waited for, and what it was about goes on elsewhere immediately', async () => {
  const service = await fleet.start({ ...env, NOTIFICATION_SHUTDOWN_TIMEOUT: '4s' });
  smp().fail({ failure: { kind: 'silence' }, subject: 'NKEY', times: 1 });
  const keys = calls('NKEY').length;
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await eventually('the call', async () => calls('NKEY').length > keys);
  const stoppedAt = Date.now();
  expect(await service.end('SIGTERM')).toBe(0);
  expect(Date.now() - stoppedAt).toBeLessThan(15_000);
  await fleet.start(env);
  await agent.active([connId!], 60_000);
  expect(await agent.events()).toEqual([]);
  await expectAgreement([connId!]);
}, 180_000);

test('N2 N13 what a router answers without PostgreSQL is kept until it is back, and no credentials are made twice', async () => {
  await fleet.start(env);
  const { promise: until, resolve: answer } = Promise.withResolvers<void>();
  smp().fail({ failure: { kind: 'hold', until }, subject: 'NKEY', times: 1 });
  const keys = calls('NKEY').length;
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await eventually('the call', async () => calls('NKEY').length > keys);
  const database = await agent.slot.cutOffDatabase();
  answer();
  await eventually('the answer that cannot be saved', async () => calls('NKEY')[keys]!.answer !== '-');
  await database.restore();
  await agent.active([connId!], 90_000);
  expect(calls('NKEY')).toHaveLength(keys + 1);
  await expectAgreement([connId!]);
}, 180_000);
