/** Operations on tokens, and a process that dies after each step of them. */
import { poolWorkerWorkflowId } from '../../workflows/subscription/contract.ts';
import { answerTo, isAtRest } from '../crash-walk.ts';
import { eventually } from '../harness.ts';
import { newDevice } from './router-agent.ts';
import { agreement } from './agreement.ts';
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
async function prepared(count: number, make: () => Promise<Tokens>): Promise<() => Tokens> {
  await walk.survivor();
  const made = await Promise.all(Array.from({ length: count }, make));
  return () => made.shift()!;
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
function ask(operation: () => Promise<unknown>): () => Promise<boolean> {
  const answer = operation();
  asked.push({ answer, again: operation });
  return answerTo(answer);
}
async function allAnswered(): Promise<void> {
  for (const { answer, again } of asked.splice(0)) await answer.catch(again);
}

const requestsLeft = () => agent.rows('SELECT kind FROM subscriptions.requests');

test('N15 N17 a process that dies after any step of registering: one token here and on the router', async () => {
  const register = async () => {
    const tokens = someone();
    return ask(() => tokens.register(tokens.device, 'INSTANT'));
  };
  const kills = {
    registered: await walk.through('registerToken', register, 7),
    request: await walk.through('removeTokenRequest', register, 3),
    replaced: 0,
  };
  const next = await prepared(4, active);
  const replaced: Tokens[] = [];
  kills.replaced = await walk.through(
    'registerToken',
    async () => {
      const tokens = next();
      replaced.push(tokens);
      tokens.device = newDevice();
      return ask(() => tokens.register(tokens.device, 'INSTANT'));
    },
    4,
  );
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // The agent, the token with its keys, the router, what it answered, the mode.
  expect(kills).toEqual({ registered: 5, request: 1, replaced: 3 });

  await walk.survivor();
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
  expect(await requestsLeft()).toEqual([]);
  // The router keeps the subscriptions of a token that moves to another device, and the code sent there opens it.
  for (const tokens of replaced) {
    const pushes = agent.routers.sink.pushes.filter(
      ({ token, kind }) => token === tokens.device.token && kind === 'verification',
    );
    await tokens.verify(tokens.device, await agent.verification(tokens.device, pushes.length));
  }
  await agreement(agent);
  expect(await agent.events()).toEqual([]);
}, 480_000);

test('N15 N17 a process that dies after any step of verifying: the token is active, and subscriptions follow', async () => {
  const next = await prepared(8, registered);
  const put = async () => {
    const tokens = next();
    return ask(() => verify(tokens));
  };
  const putUntilCron = async () => {
    const tokens = next();
    const isAnswered = ask(() => verify(tokens));
    return async () => (await isAnswered()) && isInUse(tokens);
  };
  const kills = {
    verified: await walk.through('verifyToken', put, 4),
    subscribed: await walk.through('followToken', put, 2),
    cron: await walk.through('setTokenCron', putUntilCron, 2),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // The code is kept, given to the router, and done with; the checks are due.
  expect(kills).toEqual({ verified: 4, subscribed: 1, cron: 1 });

  await walk.survivor();
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
  expect(await requestsLeft()).toEqual([]);
  await agreement(agent);
  expect(await agent.events()).toEqual([]);
}, 600_000);

test('N5 N11 N15 N17 a process that dies after any step of deleting a token: it is gone on both sides, with all that hung on it', async () => {
  const next = await prepared(9, active);
  const put = async () => {
    const tokens = next();
    return ask(() => tokens.delete());
  };
  const putUntilGone = async () => {
    const tokens = next();
    const { host, port } = router().address;
    const { agentId } = tokens;
    const worker = agent.slot.client.workflow.getHandle(
      poolWorkerWorkflowId({ agentId, pool: 'ntf-tkn-del', server: { host, port } }),
    );
    const isAnswered = ask(() => tokens.delete());
    return async () => (await isAnswered()) && onRouter(tokens).length === 0 && isAtRest(worker);
  };
  const kills = {
    deleted: await walk.through('deleteToken', put, 3),
    unsubscribed: await walk.through('followToken', put, 2),
    told: await walk.through('runTokenDeletion', putUntilGone, 4),
  };
  console.info(`processes that died: ${JSON.stringify(kills)}`);
  // The rows, and a worker that is woken. Of the last: an attempt is counted, the router is asked, the record goes.
  expect(kills).toEqual({ deleted: 2, unsubscribed: 1, told: 3 });

  await walk.survivor();
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
  expect(await requestsLeft()).toEqual([]);
  await agreement(agent);
  expect(await agent.events()).toEqual([]);
}, 480_000);
