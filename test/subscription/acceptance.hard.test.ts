/**
 * Many connections over many routers: all active after one start, and again after routers and the service were stopped
 * and killed at random, with nothing doubled and nothing left over. TEST_CONNECTIONS sets how many.
 */
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { fleetOfTests } from '../service-process.ts';
import { AGENT, agentOfTests } from './agent.ts';
import { LIVE, agreement } from './agreement.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';

const CONNECTIONS = Number(process.env['TEST_CONNECTIONS'] ?? 200);
const AGENTS = [AGENT, 'second'] as const;
/** Long enough for a machine that does other things as well, ms. */
const PATIENCE = 60_000 + 300 * CONNECTIONS;

const agent = agentOfTests({ smp: 5, ntf: 2 });
const fleet = fleetOfTests(() => agent.slot);

const { random } = Math;
const oneOf = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;

/** What a process of the service needs to know. */
function environment(): Record<string, string> {
  const servers = agent.routers.ntf.map(({ address }) => routerAddressText(address, 'ntf'));
  return {
    ...agent.env,
    NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: servers.join(),
    NOTIFICATION_RECONCILIATION_INTERVAL: '400ms',
    NOTIFICATION_SHUTDOWN_TIMEOUT: '5s',
  };
}

const largestBatch = (): number =>
  Math.max(
    ...[...agent.routers.smp, ...agent.routers.ntf].flatMap(({ batches }) => batches.map(({ size }) => size)),
  );

/** Ids of the workers that run. */
async function runningWorkers(): Promise<string[]> {
  const ids: string[] = [];
  const running = agent.slot.client.workflow.list({
    query: "WorkflowType = 'subscriptionWorker' AND ExecutionStatus = 'Running'",
  });
  for await (const { workflowId } of running) ids.push(workflowId);
  return ids;
}

const liveOn = (router: NotificationRouterStandIn) =>
  router.subscriptions().filter(({ status }) => LIVE.includes(status));

const agreed = async () => expect(await agreement(agent, PATIENCE)).toHaveLength(CONNECTIONS);

test(`N1 N13 ${CONNECTIONS} connections over 5 messaging and 2 notification routers are active after one start`, async () => {
  // The gate is closed while they are made.
  const first = await agent.start();
  await agent.startAgent(AGENTS[1]);
  const half = CONNECTIONS / 2;
  for (const agentId of AGENTS) await agent.createMany(half, agentId);
  expect(await agent.records()).toEqual([]);
  await first.stop();
  for (const [router, agentId] of AGENTS.entries()) await agent.activateToken(router, agentId);

  const startedAt = Date.now();
  await fleet.start(environment());
  const readyAt = Date.now();
  await agreed();
  const activeAt = Date.now();
  expect(largestBatch()).toBeLessThanOrEqual(150);
  expect(largestBatch()).toBeGreaterThan(5);
  const workers = await runningWorkers();
  expect(new Set(workers).size).toBe(workers.length);
  // Each connection asked for one key and one subscription: nothing was done twice.
  const calls = (op: string) =>
    [...agent.routers.smp, ...agent.routers.ntf]
      .flatMap((router) => router.calls)
      .filter((call) => call.op === op);
  expect(calls('NKEY')).toHaveLength(CONNECTIONS);
  expect(calls('SNEW')).toHaveLength(CONNECTIONS);
  console.info(
    `${CONNECTIONS} connections active ${activeAt - startedAt} ms after the start, ${activeAt - readyAt} ms after ` +
      `the service was ready; largest batch ${largestBatch()}`,
  );
}, 600_000);

test(`N1 N2 N4 N13 all ${CONNECTIONS} are active again after routers and the service were stopped and killed at random`, async () => {
  const endOfChaos = Date.now() + 25_000;
  const routers = [...agent.routers.smp, ...agent.routers.ntf];
  let isOver = false;
  const disturbed = async (router: (typeof routers)[number]): Promise<void> => {
    while (!isOver) {
      await new Promise((resolve) => setTimeout(resolve, 500 + random() * 4_000));
      if (isOver) return;
      await router.stop();
      await new Promise((resolve) => setTimeout(resolve, 200 + random() * 1_500));
      await router.start();
    }
  };
  const disturbances = routers.map(disturbed);
  let service = await fleet.start(environment());
  let kills = 0;
  while (Date.now() < endOfChaos) {
    // All is asked for: checks that are due, records to start over, subscriptions that the router has lost.
    await agent.rows(
      "UPDATE subscriptions.ntf_subscriptions SET action_ts = now() WHERE ntf_action = 'C' AND random() < 0.5",
    );
    await agent.rows(
      `UPDATE subscriptions.ntf_subscriptions
          SET ntf_action = NULL, smp_action = NULL, action_ts = NULL, generation = generation + 1
        WHERE random() < 0.2`,
    );
    for (const agentId of AGENTS) {
      const rows = await agent.rows<{ conn_id: string }>(
        'SELECT conn_id FROM subscriptions.connections WHERE agent_id = $1 ORDER BY random() LIMIT 100',
        [agentId],
      );
      await agent.command(
        'create',
        rows.map(({ conn_id }) => conn_id),
        agentId,
      );
    }
    const lost = liveOn(oneOf(agent.routers.ntf))[0];
    if (lost) lost.status = 'END';
    await new Promise((resolve) => setTimeout(resolve, random() * 2_000));
    if (kills > 0 && random() < 0.4) continue;
    kills += 1;
    await service.end(random() < 0.7 ? 'SIGKILL' : 'SIGTERM');
    service = await fleet.start(environment());
  }
  isOver = true;
  await Promise.all(disturbances);
  const startedAt = Date.now();
  // What is left without an action, as after errors for good, the next command brings back.
  for (const agentId of AGENTS) await agent.command('create', undefined, agentId);
  // And what a router has lost is found by its check.
  await agent.rows("UPDATE subscriptions.ntf_subscriptions SET action_ts = now() WHERE ntf_action = 'C'");
  await agreed();
  expect(largestBatch()).toBeLessThanOrEqual(150);
  const workers = await runningWorkers();
  expect(new Set(workers).size).toBe(workers.length);
  console.info(
    `${kills} restarts of the service; all agreed ${Date.now() - startedAt} ms after the end of it`,
  );
}, 1_200_000);
