/** What registering does in each state of the saved token, what follows from it, and what is kept secret. */
import { randomBytes, randomUUID } from 'node:crypto';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { NotificationRouterStandIn } from '../../dev/stand-ins/subscription/notification-router.ts';
import { OperationFailedError } from '../../client/errors.ts';
import { tokenOperations } from '../../client/subscription/tokens.ts';
import type { TokenResult, TokenRequest } from '../../workflows/subscription/contract.ts';
import type { Service } from '../../workers/service.ts';
import { eventually, operatorOf } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import type { SubscriptionAgent, Tokens } from './agent.ts';
import { AGENT, KEY_BOX, agentOfTests, errorOf } from './agent.ts';

type Device = Tokens['device'];
type Verification = Awaited<ReturnType<SubscriptionAgent['verification']>>;

const agent = agentOfTests();
let service: Service;
let ntf: NotificationRouterStandIn;

beforeAll(async () => {
  ntf = agent.routers.ntf[0]!;
  service = await agent.start();
});
afterEach(() => ntf.heal());

/** What the router was asked since `from`. Intervals are set in the background, for tokens of earlier tests as well. */
const opsSince = (from: number): string[] =>
  ntf.calls
    .slice(from)
    .map(({ op }) => op)
    .filter((op) => op !== 'TCRN');

async function setRow(tokens: Tokens, assignment: string): Promise<void> {
  await agent.slot.db.query(`UPDATE subscriptions.ntf_tokens SET ${assignment} WHERE agent_id = $1`, [
    tokens.agentId,
  ]);
}

const onRouter = (tokens: Tokens, device = tokens.device) =>
  ntf.tokens().filter((token) => token.device.token === device.token);

test('N15 another device before the router has answered: it is the one that is registered', async () => {
  const tokens = agent.tokensOf('rules-other-early');
  ntf.fail({ failure: { kind: 'reset' }, subject: 'TNEW', times: 1 });
  expect(await errorOf(tokens.register(tokens.device))).toBe('BROKER NETWORK');
  const other = newDevice();

  expect(await tokens.register(other, 'INSTANT')).toBe('REGISTERED');
  expect(await tokens.row()).toMatchObject({ status: 'REGISTERED', action: null, mode: 'INSTANT' });
  expect(onRouter(tokens)).toEqual([]);
  expect(await tokens.verify(other, await agent.verification(other))).toBe('ACTIVE');
});

test.each(['no action', 'VERIFY', 'CHECK'] as const)(
  'N15 another device of a token with %s replaces it, and the router keeps the rest',
  async (state) => {
    const tokens = await agent.registered(`rules-replace-${state.replace(' ', '-')}`);
    const verification = await agent.verification(tokens.device);
    if (state === 'VERIFY') {
      ntf.fail({ failure: { kind: 'reset' }, subject: 'TVFY', times: 1 });
      await errorOf(tokens.verify(tokens.device, verification));
    }
    if (state === 'CHECK') await tokens.verify(tokens.device, verification);
    const { token_id } = (await tokens.row())!;
    const from = ntf.calls.length;
    const other = newDevice();

    expect(await tokens.register(other)).toBe('REGISTERED');
    expect(opsSince(from)).toEqual(['TRPL']);
    expect(await tokens.row()).toMatchObject({ token_id, status: 'REGISTERED', action: null });
    expect(await errorOf(tokens.check(tokens.device))).toBe('AGENT PROHIBITED');
    expect(await tokens.verify(other, await agent.verification(other))).toBe('ACTIVE');
  },
);

test('N15 a broken connection while replacing is for the caller, and the token stays as it is', async () => {
  const tokens = await agent.activated('rules-replace-reset');
  ntf.fail({ failure: { kind: 'reset' }, subject: 'TRPL', times: 1 });
  const other = newDevice();

  expect(await errorOf(tokens.register(other))).toBe('BROKER NETWORK');
  expect(await tokens.row()).toMatchObject({ status: 'ACTIVE', action: 'CHECK' });
  expect(await tokens.check(tokens.device)).toBe('ACTIVE');
  expect(await tokens.register(other)).toBe('REGISTERED');
});

test.each([
  ['AUTH', ['TRPL', 'TNEW']],
  ['INTERNAL', ['TRPL', 'TNEW', 'TDEL']],
])('N15 a replacement that is refused with %s makes the token again', async (code, ops) => {
  const tokens = await agent.activated(`rules-refused-${code}`);
  const { token_id } = (await tokens.row())!;
  ntf.fail({ failure: { kind: 'error', code }, subject: 'TRPL', times: 1 });
  const from = ntf.calls.length;
  const other = newDevice();

  expect(await tokens.register(other)).toBe('REGISTERED');
  expect((await tokens.row())!.token_id).not.toBe(token_id);
  await eventually('all calls', async () => opsSince(from).length === ops.length);
  expect(opsSince(from).sort()).toEqual([...ops].sort());
  expect(await tokens.verify(other, await agent.verification(other))).toBe('ACTIVE');
});

test('N15 a saved code that does not do is an error, and the token is registered afresh', async () => {
  const tokens = await agent.registered('rules-wrong-code');
  const verification = await agent.verification(tokens.device);
  const { token_id } = (await tokens.row())!;
  ntf.fail({ failure: { kind: 'reset' }, subject: 'TVFY', times: 1 });
  await errorOf(tokens.verify(tokens.device, verification));
  ntf.fail({ failure: { kind: 'error', code: 'AUTH' }, subject: 'TVFY', times: 1 });

  expect(await errorOf(tokens.register(tokens.device))).toBe('NTF AUTH');
  expect(await tokens.row()).toMatchObject({ status: 'REGISTERED', action: null });
  expect((await tokens.row())!.token_id).not.toBe(token_id);
  expect(await tokens.verify(tokens.device, await agent.verification(tokens.device, 2))).toBe('ACTIVE');
});

test.each([
  ['REGISTERED', "action = 'REGISTER'"],
  ['ACTIVE', "action = 'DELETE', status = 'ACTIVE'"],
  ['NEW', "action = NULL, status = 'NEW', token_id = NULL"],
])('N15 in any other state the saved status, %s, is all there is', async (status, assignment) => {
  const tokens = await agent.registered(`rules-other-${status}`);
  await setRow(tokens, assignment);
  const from = ntf.calls.length;

  expect(await tokens.register(tokens.device, 'INSTANT')).toBe(status);
  expect(await tokens.register(newDevice(), 'INSTANT')).toBe(status);
  expect(opsSince(from)).toEqual([]);
  expect((await tokens.row())!.mode).toBe('INSTANT');
});

test('N15 what was not encrypted for this token is no code, and nothing happens', async () => {
  const [tokens, other] = [agent.tokensOf('rules-foreign'), agent.tokensOf('rules-foreign-other')];
  await tokens.register(tokens.device);
  await other.register(other.device);
  const foreign = await agent.verification(other.device);
  await agent.verification(tokens.device);
  const from = ntf.calls.length;

  expect(await errorOf(tokens.verify(tokens.device, foreign))).toBe('AGENT CRYPTO');
  expect(await errorOf(tokens.verify(other.device, foreign))).toBe('AGENT PROHIBITED');
  expect(opsSince(from)).toEqual([]);
  expect(await tokens.row()).toMatchObject({ status: 'REGISTERED', action: null });
});

test('N15 checking saves what the router says; only the end of a token ends its action', async () => {
  const tokens = await agent.activated('rules-check');
  const { token_id } = (await tokens.row())!;
  for (const [status, action] of [
    ['CONFIRMED', 'CHECK'],
    ['ACTIVE', 'CHECK'],
    ['INVALID,EXPIRED', null],
  ] as const) {
    ntf.setTokenStatus(token_id!, status);
    // The versions of the protocol that are spoken tell no reason.
    const told = status.split(',')[0];
    expect(await tokens.check()).toBe(told);
    expect(await tokens.row()).toMatchObject({ status: told, action });
  }
});

test('N15 the interval of 20 minutes is set in the background, as soon as the router lets it', async () => {
  const tokens = agent.tokensOf('rules-cron');
  ntf.fail({ failure: { kind: 'reset' }, subject: 'TCRN', times: 2 });
  await agent.activate(tokens);

  await eventually('the interval to be set', async () => onRouter(tokens)[0]?.cronMinutes === 20);
});

async function register(tokens: Tokens, device = tokens.device): Promise<Device> {
  expect(await tokens.register(device, 'INSTANT')).toBe('REGISTERED');
  return device;
}

test.each<[string, (tokens: Tokens, former: Verification) => Promise<Device>]>([
  ['register', (tokens) => register(tokens)],
  ['register of another device', (tokens) => register(tokens, newDevice())],
  [
    'verify',
    async (tokens, former) => {
      expect(await errorOf(tokens.verify(tokens.device, former))).toBe('NTF AUTH');
      return tokens.device;
    },
  ],
  [
    'register, as check asks for (bug-P17),',
    async (tokens) => {
      expect(await errorOf(tokens.check())).toBe('NTF AUTH');
      expect(await tokens.row()).toMatchObject({ status: 'NEW', token_id: null });
      return register(tokens);
    },
  ],
])(
  'kinds-F1 N4 N15 after its router lost its state, %s registers the token afresh, and its subscriptions are made again',
  async (_by, heal) => {
    const tokens = agent.tokensOf(AGENT);
    await agent.activate(tokens, 'INSTANT');
    const former = await agent.verification(tokens.device);
    const connIds = await agent.createMany(2);
    await agent.active(connIds);
    const told = await agent.events();
    ntf.loseState();

    const device = await heal(tokens, former);
    expect(await operatorOf(agent.slot).subscriptions.status()).toMatchObject({
      token: { status: 'REGISTERED' },
    });
    const count = device === tokens.device ? 2 : 1;
    expect(await tokens.verify(device, await agent.verification(device, count))).toBe('ACTIVE');
    await eventually('subscriptions that the router has', async () => {
      const ids = ntf.subscriptions().map(({ subscriptionId }) => subscriptionId);
      const kept = (await agent.records()).map(({ ntf_sub_id: id }) => id);
      return ids.length === 2 && kept.every((id) => id !== null && ids.includes(id));
    });
    expect(await agent.events()).toEqual(told);
    await tokens.delete();
    await agent.remove(connIds);
    await eventually('the subscriptions to go', async () => (await agent.records()).length === 0);
  },
);

test('N15 operations that come together are done one at a time, in their order', async () => {
  const tokens = agent.tokensOf('rules-order');
  const answers = holdAnswers();
  ntf.fail({ failure: answers.failure, subject: `TNEW ${tokens.device.token}` });
  const from = ntf.calls.length;
  const asked = () => ntf.calls.slice(from).filter(({ op }) => op === 'TNEW');
  const registering = [tokens.register(tokens.device), tokens.register(tokens.device)];
  await answers.arrived;
  const events = await eventually('both updates to be accepted', async () => {
    const history = await tokens.handle.fetchHistory();
    const accepted = history.events!.filter((event) => event.workflowExecutionUpdateAcceptedEventAttributes);
    return accepted.length === 2 && history.events!;
  });
  // What begins with an update is scheduled when it is accepted.
  const begun = events.map((event) => event.activityTaskScheduledEventAttributes?.activityType?.name);
  expect(begun.filter((name) => name === 'registerToken')).toHaveLength(1);
  expect(asked()).toHaveLength(1);
  answers.release();

  expect(await Promise.all(registering)).toEqual(['REGISTERED', 'REGISTERED']);
  expect(asked()).toHaveLength(2);
  expect(onRouter(tokens).length).toBe(1);
});

test('N15 nothing secret is in a history, a log or a column', async () => {
  const tokens = await agent.activated('rules-secrets');
  const other = newDevice();
  await tokens.register(other);
  await tokens.verify(other, await agent.verification(other));
  const stored = ntf.tokens().find(({ device }) => device.token === other.token)!;
  const history = JSON.stringify(await tokens.handle.fetchHistory());
  const { rows } = await agent.slot.db.query(`
    SELECT token::text, (SELECT json_agg(request)::text FROM subscriptions.requests AS request) AS requests
      FROM subscriptions.ntf_tokens AS token`);
  const everything = [history, JSON.stringify(rows), JSON.stringify(agent.slot.logs)].join('\n');

  expect(history).toContain('registerToken');
  const secrets = [tokens.device.token, other.token, stored.code, stored.secret];
  for (const secret of secrets) {
    for (const spelling of spellingsOf(secret)) expect(everything.includes(spelling)).toBe(false);
  }
  expect(rows[0]).toMatchObject({ requests: null });
});

/** As it is, and as it would look in a payload or a bytea. */
function spellingsOf(secret: string): string[] {
  const bytes = Buffer.from(secret, secret.length === 64 ? 'hex' : 'base64url');
  const text = Buffer.from(secret, 'utf8');
  return [
    secret,
    bytes.toString('hex'),
    bytes.toString('base64'),
    text.toString('hex'),
    text.toString('base64'),
  ];
}

test('N15 an invalid request is refused before anything happens', async () => {
  const tokens = await agent.registered('rules-requests');
  const ask = (request: unknown) =>
    tokens.handle.executeUpdate<TokenResult, [TokenRequest]>('check', { args: [request as TokenRequest] });

  for (const request of [undefined, {}, { requestId: 7 }, { requestId: "'; DROP TABLE agents" }]) {
    await expect(ask(request)).rejects.toThrow();
  }
  expect(await ask({ requestId: randomUUID() })).toMatchObject({
    ok: false,
    error: { code: 'PROHIBITED' },
  });
  await expect(tokens.register({ provider: 'AT', token: 'no hex' })).rejects.toThrow(OperationFailedError);
});

test('N15 a token whose keys are gone is an error, and can still be deleted', async () => {
  const tokens = await agent.activated('rules-keys-gone');
  await agent.slot.db.query('UPDATE subscriptions.ntf_tokens SET auth_private_key = $2 WHERE agent_id = $1', [
    tokens.agentId,
    randomBytes(100),
  ]);

  expect(await errorOf(tokens.check())).toBe('STORE INTERNAL');
  await tokens.delete();
  expect(await tokens.row()).toBeUndefined();
});

test('N15 without a service an operation is given up after its time', async () => {
  await service.stop();
  const { temporal, db } = { temporal: agent.slot.client, db: agent.slot.db };
  const agentId = 'rules-no-service';
  const tokens = tokenOperations({ temporal, db, keyBox: () => KEY_BOX, agentId, limitMs: 2_000 });
  const device = newDevice();

  const given = await tokens.register(device).catch((error: unknown) => error);
  service = await agent.start();
  expect(given).toBeInstanceOf(OperationFailedError);
  expect((given as Error).message).toBe(
    'no worker answered for subscription/rules-no-service/token within 2 s; it does what it was asked for once one runs',
  );
});
