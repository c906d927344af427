/** A process that stops, or loses PostgreSQL, between a router's doing and its own writing down. */
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { fleetOfEachTest } from '../service-process.ts';
import { eventually } from '../harness.ts';
import { agentOfTests } from './agent.ts';
import { agreement } from './agreement.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';

const agent = agentOfTests();
const fleet = fleetOfEachTest(() => agent.slot);
const env = (): Record<string, string> => ({
  ...agent.env,
  NOTIFICATION_SUBSCRIPTION_NTF_SERVERS: routerAddressText(agent.routers.ntf[0]!.address, 'ntf'),
  NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '30s',
  // It helps no case in these tests.
  NOTIFICATION_RECONCILIATION_INTERVAL: '12m',
});
afterEach(() => agent.routers.heal());

const smp = () => agent.routers.smp[0]!;
const calls = (op: string) => smp().calls.filter((call) => call.op === op);

test('N13 stopped in the middle of a call: it is not waited for, and what it was about goes on elsewhere immediately', async () => {
  const service = await fleet.start({ ...env(), NOTIFICATION_SHUTDOWN_TIMEOUT: '4s' });
  await agent.activateToken();
  smp().fail({ failure: { kind: 'silence' }, subject: 'NKEY', times: 1 });
  const keys = calls('NKEY').length;
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await eventually('the call', async () => calls('NKEY').length > keys);
  const stoppedAt = Date.now();
  expect(await service.end('SIGTERM')).toBe(0);
  expect(Date.now() - stoppedAt).toBeLessThan(15_000);
  await fleet.start(env());
  await agent.active([connId!], 60_000);
  expect(await agent.events()).toEqual([]);
  await agreement(agent);
}, 180_000);

test('N2 N13 what a router answers without PostgreSQL is kept until it is back, and no credentials are made twice', async () => {
  await fleet.start(env());
  const answers = holdAnswers();
  smp().fail({ failure: answers.failure, subject: 'NKEY', times: 1 });
  const keys = calls('NKEY').length;
  const [connId] = await agent.create([{ userId: 1, server: smp().address }]);
  await answers.arrived;
  const database = await agent.slot.cutOffDatabase();
  answers.release();
  await eventually('the answer that cannot be saved', async () => calls('NKEY')[keys]!.answer !== '-');
  await database.restore();
  await agent.active([connId!], 90_000);
  expect(calls('NKEY')).toHaveLength(keys + 1);
  await agreement(agent);
}, 180_000);
