/** Operations on tokens, and a process that dies after each step of them. */
import { poolWorkerWorkflowId } from '../../workflows/subscription/contract.ts';
import { answerTo, isAtRest } from '../crash-walk.ts';
import { eventually } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import { agreement } from './agreement.ts';
import { pushesTo } from './routers.ts';
import type { Tokens } from './agent.ts';
import { agentOfTests, crashWalkOfAgents } from './agent.ts';

/** The interval of a token's cron is waited for this long when the process died of setting it. */
const CRON_LIMIT_MS = 330_000;

const agent = agentOfTests();
const walk = crashWalkOfAgents(agent, { NOTIFICATION_RECONCILIATION_INTERVAL: '1s' });

const router = () => agent.routers.ntf[0]!;
const onRouter = ({ device }: Tokens) =>
  router()
    .tokens()
    .filter((token) => token.device.token === device.token);

/** Each operation is asked of a separate agent, so that none waits for one whose process has died. */
let agents = 0;
/** Those of the test. */
const owners: Tokens[] = [];
beforeEach(() => void owners.splice(0));
function someone(): Tokens {
  const tokens = agent.tokensOf(`agent-${(agents += 1)}`);
  owners.push(tokens);
  return tokens;
}

/** A user with a connection, and a token that waits for its code. */
async function registered(): Promise<Tokens> {
  const tokens = someone();
  await agent.create([{ userId: 1, server: agent.routers.smp[0]!.address }], tokens.agentId);
  await tokens.register(tokens.device, 'INSTANT');
  return tokens;
}

const verify = async (tokens: Tokens) =>
  tokens.verify(tokens.device, await agent.verification(tokens.device));

/** A user whose connection has notifications. */
async function active(): Promise<Tokens> {
  const tokens = await registered();
  await verify(tokens);
  await eventually('the token to be in use', () => isInUse(tokens), 120_000);
  return tokens;
}

/** They are made while no process dies of it. */
async function prepared(count: number, make: () => Promise<Tokens>): Promise<Tokens[]> {
  await walk.survivor();
  return Promise.all(Array.from({ length: count }, make));
}

async function isInUse(tokens: Tokens): Promise<boolean> {
  const [record] = await agent.rows<{ status: string }>(
    'SELECT status FROM subscriptions.ntf_subscriptions WHERE agent_id = $1',
    [tokens.agentId],
  );
  const isSubscribed = record?.status.startsWith('CREATED ') === true;
  return isSubscribed && onRouter(tokens)[0]?.cronMinutes === 20 && isAtRest(tokens.handle);
}

/** What was asked for, to be asked for again by a client that was told that it failed. */
const asked: { answer: Promise<unknown>; again: () => Promise<unknown> }[] = [];

/** Asks for an operation on the next token. @param isDone what has to be seen after its answer. */
const asking =
  (
    next: () => Tokens | undefined,
    operation: (tokens: Tokens) => Promise<unknown>,
    isDone: (tokens: Tokens) => Promise<boolean> = async () => true,
  ) =>
  async () => {
    const tokens = next()!;
    const again = () => operation(tokens);
    const answer = again();
    asked.push({ answer, again });
    const isAnswered = answerTo(answer);
    return async () => (await isAnswered()) && isDone(tokens);
  };

/** A process that lives ends what the dead left. */
async function allAnswered(): Promise<void> {
  await walk.survivor();
  for (const { answer, again } of asked.splice(0)) await answer.catch(again);
}

async function allInOrder(): Promise<void> {
  expect(await agent.rows('SELECT kind FROM subscriptions.requests')).toEqual([]);
  await agreement(agent);
  expect(await agent.events()).toEqual([]);
}

test('N15 N17 a process that dies after any step of registering: one token here and on the router', async () => {
  const register = (tokens: Tokens) => tokens.register(tokens.device, 'INSTANT');
  // The agent, the token with its keys, the router, what it answered, the mode.
  expect(await walk.through('registerToken', asking(someone, register), 7)).toBe(5);
  expect(await walk.through('removeTokenRequest', asking(someone, register), 3)).toBe(1);
  const next = await prepared(4, active);
  const replaced: Tokens[] = [];
  const another = () => {
    const tokens = next.shift()!;
    tokens.device = newDevice();
    replaced.push(tokens);
    return tokens;
  };
  expect(await walk.through('registerToken', asking(another, register), 4)).toBe(3);

  await allAnswered();
  for (const tokens of owners) {
    const [known, ...others] = onRouter(tokens);
    expect(others).toEqual([]);
    expect(known).toMatchObject({ status: expect.stringMatching(/^(REGISTERED|CONFIRMED)$/) });
    expect(await tokens.row()).toMatchObject({
      token_id: known!.tokenId,
      status: 'REGISTERED',
      action: null,
      mode: 'INSTANT',
    });
  }
  expect(router().tokens()).toHaveLength(owners.length);
  // The router keeps the subscriptions of a token that moves to another device, and the code sent there opens it.
  for (const tokens of replaced) {
    const pushes = pushesTo(agent.routers.sink, tokens.device.token, 'verification');
    await tokens.verify(tokens.device, await agent.verification(tokens.device, pushes.length));
  }
  await allInOrder();
}, 480_000);

test('N15 N17 a process that dies after any step of verifying: the token is active, and subscriptions follow', async () => {
  const tokens = await prepared(8, registered);
  const next = () => tokens.shift();
  // The code is kept, given to the router, and done with; the checks are due.
  expect(await walk.through('verifyToken', asking(next, verify), 4)).toBe(4);
  expect(await walk.through('followToken', asking(next, verify), 2)).toBe(1);
  expect(await walk.through('setTokenCron', asking(next, verify, isInUse), 2)).toBe(1);

  await allAnswered();
  for (const tokens of owners) {
    await eventually(
      'the token to be in order',
      async () => {
        const [known, ...others] = onRouter(tokens);
        expect(others).toEqual([]);
        expect(known).toMatchObject({ status: 'ACTIVE', cronMinutes: 20 });
        expect(await tokens.row()).toMatchObject({
          token_id: known!.tokenId,
          status: 'ACTIVE',
          action: 'CHECK',
          mode: 'INSTANT',
        });
        return true;
      },
      CRON_LIMIT_MS,
    );
  }
  await allInOrder();
}, 600_000);

test('N5 N11 N15 N17 a process that dies after any step of deleting a token: it is gone on both sides, with all that hung on it', async () => {
  const tokens = await prepared(9, active);
  const next = () => tokens.shift();
  const remove = (one: Tokens) => one.delete();
  const isGone = async (one: Tokens) => {
    const { host, port } = router().address;
    const worker = { agentId: one.agentId, pool: 'ntf-tkn-del', server: { host, port } } as const;
    const handle = agent.slot.client.workflow.getHandle(poolWorkerWorkflowId(worker));
    return onRouter(one).length === 0 && isAtRest(handle);
  };
  // The rows, and a worker that is woken. Of the last: an attempt is counted, the router is asked, the record goes.
  expect(await walk.through('deleteToken', asking(next, remove), 3)).toBe(2);
  expect(await walk.through('followToken', asking(next, remove), 2)).toBe(1);
  expect(await walk.through('runTokenDeletion', asking(next, remove, isGone), 4)).toBe(3);

  await allAnswered();
  await eventually(
    'all tokens to be gone',
    async () => {
      expect(await agent.rows('SELECT agent_id FROM subscriptions.ntf_tokens_to_delete')).toEqual([]);
      for (const tokens of owners) {
        expect(onRouter(tokens)).toEqual([]);
        expect(await tokens.row()).toBeUndefined();
      }
      return true;
    },
    120_000,
  );
  await allInOrder();
}, 480_000);
