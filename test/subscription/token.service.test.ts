/** Scenarios 1 to 9 of the lifecycle: registering, verifying, checking and deleting tokens, across restarts. */
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import { pushesTo } from './routers.ts';
import { errorOf, tokenAgentOfTests } from './token-agent.ts';

const agent = tokenAgentOfTests({ smp: 0, ntf: 2 });
let service: Service;
let first: NotificationRouterStandIn;
let second: NotificationRouterStandIn;
/** The service has other servers than the first one alone. */
let isMoved = false;

beforeAll(async () => {
  [first, second] = [agent.routers.ntf[0]!, agent.routers.ntf[1]!];
  service = await agent.startWith([first.address]);
});
afterEach(async () => {
  await Promise.all([first.start(), second.start()]);
  if (isMoved) await restart();
});

/** A new process over the same rows. */
async function restart(servers = [first.address]): Promise<void> {
  await service.stop();
  service = await agent.startWith(servers);
  isMoved = servers.length !== 1 || servers[0]!.port !== first.address.port;
}

test('N15 N17 scenario 1 register, verify, check, delete, check', async () => {
  const tokens = agent.tokensOf('scenario-1');
  expect(await tokens.register(tokens.device, 'PERIODIC')).toBe('REGISTERED');
  expect(await tokens.row()).toMatchObject({ status: 'REGISTERED', action: null, mode: 'PERIODIC' });
  const verification = await agent.verification(tokens.device);
  expect(pushesTo(agent.routers.sink, tokens.device.token, 'verification')).toEqual([
    expect.objectContaining({
      isBackground: true,
      data: { nonce: verification.nonce, verification: verification.code },
    }),
  ]);

  expect(await tokens.verify(tokens.device, verification)).toBe('ACTIVE');
  expect(await tokens.row()).toMatchObject({ status: 'ACTIVE', action: 'CHECK' });
  expect(await tokens.check(tokens.device)).toBe('ACTIVE');
  await tokens.delete(tokens.device);
  expect(await errorOf(tokens.check(tokens.device))).toBe('AGENT PROHIBITED');
  expect(await tokens.row()).toBeUndefined();
});

test('N15 N17 scenario 2 registered twice, the code of the first push still verifies', async () => {
  const tokens = agent.tokensOf('scenario-2');
  await tokens.register(tokens.device);
  const { token_id } = (await tokens.row())!;
  expect(await tokens.register(tokens.device)).toBe('REGISTERED');
  expect((await tokens.row())!.token_id).toBe(token_id);

  expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2, 0))).toBe('ACTIVE');
});

test('N15 N17 scenario 3 of two agents with the same device, who verified last has it', async () => {
  const [one, other] = [agent.tokensOf('scenario-3a'), agent.tokensOf('scenario-3b')];
  const { device } = one;
  await agent.activate(one);
  await other.register(device);
  expect(await one.check(device)).toBe('ACTIVE');
  await eventually('the push to be accepted', async () => (await other.check(device)) === 'CONFIRMED');

  expect(await other.verify(device, await agent.verification(device, 2))).toBe('ACTIVE');
  expect(await errorOf(one.check(device))).toBe('NTF AUTH');
  expect(await other.check(device)).toBe('ACTIVE');
});

test('N15 N17 scenario 4 the router and the service restart between registration and verification', async () => {
  const tokens = agent.tokensOf('scenario-4');
  await tokens.register(tokens.device);
  const verification = await agent.verification(tokens.device);
  await first.stop();
  await first.start();
  await restart();

  expect(await tokens.verify(tokens.device, verification)).toBe('ACTIVE');
  expect(await tokens.check()).toBe('ACTIVE');
});

test('N15 N17 scenario 4 verified while the router is down, registering sends the code that was kept', async () => {
  const tokens = agent.tokensOf('scenario-4-down');
  await tokens.register(tokens.device);
  const verification = await agent.verification(tokens.device);
  await first.stop();
  expect(await errorOf(tokens.verify(tokens.device, verification))).toBe('BROKER NETWORK');
  expect(await tokens.row()).toMatchObject({ status: 'CONFIRMED', action: 'VERIFY' });
  await first.start();
  await restart();

  expect(await tokens.register(tokens.device)).toBe('ACTIVE');
  expect(await tokens.row()).toMatchObject({ status: 'ACTIVE', action: 'CHECK' });
  expect(pushesTo(agent.routers.sink, tokens.device.token, 'verification').length).toBe(1);
});

test('N15 N17 scenario 5 verified on the router, but not known here: verifying again does no harm', async () => {
  const tokens = agent.tokensOf('scenario-5');
  await tokens.register(tokens.device);
  const verification = await agent.verification(tokens.device);
  first.fail({ failure: { kind: 'reset', isExecuted: true }, subject: 'TVFY', times: 1 });
  expect(await errorOf(tokens.verify(tokens.device, verification))).toBe('BROKER NETWORK');
  expect(first.tokens().find(({ device }) => device.token === tokens.device.token)!.status).toBe('ACTIVE');
  expect(await tokens.row()).toMatchObject({ status: 'CONFIRMED', action: 'VERIFY' });
  await restart();

  expect(await tokens.register(tokens.device)).toBe('ACTIVE');
});

test('N15 N17 scenario 6 restarted without verification, registering pushes again', async () => {
  const tokens = agent.tokensOf('scenario-6');
  await tokens.register(tokens.device);
  await agent.verification(tokens.device);
  await restart();

  expect(await tokens.register(tokens.device)).toBe('REGISTERED');
  expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2))).toBe('ACTIVE');
});

test('N15 N17 scenario 6 the answer to the registration never came, registering makes no second token', async () => {
  const tokens = agent.tokensOf('scenario-6-rewound');
  first.fail({ failure: { kind: 'reset', isExecuted: true }, subject: 'TNEW', times: 1 });
  expect(await errorOf(tokens.register(tokens.device))).toBe('BROKER NETWORK');
  expect(await tokens.row()).toMatchObject({ status: 'NEW', action: 'REGISTER', token_id: null });
  await restart();

  expect(await tokens.register(tokens.device)).toBe('REGISTERED');
  expect(first.tokens().filter(({ device }) => device.token === tokens.device.token).length).toBe(1);
  expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2))).toBe('ACTIVE');
});

test('N12 N15 N17 scenario 7 a router that was not chosen may be down', async () => {
  await restart([first.address, second.address]);
  const tokens = agent.tokensOf('scenario-7');
  await agent.activate(tokens);
  const chosen = await tokens.router();
  const other = chosen === first ? second : first;
  expect(other.calls.some(({ subjects }) => subjects.includes(tokens.device.token))).toBe(false);

  await other.stop();
  expect(await tokens.check(tokens.device)).toBe('ACTIVE');
  await chosen.stop();
  expect(await errorOf(tokens.check(tokens.device))).toBe('BROKER NETWORK');
});

test('N12 N15 N17 scenario 8 another list of servers moves no token; a new one is made on the new server', async () => {
  const tokens = agent.tokensOf('scenario-8');
  await agent.activate(tokens);
  await restart([second.address]);
  expect(await tokens.check(tokens.device)).toBe('ACTIVE');
  const { device } = agent.tokensOf('scenario-8');
  expect(await tokens.register(device)).toBe('REGISTERED');
  expect(await tokens.verify(device, await agent.verification(device))).toBe('ACTIVE');
  expect((await tokens.router()).address).toEqual(first.address);

  await tokens.delete(device);
  await second.stop();
  expect(await errorOf(tokens.register(device))).toBe('BROKER NETWORK');
  expect(await tokens.row()).toMatchObject({ port: second.address.port, status: 'NEW', action: 'REGISTER' });
  await second.start();
  await agent.activate(tokens, 'PERIODIC', device);
  expect((await tokens.router()).address).toEqual(second.address);
});

test.each(['register', 'check'] as const)(
  'N15 N17 scenario 9 a token that the router calls invalid, found by %s, is registered again',
  async (found) => {
    const tokens = agent.tokensOf(`scenario-9-${found}`);
    await agent.activate(tokens);
    first.setTokenStatus((await tokens.row())!.token_id!, 'INVALID');

    expect(await tokens[found](tokens.device)).toBe('INVALID');
    expect(await tokens.row()).toMatchObject({ status: 'INVALID', action: null });
    expect(pushesTo(agent.routers.sink, tokens.device.token, 'verification').length).toBe(1);
    expect(await tokens.register(tokens.device)).toBe('REGISTERED');
    expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2))).toBe('ACTIVE');
  },
);
