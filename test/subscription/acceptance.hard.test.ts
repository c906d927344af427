/**
 * Many connections over many routers: all active after one start, with nothing doubled. TEST_CONNECTIONS sets how many.
 * Fault runs have connections while routers fail and the service is killed, see faults/subscription.ts.
 */
import { fleetOfTests } from '../service-process.ts';
import { AGENT, agentOfTests } from './agent.ts';
import { agreement } from './agreement.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';

const CONNECTIONS = Number(process.env['TEST_CONNECTIONS'] ?? 200);
const AGENTS = [AGENT, 'second'] as const;
/** Long enough for a machine that does other things as well, ms. */
const PATIENCE = 60_000 + 300 * CONNECTIONS;

const agent = agentOfTests({ smp: 5, ntf: 2 });
const fleet = fleetOfTests(() => agent.slot);

test(`N1 N13 ${CONNECTIONS} connections over 5 messaging and 2 notification routers are active after one start`, async () => {
  // The gate is closed while they are made.
  const first = await agent.start();
  for (const agentId of AGENTS) await agent.activateToken(agentId);
  const setMode = (mode: string) => agent.rows('UPDATE subscriptions.ntf_tokens SET mode = $1', [mode]);
  await setMode('PERIODIC');
  for (const agentId of AGENTS) await agent.createMany(CONNECTIONS / 2, agentId);
  expect(await agent.records()).toEqual([]);
  await first.stop();
  await setMode('INSTANT');

  const startedAt = Date.now();
  const servers = agent.routers.ntf.map(({ address }) => routerAddressText(address, 'ntf'));
  await fleet.start({ ...agent.env, NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: servers.join() });
  expect(await agreement(agent, PATIENCE)).toHaveLength(CONNECTIONS);
  const routers = [...agent.routers.smp, ...agent.routers.ntf];
  const largestBatch = Math.max(...routers.flatMap(({ batches }) => batches.map(({ size }) => size)));
  expect(largestBatch).toBeLessThanOrEqual(150);
  expect(largestBatch).toBeGreaterThan(5);
  // Each connection asked for one key and one subscription: nothing was done twice.
  const calls = (op: string) => routers.flatMap((router) => router.calls).filter((call) => call.op === op);
  expect(calls('NKEY')).toHaveLength(CONNECTIONS);
  expect(calls('SNEW')).toHaveLength(CONNECTIONS);
  console.info(`all active ${Date.now() - startedAt} ms after the start; largest batch ${largestBatch}`);
}, 600_000);
