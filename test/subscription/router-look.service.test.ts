/** What operators are shown of the routers of an agent. */
import type { MessagingRouterStandIn } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import type { RouterStates } from '../../workflows/subscription/contract.ts';
import { cliOfTests } from '../command-line.ts';
import { QUICK } from './agent.ts';
import { tokenAgentOfTests } from './token-agent.ts';

const agent = tokenAgentOfTests();
const operator = cliOfTests(() => agent.slot);
let second: MessagingRouterStandIn;

beforeAll(async () => {
  second = await startMessagingRouter();
  await agent.startWith();
  Object.assign(operator.env, {
    NOTIFICATION_SUBSCRIPTION_KEYS: QUICK['NOTIFICATION_SUBSCRIPTION_KEYS']!,
  });
}, 120_000);
afterAll(() => second.stop());

test('N19 operators see of each router whether it answers the service, in which version, and what went wrong', async () => {
  const [smp] = agent.routers.smp;
  const [ntf] = agent.routers.ntf;
  await agent.activate(agent.tokensOf(), 'INSTANT');
  const connIds = await agent.create([
    { userId: 1, server: smp!.address },
    { userId: 2, server: smp!.address },
  ]);
  await agent.active(connIds);
  await agent.active(await agent.create([{ userId: 1, server: second.address }]));

  const all = await operator.cli(['--json', 'subscriptions', 'routers']);
  const { process: asked, routers, hasMore } = JSON.parse(all.stdout) as RouterStates;
  expect([all.code, hasMore]).toEqual([0, false]);
  expect(asked).toMatch(/^\d+@./);
  const common = {
    roundTripMs: expect.any(Number) as number,
    connectedHost: '127.0.0.1',
    heldSinceMs: expect.any(Number) as number,
  };
  expect(routers).toEqual(
    [
      { kind: 'messaging', ...smp!.address, ...common, version: 9, routerVersions: [6, 10], sessions: 2 },
      { kind: 'messaging', ...second.address, ...common, version: 9, routerVersions: [6, 10], sessions: 1 },
      { kind: 'notification', ...ntf!.address, ...common, version: 2, routerVersions: [1, 2], sessions: 1 },
    ].sort((one, other) =>
      one.kind === other.kind ? one.port - other.port : one.kind < other.kind ? -1 : 1,
    ),
  );

  await smp!.stop();
  await second.stop();
  const broken = await operator.cli(['subscriptions', 'routers']);
  expect(broken.code).toBe(1);
  expect(broken.stdout).toMatch(/BROKER NETWORK/);
  const again = await operator.cli(['--json', 'subscriptions', 'routers']);
  const states = (JSON.parse(again.stdout) as RouterStates).routers;
  expect(states.map(({ kind, error, sessions }) => [kind, error?.slice(0, 14), sessions])).toEqual([
    ...[1, 2].map(() => ['messaging', 'BROKER NETWORK', 0]),
    ['notification', undefined, 1],
  ]);
  expect(states[0]!.lastError!.error).toMatch(/^BROKER NETWORK/);
  expect(states[0]!.lastError!.atMs).toBeGreaterThan(Date.now() - 60_000);
}, 120_000);
