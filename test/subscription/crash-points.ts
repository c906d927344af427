/** Subscriptions and their workers, and a process that dies after each step with which it changes something outside. */
import { REPLAY_UPDATE } from '../../workflows/subscription/contract.ts';
import type { CrashWalk } from '../crash-walk.ts';
import { createCrashWalk, isAtRest } from '../crash-walk.ts';
import type { SubscriptionAgent } from './agent.ts';
import { takeSubscriptionAgent } from './agent.ts';
import { agreement } from './agreement.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';

let agent: SubscriptionAgent;
let walk: CrashWalk;
beforeAll(async () => {
  agent = await takeSubscriptionAgent();
  const { address } = agent.routers.ntf[0]!;
  walk = createCrashWalk(agent.slot, {
    ...agent.env,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(address, 'ntf'),
    NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '30s',
    NOTIFICATION_RECONCILIATION_INTERVAL: '400ms',
  });
  await walk.survivor();
  await agent.activateToken();
}, 120_000);
afterAll(async () => {
  await walk.release();
  await agent.release();
});

const areAtRest = async (): Promise<boolean> => {
  const [smp, ntf] = [agent.routers.smp[0]!, agent.routers.ntf[0]!];
  const workers = [agent.worker('ntf-smp', smp.address), agent.worker('ntf-ntf', ntf.address)];
  return (await Promise.all(workers.map(isAtRest))).every(Boolean);
};

test('N1 N2 N13 a process that dies after any step of a subscription: records and routers agree in the end', async () => {
  let asked = 0;
  const put = async () => {
    asked += 1;
    // The test does not wait for an answer of a process that is to die.
    agent.create([{ userId: 1, server: agent.routers.smp[0]!.address }]).catch(() => undefined);
    const mostBefore = asked;
    return async () => {
      const records = await agent.records();
      const isCreated = records.every(({ status }) => status.startsWith('CREATED '));
      return records.length >= mostBefore && isCreated && areAtRest();
    };
  };
  const kills = {
    keyed: await walk.through('runKeys', put, 5),
    subscribed: await walk.through('runCreates', put, 5),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // An attempt, the router, what came of it.
  expect(kills.keyed).toBeGreaterThanOrEqual(3);
  expect(kills.subscribed).toBe(3);

  await walk.survivor();
  expect((await agreement(agent)).length).toBeGreaterThanOrEqual(asked);
  expect(await agent.events()).toEqual([]);
}, 600_000);

test('N4 N7 N13 a process that dies after any step of a check, or of old records: all is made again', async () => {
  await walk.survivor();
  const ids = await agent.createMany(20);
  await agent.active(ids, 120_000);
  const before = (await agent.records()).length;
  /** As if it had come to this by itself. */
  const put = (action: 'C' | 'D' | 'R') => async () => {
    const connId = ids.shift()!;
    const { ntf_sub_id: formerId } = (await agent.record(connId))!;
    agent.routers.ntf[0]!.setSubscriptionStatus(formerId!, 'END');
    await agent.rows(
      'UPDATE subscriptions.ntf_subscriptions SET ntf_action = $2, action_ts = now() WHERE conn_id = $1',
      [connId, action],
    );
    agent.update(REPLAY_UPDATE).catch(() => undefined);
    return async () => {
      const record = await agent.record(connId);
      const isNew = record?.status.startsWith('CREATED ') === true && record.ntf_sub_id !== formerId;
      return isNew && areAtRest();
    };
  };
  const kills = {
    checked: await walk.through('runChecks', put('C'), 5),
    deleted: await walk.through('runLegacyDeletes', put('D'), 5),
    rotated: await walk.through('runLegacyRotations', put('R'), 4),
    created: await walk.through('sendCreate', put('R'), 2),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // An attempt, the router, what came of it; and a worker that goes on, unless a connection is created instead. Those
  // of old records go to the router one by one, with what the dead left.
  expect(kills).toMatchObject({ checked: 4, created: 1 });
  expect(kills.deleted).toBeGreaterThanOrEqual(4);
  expect(kills.rotated).toBeGreaterThanOrEqual(3);

  await walk.survivor();
  expect(await agreement(agent)).toHaveLength(before);
  expect(await agent.events()).toEqual([]);
}, 600_000);
