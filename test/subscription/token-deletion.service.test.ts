/** Deleting tokens in two phases, of which the second survives everything, and the choice of a server. */
import { AGENT } from './agent.ts';
import type { Service } from '../../workers/service.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { eventually } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import type { Tokens } from './token-agent.ts';
import { errorOf, tokenAgentOfTests } from './token-agent.ts';

const agent = tokenAgentOfTests({ smp: 0, ntf: 3 });
let service: Service;
let ntf: NotificationRouterStandIn;

beforeAll(async () => {
  ntf = agent.routers.ntf[0]!;
  service = await agent.startWith([ntf.address]);
});
afterEach(async () => {
  await ntf.start();
  ntf.heal();
});

async function restart(servers = [ntf.address]): Promise<void> {
  await service.stop();
  service = await agent.startWith(servers);
}

async function recordsOf({
  agentId,
}: Tokens): Promise<{ token_id: string; port: number; key_hash: string }[]> {
  const { rows } = await agent.slot.db.query<{ token_id: string; port: number; key_hash: string }>(
    'SELECT token_id, port, key_hash FROM subscriptions.ntf_tokens_to_delete WHERE agent_id = $1 ORDER BY id',
    [agentId],
  );
  return rows;
}

async function eventsOf({
  agentId,
}: Tokens): Promise<{ kind: string; errors: { connId: string; error: string }[] }[]> {
  const { rows } = await agent.slot.db.query<{ kind: string; errors: { connId: string; error: string }[] }>(
    'SELECT kind, errors FROM subscriptions.events WHERE agent_id = $1 ORDER BY event_id',
    [agentId],
  );
  return rows;
}

const deletionsOf = (tokenId: string): number =>
  ntf.calls.filter(({ op, entity }) => op === 'TDEL' && entity === tokenId).length;
const isOnRouter = (tokenId: string): boolean => ntf.tokens().some((token) => token.tokenId === tokenId);
const gone = (tokens: Tokens) =>
  eventually('the record to be dropped', async () => (await recordsOf(tokens)).length === 0);

test('N5 N11 N17 scenario 36 a deletion that the router has not heard of survives a restart', async () => {
  const tokens = agent.tokensOf(AGENT);
  await agent.activate(tokens);
  const tokenId = (await tokens.row())!.token_id!;
  await ntf.stop();
  await tokens.delete();
  expect(await tokens.row()).toBeUndefined();
  expect(await recordsOf(tokens)).toEqual([
    { token_id: tokenId, port: ntf.address.port, key_hash: ntf.address.keyHash },
  ]);
  await service.stop();
  expect((await recordsOf(tokens)).length).toBe(1);

  await ntf.start();
  service = await agent.startWith([ntf.address]);
  await gone(tokens);
  expect(isOnRouter(tokenId)).toBe(false);
  expect(deletionsOf(tokenId)).toBe(1);
});

test('N5 N17 scenario 36 of a token that no router knows, nothing goes over the wire', async () => {
  const tokens = agent.tokensOf('without-id');
  await ntf.stop();
  expect(await errorOf(tokens.register(tokens.device, 'PERIODIC'))).toBe('BROKER NETWORK');
  await tokens.delete();
  expect(await tokens.row()).toBeUndefined();
  expect(await recordsOf(tokens)).toEqual([]);
  const calls = ntf.calls.length;

  await ntf.start();
  const other = agent.tokensOf('after-without-id');
  await other.register(other.device);
  expect(ntf.calls.slice(calls).map(({ op }) => op)).not.toContain('TDEL');
});

test('N5 a new token can be registered while the old one still waits to be deleted', async () => {
  const tokens = agent.tokensOf('meanwhile');
  await agent.activate(tokens);
  const old = (await tokens.row())!.token_id!;
  ntf.fail({ failure: { kind: 'reset' }, subject: `TDEL ${old}` });
  await tokens.delete();
  const device = newDevice();
  await agent.activate(tokens, 'PERIODIC', device);
  expect((await recordsOf(tokens)).map(({ token_id }) => token_id)).toEqual([old]);

  ntf.heal();
  await gone(tokens);
  expect(isOnRouter(old)).toBe(false);
  expect(await tokens.check(device)).toBe('ACTIVE');
});

test('N5 another device cannot delete the token', async () => {
  const tokens = agent.tokensOf('other-device');
  await agent.activate(tokens);

  expect(await errorOf(tokens.delete(newDevice()))).toBe('AGENT PROHIBITED');
  expect(await tokens.check()).toBe('ACTIVE');
});

test('N11 a deletion that the router refuses for good is dropped and reported', async () => {
  const tokens = agent.tokensOf('refused');
  await agent.activate(tokens);
  const tokenId = (await tokens.row())!.token_id!;
  ntf.fail({ failure: { kind: 'error', code: 'INTERNAL' }, subject: `TDEL ${tokenId}` });
  await tokens.delete();

  await gone(tokens);
  expect(await eventsOf(tokens)).toEqual([
    { kind: 'ERR INTERNAL', errors: [{ connId: '', error: expect.stringContaining('NTF INTERNAL') }] },
  ]);
  expect(deletionsOf(tokenId)).toBe(1);
});

test('N11 a deletion whose answer was lost is done when the router does not know the token', async () => {
  const tokens = agent.tokensOf('lost-answer');
  await agent.activate(tokens);
  const tokenId = (await tokens.row())!.token_id!;
  ntf.fail({ failure: { kind: 'reset', isExecuted: true }, subject: `TDEL ${tokenId}`, times: 1 });
  await tokens.delete();

  await gone(tokens);
  expect(deletionsOf(tokenId)).toBe(2);
  expect(await eventsOf(tokens)).toEqual([]);
});

describe('the choice of a server', () => {
  afterAll(() => restart());

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
});
