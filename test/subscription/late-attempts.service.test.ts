/** What becomes of an operation on a token, or of a command, that a process carries out after it stood still. */
import { randomUUID } from 'node:crypto';
import type { Context } from '@temporalio/activity';
import { asyncLocalStorage } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import type { NotificationRouter } from '../../activities/subscription/router/routers.ts';
import { generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { SubscriptionResources } from '../../activities/subscription/batches.ts';
import { createCommandWork } from '../../activities/subscription/supervisor.ts';
import { createSubscriptionTokenActivities } from '../../activities/subscription/token.ts';
import { tokenRequests } from '../../api/subscription/requests.ts';
import { createLogger } from '../../workers/logger.ts';
import type { TokenUpdate } from '../../workflows/subscription/contract.ts';
import { slotOfTests } from '../harness.ts';
import { createGate, runLate } from '../late-attempts.ts';
import { KEY_BOX } from './agent.ts';
import { newDevice } from './router-agent.ts';

const ROUTER: RouterAddress = { host: 'ntf.test', port: 1, keyHash: 'hash' };
const CONTEXT = { heartbeat: () => undefined, cancelled: new Promise(() => undefined) } as unknown as Context;

const slot = slotOfTests();

/** Operations on an agent's token. The first registration is held at the router, or else the first transaction. */
async function tokensOf(agentId: string, heldAt: 'router' | 'transaction') {
  const { db } = slot;
  const gate = createGate();
  const passAt = (place: typeof heldAt) => (place === heldAt ? gate.pass() : Promise.resolve());
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
      createAll: async () => undefined,
      flushAndSmpDeleteAll: async () => undefined,
      kickTokenDeletion: async () => undefined,
    },
  });
  await db.query('INSERT INTO subscriptions.agents (agent_id) VALUES ($1)', [agentId]);

  async function request(kind: TokenUpdate): Promise<string> {
    const requestId = randomUUID();
    const sealed = tokenRequests.seal(KEY_BOX, requestId, kind === 'register' ? { device: newDevice() } : {});
    await db.query(
      'INSERT INTO subscriptions.token_requests (request_id, agent_id, kind, sealed) VALUES ($1, $2, $3, $4)',
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
    ...{ activities, gate, request, register, remove, row },
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
  await tokens.gate.reached;
  await tokens.remove(await tokens.request('delete'));
  const next = await tokens.next();
  tokens.gate.open();
  await answered;
  expect(await tokens.row()).toEqual(next);
});

test('kinds-F2 a deletion has its effect once, though two attempts have found it to be done', async () => {
  const tokens = await tokensOf('deleted', 'transaction');
  const first = await tokens.request('delete');
  const late = tokens.remove(first);
  await tokens.gate.reached;
  await tokens.next();
  expect(await tokens.remove(first)).toMatchObject({ ok: true, server: { host: ROUTER.host } });
  const next = await tokens.next();
  tokens.gate.open();
  expect(await late).toEqual({ ok: true });
  expect(await tokens.row()).toEqual(next);
});

test('kinds-F2 a late smp-delete does not end a subscription that was switched on again', async () => {
  const { db } = slot;
  await db.query(`
    INSERT INTO subscriptions.agents (agent_id) VALUES ('switched');
    INSERT INTO subscriptions.smp_servers (agent_id, host, port, key_hash) VALUES ('switched', 'smp.test', 1, 'hash');
    INSERT INTO subscriptions.ntf_servers (agent_id, host, port, key_hash) VALUES ('switched', 'ntf.test', 1, 'hash');
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id) VALUES ('switched', 'c', 1);
    INSERT INTO subscriptions.rcv_queues (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
    VALUES ('switched', 'c', 'smp.test', 1, 'r', '');
    INSERT INTO subscriptions.ntf_subscriptions
           (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, ntf_action, action_ts)
    VALUES ('switched', 'c', 1, 'smp.test', 1, 'ntf.test', 1, 'CREATED ACTIVE', 'C', now())`);
  const actions = async () => {
    const { rows } = await db.query<{ ntf_action: string | null; smp_action: string | null }>(
      "SELECT ntf_action, smp_action FROM subscriptions.ntf_subscriptions WHERE agent_id = 'switched'",
    );
    return rows;
  };
  const gate = createGate();
  const heldDb = {
    query: db.query.bind(db),
    connect: (done: Parameters<Pool['connect']>[0]) => void gate.pass().then(() => db.connect(done)),
  } as unknown as Pool;
  const { applyCommand } = createCommandWork({
    ...{ db: heldDb, log: createLogger('silent'), metrics: { subscriptionCommand: () => undefined } },
    workflows: { signalWithStart: async () => undefined },
  } as unknown as SubscriptionResources);
  const late = await runLate(
    slot,
    { applyCommand },
    {
      ...{ name: 'applyCommand', gate },
      args: [{ agentId: 'switched', kind: 'smp-delete', connIds: ['c'], nowMs: Date.now() }],
      async between() {
        expect(await actions()).toEqual([{ ntf_action: null, smp_action: 'D' }]);
        await db.query(
          "UPDATE subscriptions.ntf_subscriptions SET ntf_action = 'C', smp_action = NULL WHERE agent_id = 'switched'",
        );
      },
    },
  );
  expect(late).toBeInstanceOf(Error);
  expect(await actions()).toEqual([{ ntf_action: 'C', smp_action: null }]);
});
