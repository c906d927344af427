/** What becomes of an operation on a token that a process carries out after it stood still. */
import { randomUUID } from 'node:crypto';
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import type { NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { generateDhKeys } from '../../activities/subscription/router/keys.ts';
import { createSubscriptionTokenActivities } from '../../activities/subscription/token.ts';
import { tokenRequests } from '../../api/subscription/rows.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import { createLogger } from '../../workers/logger.ts';
import type { TokenUpdate } from '../../workflows/subscription/contract.ts';
import { slotOfTests } from '../harness.ts';
import { KEY_BOX } from './agent.ts';
import { newDevice } from './router-agent.ts';

const ROUTER: RouterAddress = { host: 'ntf.test', port: 1, keyHash: 'hash' };
const CONTEXT = { heartbeat: () => undefined, cancelled: new Promise(() => undefined) } as unknown as Context;

const slot = slotOfTests();

/** Operations on an agent's token. The first registration is held at the router, or else the first transaction. */
async function tokensOf(agentId: string, heldAt: 'router' | 'transaction') {
  const { db } = slot;
  const held = holdAnswers();
  let comers = 0;
  const passAt = async (place: typeof heldAt): Promise<void> => {
    if (place !== heldAt || (comers += 1) > 1) return;
    held.failure.onArrival!();
    await held.failure.until;
  };
  const router: Partial<NotificationRouter> = {
    async registerToken() {
      await passAt('router');
      return { ok: true, value: { tokenId: randomUUID(), routerDhPublicKey: generateDhKeys().publicKey } };
    },
  };
  const heldDb = {
    query: db.query.bind(db),
    connect: (done: Parameters<Pool['connect']>[0]) =>
      void passAt('transaction').then(() => db.connect(done)),
  } as unknown as Pool;
  const activities = createSubscriptionTokenActivities({
    ...{ db: heldDb, log: createLogger('silent'), keyBox: KEY_BOX, ntfServers: [ROUTER] },
    notificationRouter: router as NotificationRouter,
    commands: {
      reconcile: async () => undefined,
      kickTokenDeletion: async () => undefined,
    },
  });
  await db.query('INSERT INTO subscriptions.agents (agent_id) VALUES ($1)', [agentId]);

  async function request(kind: TokenUpdate): Promise<string> {
    const requestId = randomUUID();
    const sealed = tokenRequests.seal(KEY_BOX, requestId, kind === 'register' ? { device: newDevice() } : {});
    await db.query(
      'INSERT INTO subscriptions.requests (request_id, agent_id, kind, sealed) VALUES ($1, $2, $3, $4)',
      [requestId, agentId, kind, sealed],
    );
    return requestId;
  }

  /** Not by a worker, so that nothing measures its time. */
  const register = (requestId: string) =>
    asyncLocalStorage.run(CONTEXT, () => activities.registerToken(agentId, requestId));
  const remove = (requestId: string) =>
    asyncLocalStorage.run(CONTEXT, () => activities.deleteToken(agentId, requestId));
  const row = async () => {
    const { rows } = await db.query('SELECT * FROM subscriptions.ntf_tokens WHERE agent_id = $1', [agentId]);
    return rows[0] as unknown;
  };

  return {
    ...{ held, request, register, remove, row },
    /** @returns the row of the next device's token, which is active. */
    async next(): Promise<unknown> {
      expect(await register(await request('register'))).toMatchObject({ ok: true });
      await db.query(`UPDATE subscriptions.ntf_tokens SET status = 'ACTIVE' WHERE agent_id = $1`, [agentId]);
      return row();
    },
  };
}

test('kinds-F2 an answer about a token is not saved for the token that has taken its place', async () => {
  const tokens = await tokensOf('replaced', 'router');
  const answered = tokens.register(await tokens.request('register'));
  await tokens.held.arrived;
  await tokens.remove(await tokens.request('delete'));
  const next = await tokens.next();
  tokens.held.release();
  await answered;
  expect(await tokens.row()).toEqual(next);
});

test('kinds-F2 a deletion has its effect once, though two attempts have found it to be done', async () => {
  const tokens = await tokensOf('deleted', 'transaction');
  const first = await tokens.request('delete');
  const late = tokens.remove(first);
  await tokens.held.arrived;
  await tokens.next();
  expect(await tokens.remove(first)).toEqual({ ok: true });
  expect(await tokens.row()).toBeUndefined();
  const next = await tokens.next();
  tokens.held.release();
  expect(await late).toEqual({ ok: true });
  expect(await tokens.row()).toEqual(next);
});
