/** Subscriptions, and a process that dies after each step with which it changes something outside. */
import type { CrashWalk } from './crash-walk.ts';
import { createCrashWalk } from './crash-walk.ts';
import { eventually } from './harness.ts';
import type { SubscriptionAgent } from './subscription-agent.ts';
import { takeSubscriptionAgent } from './subscription-agent.ts';

let agent: SubscriptionAgent;
let walk: CrashWalk;
beforeAll(async () => {
  // An older router makes queues without a notifier, so that the key is a step of its own.
  agent = await takeSubscriptionAgent({ smpVersion: 16 });
});
afterAll(async () => {
  await walk.release();
  await agent.release();
});

test('N1 N2 N13 a process that dies after any step of a subscription: records and routers agree in the end', async () => {
  const [smp, ntf] = [agent.routers.smp[0]!, agent.routers.ntf[0]!];
  const { address } = ntf;
  walk = createCrashWalk(agent.slot, {
    ...agent.env,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: `${address.host}:${address.port}#${address.keyHash}`,
    NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '30s',
    NOTIFICATION_SUBSCRIPTION_SWEEP_INTERVAL: '2s',
  });
  await walk.survivor();
  await agent.activateToken();

  const wanted = () =>
    agent.rows<{
      conn_id: string;
      status: string | null;
      ntf_sub_id: string | null;
      smp_ntf_id: string | null;
    }>(
      `SELECT connection.conn_id, status, ntf_sub_id, smp_ntf_id
         FROM subscriptions.connections AS connection
         LEFT JOIN subscriptions.ntf_subscriptions USING (agent_id, conn_id)
        WHERE NOT is_deleted`,
    );
  const allCreated = async () => (await wanted()).every(({ status }) => status?.startsWith('CREATED '));
  let asked = 0;
  const put = async () => {
    asked += 1;
    // Nobody waits for an answer of a process that is to die.
    agent.create([{ userId: 1, server: smp.address }]).catch(() => undefined);
    const mostBefore = asked;
    return async () => (await wanted()).length >= mostBefore && (await allCreated());
  };
  const kills = {
    made: await walk.through('createConnections', put, 4),
    keyed: await walk.through('runKeys', put, 5),
    subscribed: await walk.through('runCreates', put, 5),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  expect(kills.made).toBeGreaterThanOrEqual(1);
  expect(kills.keyed).toBeGreaterThanOrEqual(1);
  expect(kills.subscribed).toBeGreaterThanOrEqual(1);

  await walk.survivor();
  await eventually(
    'records and routers to agree',
    async () => {
      const rows = await wanted();
      const live = ntf.subscriptions().filter(({ status }) => status === 'ACTIVE');
      const notifiers = smp.queues().flatMap(({ notifier }) => (notifier ? [notifier.notifierId] : []));
      expect(rows.length).toBeGreaterThanOrEqual(asked);
      expect(rows.filter(({ status }) => !status?.startsWith('CREATED '))).toEqual([]);
      expect(live.map(({ subscriptionId }) => subscriptionId).sort()).toEqual(
        rows.map((row) => row.ntf_sub_id).sort(),
      );
      for (const row of rows) expect(notifiers).toContain(row.smp_ntf_id);
      return true;
    },
    120_000,
  );
}, 600_000);
