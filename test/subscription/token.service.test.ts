/** Tokens across restarts: scenarios 1 to 9 of the lifecycle, and 36, their deletion in two phases; the choice of a server. */
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import type { Service } from '../../workers/service.ts';
import { eventually } from '../harness.ts';
import type { Tokens } from './agent.ts';
import { AGENT, agentOfTests, errorOf } from './agent.ts';
import { newDevice } from './router-agent.ts';
import { pushesTo } from './routers.ts';

const agent = agentOfTests({ smp: 0, ntf: 3 });
let service: Service;
let first: NotificationRouterStandIn;
let second: NotificationRouterStandIn;
/** The service has other servers than the first one alone. */
let isMoved = false;

beforeAll(async () => {
  [first, second] = [agent.routers.ntf[0]!, agent.routers.ntf[1]!];
  service = await agent.start({}, [first.address]);
});
afterEach(async () => {
  await Promise.all([first.start(), second.start()]);
  first.heal();
  if (isMoved) await restart();
});

/** A new process over the same rows. */
async function restart(servers = [first.address]): Promise<void> {
  await service.stop();
  service = await agent.start({}, servers);
  isMoved = servers.length !== 1 || servers[0]!.port !== first.address.port;
}

test('N15 N17 scenario 1 register, verify, check, delete, check; nothing can be done to a token that is not there', async () => {
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
  expect(await errorOf(tokens.verify(tokens.device, verification))).toBe('AGENT PROHIBITED');
  expect(await errorOf(tokens.delete())).toBe('AGENT PROHIBITED');
});

test('N15 N17 scenario 2 registered twice, the code of the first push still verifies', async () => {
  const tokens = await agent.registered('scenario-2');
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
  const tokens = await agent.registered('scenario-4');
  const verification = await agent.verification(tokens.device);
  await first.stop();
  await first.start();
  await restart();

  expect(await tokens.verify(tokens.device, verification)).toBe('ACTIVE');
  expect(await tokens.check()).toBe('ACTIVE');
});

test('N15 N17 scenario 4 verified while the router is down, registering sends the code that was kept', async () => {
  const tokens = await agent.registered('scenario-4-down');
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
  const tokens = await agent.registered('scenario-5');
  const verification = await agent.verification(tokens.device);
  first.fail({ failure: { kind: 'reset', isExecuted: true }, subject: 'TVFY', times: 1 });
  expect(await errorOf(tokens.verify(tokens.device, verification))).toBe('BROKER NETWORK');
  expect(first.tokens().find(({ device }) => device.token === tokens.device.token)!.status).toBe('ACTIVE');
  expect(await tokens.row()).toMatchObject({ status: 'CONFIRMED', action: 'VERIFY' });
  await restart();

  expect(await tokens.register(tokens.device)).toBe('ACTIVE');
});

test('N15 N17 scenario 6 restarted without verification, registering pushes again', async () => {
  const tokens = await agent.registered('scenario-6');
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
  const tokens = await agent.activated('scenario-7');
  const chosen = await tokens.router();
  const other = chosen === first ? second : first;
  expect(other.calls.some(({ subjects }) => subjects.includes(tokens.device.token))).toBe(false);

  await other.stop();
  expect(await tokens.check(tokens.device)).toBe('ACTIVE');
  await chosen.stop();
  expect(await errorOf(tokens.check(tokens.device))).toBe('BROKER NETWORK');
});

test('N12 N15 N17 scenario 8 another list of servers moves no token; a new one is made on the new server', async () => {
  const tokens = await agent.activated('scenario-8');
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

test.each([
  ['INVALID', 'register'],
  ['INVALID', 'check'],
  ['EXPIRED', 'register'],
] as const)(
  'N15 N17 scenario 9 a token that the router calls %s, found by %s, is registered again',
  async (status, found) => {
    const tokens = await agent.activated(`scenario-9-${status}-${found}`);
    first.setTokenStatus((await tokens.row())!.token_id!, status);

    expect(await tokens[found](tokens.device)).toBe(status);
    expect(await tokens.row()).toMatchObject({ status, action: null });
    expect(pushesTo(agent.routers.sink, tokens.device.token, 'verification').length).toBe(1);
    expect(await tokens.register(tokens.device)).toBe('REGISTERED');
    expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2))).toBe('ACTIVE');
  },
);

const recordsOf = ({ agentId }: Tokens) =>
  agent.rows<{ token_id: string; port: number; key_hash: string }>(
    'SELECT token_id, port, key_hash FROM subscriptions.ntf_tokens_to_delete WHERE agent_id = $1 ORDER BY id',
    [agentId],
  );
const eventsOf = ({ agentId }: Tokens) =>
  agent.rows('SELECT kind, errors FROM subscriptions.events WHERE agent_id = $1 ORDER BY event_id', [
    agentId,
  ]);

const deletionsOf = (tokenId: string): number =>
  first.calls.filter(({ op, entity }) => op === 'TDEL' && entity === tokenId).length;
const isOnRouter = (tokenId: string): boolean => first.tokens().some((token) => token.tokenId === tokenId);
const gone = (tokens: Tokens) =>
  eventually('the record to be dropped', async () => (await recordsOf(tokens)).length === 0);

test('N5 N11 N17 scenario 36 a deletion that the router has not heard of survives a restart', async () => {
  const tokens = await agent.activated(AGENT);
  const tokenId = (await tokens.row())!.token_id!;
  await first.stop();
  await tokens.delete();
  expect(await tokens.row()).toBeUndefined();
  expect(await recordsOf(tokens)).toEqual([
    { token_id: tokenId, port: first.address.port, key_hash: first.address.keyHash },
  ]);
  await service.stop();
  expect((await recordsOf(tokens)).length).toBe(1);

  await first.start();
  service = await agent.start({}, [first.address]);
  await gone(tokens);
  expect(isOnRouter(tokenId)).toBe(false);
  expect(deletionsOf(tokenId)).toBe(1);
});

test('N5 N17 scenario 36 of a token that no router knows, nothing goes over the wire', async () => {
  const tokens = agent.tokensOf('without-id');
  await first.stop();
  expect(await errorOf(tokens.register(tokens.device, 'PERIODIC'))).toBe('BROKER NETWORK');
  await tokens.delete();
  expect(await tokens.row()).toBeUndefined();
  expect(await recordsOf(tokens)).toEqual([]);
  const calls = first.calls.length;

  await first.start();
  const other = agent.tokensOf('after-without-id');
  await other.register(other.device);
  expect(first.calls.slice(calls).map(({ op }) => op)).not.toContain('TDEL');
});

test('N5 only the device of a token can delete it, and a new one can be registered while the old one waits to be deleted', async () => {
  const tokens = await agent.activated('meanwhile');
  expect(await errorOf(tokens.delete(newDevice()))).toBe('AGENT PROHIBITED');
  expect(await tokens.check()).toBe('ACTIVE');
  const old = (await tokens.row())!.token_id!;
  first.fail({ failure: { kind: 'reset' }, subject: `TDEL ${old}` });
  await tokens.delete();
  const device = newDevice();
  await agent.activate(tokens, 'PERIODIC', device);
  expect((await recordsOf(tokens)).map(({ token_id }) => token_id)).toEqual([old]);

  first.heal();
  await gone(tokens);
  expect(isOnRouter(old)).toBe(false);
  expect(await tokens.check(device)).toBe('ACTIVE');
});

test('N11 a deletion that the router refuses for good is dropped and reported', async () => {
  const tokens = await agent.activated('refused');
  const tokenId = (await tokens.row())!.token_id!;
  first.fail({ failure: { kind: 'error', code: 'INTERNAL' }, subject: `TDEL ${tokenId}` });
  await tokens.delete();

  await gone(tokens);
  expect(await eventsOf(tokens)).toEqual([
    { kind: 'ERR INTERNAL', errors: [{ connId: '', error: expect.stringContaining('NTF INTERNAL') }] },
  ]);
  expect(deletionsOf(tokenId)).toBe(1);
});

test('N11 a deletion whose answer was lost is done when the router does not know the token', async () => {
  const tokens = await agent.activated('lost-answer');
  const tokenId = (await tokens.row())!.token_id!;
  first.fail({ failure: { kind: 'reset', isExecuted: true }, subject: `TDEL ${tokenId}`, times: 1 });
  await tokens.delete();

  await gone(tokens);
  expect(deletionsOf(tokenId)).toBe(2);
  expect(await eventsOf(tokens)).toEqual([]);
});

test('N12 without any no token can be made', async () => {
  await restart([]);
  const tokens = agent.tokensOf('no-server');

  expect(await errorOf(tokens.register(tokens.device, 'PERIODIC'))).toBe('AGENT PROHIBITED');
  expect(await tokens.row()).toBeUndefined();
});

test('N12 of three it is any, for each new token, and stays the one it is', async () => {
  await restart(agent.routers.ntf.map(({ address }) => address));
  const chosen = new Set<number>();
  for (let index = 0; index < 100 && chosen.size < 3; index++) {
    const tokens = agent.tokensOf(`three-servers-${index}`);
    await tokens.register(tokens.device, 'PERIODIC');
    const { port } = (await tokens.row())!;
    chosen.add(port);
    await tokens.register(tokens.device, 'PERIODIC');
    expect((await tokens.row())!.port).toBe(port);
  }

  expect(chosen.size).toBe(3);
});
