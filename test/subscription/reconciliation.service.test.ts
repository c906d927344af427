/**
 * What rows and routers come to although something went wrong on the way: fingerprints, connections that were switched
 * off, rows that could not be read, and subscriptions that were given up.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';
import { recipientKeyContext, deletionKeyContext } from '../../api/subscription/rows.ts';
import { createKeyBox } from '../../api/key-box.ts';
import { createBinaryCertificate } from '../../dev/stand-ins/subscription/binary/certificates.ts';
import { startMessagingRouter } from '../../dev/stand-ins/subscription/messaging-router.ts';
import { makeQueues } from '../../dev/stand-ins/subscription/queues.ts';
import {
  SUBSCRIPTION_TASK_QUEUE,
  poolWorkerWorkflowId,
  supervisorWorkflowId,
} from '../../workflows/subscription/contract.ts';
import { stateOf } from '../../activities/workflows.ts';
import { eventually } from '../harness.ts';
import { AGENT, KEY_BOX, agentOfTests } from './agent.ts';
import { valueOf } from './router-agent.ts';

const agent = agentOfTests({ smp: 2 });
beforeAll(async () => {
  await agent.start();
  await agent.activateToken();
});
afterEach(async () => {
  for (const router of [...agent.routers.smp, ...agent.routers.ntf]) router.heal();
  await setToken('ACTIVE', 'INSTANT');
});

const [WRONG, OTHER] = ['B'.repeat(42), 'C'.repeat(42)].map((start) => `${start}A`) as [string, string];
/** Sealed with a key that the service does not have. */
const OTHER_BOX = createKeyBox([{ id: 'other', key: Buffer.alloc(32, 7) }]);

const server = (index = 0) => agent.routers.smp[index]!.address;
const setToken = (status: string, mode: string | null) =>
  agent.rows('UPDATE subscriptions.ntf_tokens SET status = $1, mode = $2, updated_at = clock_timestamp()', [
    status,
    mode,
  ]);
const toggle = (connIds: string[], enable: boolean) => agent.toggle(connIds, enable);
const operator = (agentId?: string) => agent.operator(agentId);
const subscriptions = () => operator().subscriptions;
const trust = (protocol: 'smp' | 'ntf', address: RouterAddress) =>
  subscriptions().trust({ protocol, ...address });

async function createActive(count = 1, router = 0): Promise<string[]> {
  const connIds = await agent.create(
    Array.from({ length: count }, () => ({ userId: 1, server: server(router) })),
  );
  await agent.active(connIds);
  return connIds;
}

async function sweep(): Promise<void> {
  await agent.sweep();
  await agent.idle();
}

const gone = (connId: string) =>
  eventually('its record to go', async () => (await agent.record(connId)) === undefined);
const notifierOf = async (connId: string) => {
  const [row] = await agent.rows<{ rcv_id: string }>(
    'SELECT rcv_id FROM subscriptions.rcv_queues WHERE conn_id = $1',
    [connId],
  );
  return agent.routers.smp
    .flatMap((router) => router.queues())
    .find((queue) => queue.recipientId === row!.rcv_id)?.notifier;
};
const pinned = async (index = 0) =>
  agent.rows<{ key_hash: string }>('SELECT key_hash FROM subscriptions.smp_servers WHERE port = $1', [
    server(index).port,
  ]);
const queueHash = async (connId: string) =>
  (
    await agent.rows<{ server_key_hash: string | null }>(
      'SELECT server_key_hash FROM subscriptions.rcv_queues WHERE conn_id = $1',
      [connId],
    )
  )[0]!.server_key_hash;

test('subscription-B3 a fingerprint that differs stays with its queue, and breaks no other', async () => {
  // The first one that was named was wrong, and is kept for a queue.
  const [connId] = (await createActive(1, 1)) as [string];
  await agent.rows('UPDATE subscriptions.smp_servers SET key_hash = $2 WHERE port = $1', [
    server(1).port,
    WRONG,
  ]);
  const [other] = (await agent.create([{ userId: 1, server: server(1) }])) as [string];
  await agent.active([other]);
  expect([await queueHash(connId), await queueHash(other)]).toEqual([null, server(1).keyHash]);
  expect(await pinned(1)).toEqual([{ key_hash: WRONG }]);
  expect(await notifierOf(other)).toBeDefined();
  // An operator says which fingerprint holds for all; it is tried first.
  await expect(trust('smp', { ...server(1), keyHash: OTHER })).rejects.toThrow(/BROKER NETWORK/);
  expect(await pinned(1)).toEqual([{ key_hash: WRONG }]);
  await trust('smp', server(1));
  expect(await pinned(1)).toEqual([{ key_hash: server(1).keyHash }]);
  expect([await queueHash(connId), await queueHash(other)]).toEqual([null, null]);
  await toggle([connId], false);
  await gone(connId);
});

test('N18 an exchanged certificate of a notification router is trusted once it answers, and all that waited goes on', async () => {
  const ntf = agent.routers.ntf[0]!.address;
  const pinnedTo = () =>
    agent.rows('SELECT key_hash FROM subscriptions.ntf_servers WHERE port = $1', [ntf.port]);
  const deletions = () =>
    agent.rows<{ attempts: number }>('SELECT attempts FROM subscriptions.ntf_tokens_to_delete');
  await agent.rows('UPDATE subscriptions.ntf_servers SET key_hash = $2 WHERE port = $1', [ntf.port, WRONG]);
  const tokenId = randomBytes(24).toString('base64url');
  await agent.rows(
    `INSERT INTO subscriptions.ntf_tokens_to_delete (agent_id, host, port, key_hash, token_id, private_key)
     VALUES ($1, $2, $3, $4, $5, $6)`,
    [
      ...[AGENT, ntf.host, ntf.port, WRONG, tokenId],
      KEY_BOX.seal(generateAuthKeys().privateKey, deletionKeyContext(AGENT, tokenId)),
    ],
  );
  await sweep();
  const [connId] = (await agent.create([{ userId: 1, server: server() }])) as [string];
  await eventually(
    'both to wait for the router',
    async () =>
      (await deletions())[0]!.attempts > 1 && (await agent.workerState('ntf-ntf', ntf)).doing === 'retrying',
  );

  await expect(trust('ntf', { ...ntf, keyHash: OTHER })).rejects.toThrow(/BROKER NETWORK/);
  // Also known by another name, which is not that of the agent's.
  await expect(trust('ntf', { ...ntf, host: `${ntf.host},other.invalid` })).rejects.toThrow(
    /no notification router/,
  );
  expect(await pinnedTo()).toEqual([{ key_hash: WRONG }]);
  await trust('ntf', ntf);
  expect(await pinnedTo()).toEqual([{ key_hash: ntf.keyHash }]);
  await agent.active([connId]);
  await eventually('the deletion of the token', async () => (await deletions()).length === 0);
});

test('N18 a messaging router under another certificate is made known to the notification router, too', async () => {
  const dir = mkdtempSync(path.join(tmpdir(), 'router-'));
  const dataFile = path.join(dir, 'messaging.json');
  let router = await startMessagingRouter({ dataFile });
  try {
    const before = router.address;
    const [connId] = (await agent.create([{ userId: 1, server: before }])) as [string];
    await agent.active([connId]);
    const former = (await agent.record(connId))!.smp_ntf_id;
    await router.stop();
    const held = JSON.parse(readFileSync(dataFile, 'utf8')) as object;
    writeFileSync(dataFile, JSON.stringify({ ...held, certificate: await createBinaryCertificate() }));
    router = await startMessagingRouter({ dataFile, port: before.port });
    expect(router.address.keyHash).not.toBe(before.keyHash);

    await trust('smp', router.address);
    await eventually('the notification router to hear messages again', async () => {
      const { smp_ntf_id: notifierId, ntf_action: next } = (await agent.record(connId))!;
      if (next !== 'C' || notifierId === former) return false;
      return agent.routers.ntf[0]!.subscriptions().some(
        (one) => one.notifierId === notifierId && one.status === 'ACTIVE',
      );
    });
    // Trusted once more, nothing is made again.
    const record = await agent.record(connId);
    await trust('smp', router.address);
    expect(await agent.record(connId)).toEqual(record);
    await agent.remove([connId]);
    await gone(connId);
  } finally {
    await router.stop();
    rmSync(dir, { recursive: true });
  }
});

test('I49 N19 workers whose workflow task fails for ever are restarted by the sweep', async () => {
  const { workflow } = agent.slot.client;
  const [ntf] = agent.routers.ntf;
  const workerId = poolWorkerWorkflowId({ agentId: AGENT, pool: 'ntf-ntf', server: ntf!.address });
  // No worker knows the type.
  const getStuck = async () => {
    await workflow.start('unknownType', {
      ...{ workflowId: workerId, taskQueue: SUBSCRIPTION_TASK_QUEUE },
      ...{ workflowIdConflictPolicy: 'TERMINATE_EXISTING', workflowTaskTimeout: '1s' },
    });
    await eventually('the worker to be stuck', async () => (await stateOf(workflow, workerId)) === 'STUCK');
  };
  await getStuck();
  const [connId] = await agent.create([{ userId: 1, server: server() }]);
  await eventually('the worker to be replaced', async () => {
    const { replaced } = await agent.sweep();
    return replaced === 1;
  });
  await agent.active([connId!]);
  // One that is idle is not taken for stuck.
  await agent.idle();
  expect(await stateOf(workflow, supervisorWorkflowId(AGENT), true)).toBe('RUNNING');
});

test('subscription-B5 what was switched off while the token could not be used is ended by the sweep', async () => {
  const [off, kept] = (await createActive(2)) as [string, string];
  await setToken('REGISTERED', 'INSTANT');
  expect(await toggle([off], false)).toMatchObject({ changed: 1 });
  await agent.idle();
  expect(await agent.record(off)).toBeDefined();
  await sweep();
  await gone(off);
  expect(await notifierOf(off)).toBeUndefined();
  expect(await agent.record(kept)).toMatchObject({ ntf_action: 'C' });
});

test('subscription-B5 the sweep ends subscriptions of connections that are gone, and all of an agent that wants none', async () => {
  const [deleted, unheard, plain] = (await createActive(3)) as [string, string, string];
  // Their commands were lost.
  await agent.rows('UPDATE subscriptions.connections SET is_deleted = true WHERE conn_id = $1', [deleted]);
  expect(await subscriptions().import([{ userId: 1, connId: deleted, ...(await queueOf(deleted)) }])).toEqual(
    [{ error: `${deleted}: the connection is still being deleted` }],
  );
  await sweep();
  await gone(deleted);
  expect(await agent.record(unheard)).toMatchObject({ ntf_action: 'C' });
  // Made PERIODIC while another device took over: verifying it commands nothing.
  await setToken('ACTIVE', 'PERIODIC');
  await sweep();
  await gone(unheard);
  await gone(plain);
});

test('subscription-B5 the sweep starts one over that was given up and is switched on since, and leaves the others', async () => {
  const [on, left] = (await createActive(2)) as [string, string];
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions SET ntf_action = NULL, action_ts = NULL, updated_at = clock_timestamp()
      WHERE conn_id = ANY($1)`,
    [[on, left]],
  );
  // The command was lost with the process that was to send it.
  await agent.rows(
    'UPDATE subscriptions.connections SET enable_ntfs = true, updated_at = clock_timestamp() WHERE conn_id = $1',
    [on],
  );
  await sweep();
  await agent.active([on]);
  expect(await agent.record(left)).toMatchObject({ ntf_action: null, smp_action: null });
  await agent.remove([on, left]);
  await gone(left);
});

/** Replaces the recipient's key by one that does not open, as after a start without the key that sealed it. */
async function loseKey(connId: string): Promise<Buffer> {
  const [row] = await agent.rows<{ rcv_id: string; rcv_private_key: Buffer }>(
    'SELECT rcv_id, rcv_private_key FROM subscriptions.rcv_queues WHERE conn_id = $1',
    [connId],
  );
  const { rcv_id: rcvId, rcv_private_key: sealed } = row!;
  const plain = KEY_BOX.open(sealed, recipientKeyContext(AGENT, rcvId));
  await setKey(connId, OTHER_BOX.seal(plain, recipientKeyContext(AGENT, rcvId)));
  return sealed;
}
const setKey = (connId: string, sealed: Buffer) =>
  agent.rows('UPDATE subscriptions.rcv_queues SET rcv_private_key = $2 WHERE conn_id = $1', [connId, sealed]);

async function createUnreadable(): Promise<{ connId: string; sealed: Buffer }> {
  const [connId] = (await createActive()) as [string];
  await toggle([connId], false);
  await gone(connId);
  const sealed = await loseKey(connId);
  await toggle([connId], true);
  await eventually('its row to be marked', async () => (await agent.record(connId))?.smp_failed);
  return { connId, sealed };
}

test('subscription-B4 rows that could not be read are listed, counted and told once; a command starts them over, and the sweep once their keys open', async () => {
  await agent.rows('DELETE FROM subscriptions.events');
  const [created, back] = [await createUnreadable(), await createUnreadable()];
  const [deleted] = (await createActive()) as [string];
  const sealed = await loseKey(deleted);
  await agent.remove([deleted]);
  await eventually('the findings', async () => (await subscriptions().status()).unreadable === 3);
  const { items } = await subscriptions().list({ isUnreadable: true });
  expect(items.map(({ connId }) => connId).sort()).toEqual([created.connId, back.connId].sort());
  await sweep();
  await sweep();
  expect(await agent.events()).toHaveLength(3);

  await setKey(created.connId, created.sealed);
  await agent.command([created.connId]);
  await agent.active([created.connId]);
  expect(await agent.record(created.connId)).toMatchObject({ ntf_failed: false, smp_failed: false });
  expect(await agent.record(back.connId)).toMatchObject({ smp_failed: true });
  expect(await notifierOf(deleted)).toBeDefined();
  await setKey(back.connId, back.sealed);
  await setKey(deleted, sealed);
  await sweep();
  await agent.active([back.connId]);
  await eventually('the deleted connection to go', async () => {
    const left = await agent.rows('SELECT 1 FROM subscriptions.connections WHERE conn_id = $1', [deleted]);
    return left.length === 0;
  });
  expect(await subscriptions().status()).toMatchObject({ unreadable: 0 });
});

test('subscription-B4 a deleted connection whose key is lost for good goes after three weeks, with its queue, and no other', async () => {
  const [lost, young] = (await createActive(2)) as [string, string];
  await loseKey(lost);
  await loseKey(young);
  await agent.remove([lost, young]);
  await eventually('the findings', async () => (await subscriptions().status()).unreadable === 2);
  await agent.rows(
    "UPDATE subscriptions.connections SET updated_at = updated_at - interval '22 days' WHERE conn_id = $1",
    [lost],
  );
  await agent.slot.client.schedule.getHandle('subscription-retention').trigger();
  const left = (table: string) =>
    agent.rows(`SELECT conn_id FROM subscriptions.${table} WHERE conn_id = ANY($1)`, [[lost, young]]);
  await eventually('it to go', async () => (await left('connections')).length === 1);
  expect(await left('rcv_queues')).toEqual([{ conn_id: young }]);
  await agent.rows('DELETE FROM subscriptions.connections WHERE conn_id = $1', [young]);
});

test('N11 a deleted connection goes, also where its router refuses to end the notifier', async () => {
  const [refused, forgotten] = (await createActive(2)) as [string, string];
  await agent.rows('DELETE FROM subscriptions.events');
  const fails = async (code: string, connId: string) => {
    agent.routers.smp[0]!.fail({ failure: { kind: 'error', code }, subject: 'NDEL', times: 1 });
    await agent.remove([connId]);
  };
  const left = () => agent.rows('SELECT FROM subscriptions.connections WHERE is_deleted');
  // Its application has deleted the queue before.
  await fails('AUTH', forgotten);
  await eventually('the forgotten one to go', async () => (await left()).length === 0);
  await fails('QUOTA', refused);
  await eventually('the report', async () => (await agent.events()).length === 1);
  expect(await agent.events()).toMatchObject([{ errors: [{ connId: refused, error: 'SMP QUOTA' }] }]);
  expect(await left()).toEqual([]);
  expect(await agent.record(refused)).toBeUndefined();
});

test('I50 the sweep finds what is missing behind more agents and connections than one statement looks at', async () => {
  const [connId] = (await createActive()) as [string];
  await agent.slot.db.query(`
    INSERT INTO subscriptions.agents (agent_id) SELECT 'a' || n FROM generate_series(1, 150) AS n;
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id)
    SELECT '${AGENT}', '0000' || n, 1 FROM generate_series(1, 2500) AS n;
    DELETE FROM subscriptions.ntf_subscriptions WHERE conn_id = '${connId}'`);
  await sweep();
  await agent.active([connId]);
  await agent.slot.db.query(`
    DELETE FROM subscriptions.connections WHERE conn_id LIKE '0000%';
    DELETE FROM subscriptions.agents WHERE agent_id <> '${AGENT}'`);
});

/** A queue as an application hands it over. */
async function queueOf(connId: string) {
  const [queue] = await agent.rows<{ rcv_id: string; rcv_private_key: Buffer }>(
    'SELECT rcv_id, rcv_private_key FROM subscriptions.rcv_queues WHERE conn_id = $1',
    [connId],
  );
  const { rcv_id: recipientId, rcv_private_key: sealed } = queue!;
  const key = KEY_BOX.open(sealed, recipientKeyContext(AGENT, recipientId));
  return { server: server(), recipientId, recipientPrivateKey: key.toString('base64url') };
}

/** An application takes its queue away from here, with the notifier that it has on its router. */
async function takeAway(connId: string): Promise<void> {
  await agent.rows('DELETE FROM subscriptions.connections WHERE conn_id = $1', [connId]);
}

/** A queue that an application uses, with a message that it has not received yet. */
async function applicationQueue() {
  const [connId] = (await createActive()) as [string];
  const queue = await queueOf(connId);
  await takeAway(connId);
  const router = agent.routers.smp[0]!;
  router.send(
    router.queues().find(({ recipientId }) => recipientId === queue.recipientId)!.senderId,
    'unread',
  );
  return queue;
}

test('subscription-L5 queues that an application has already are imported, subscribed, and not imported twice', async () => {
  const [connId] = (await createActive()) as [string];
  const exported = { userId: 3, ...(await queueOf(connId)) };
  const { recipientPrivateKey } = exported;
  expect(await subscriptions().import([exported])).toEqual([
    { error: expect.stringMatching(/the queue exists already$/) as string },
  ]);
  await takeAway(connId);
  await expect(subscriptions().import([{ ...exported, recipientPrivateKey: 'short' }])).rejects.toThrow(
    /^queue 1: recipientPrivateKey: must be 32 bytes/,
  );
  const named = { ...exported, connId: 'theirs' };
  expect(await subscriptions().import([named])).toEqual([{ connId: 'theirs', hasCredentials: false }]);
  await agent.active(['theirs']);
  expect(await subscriptions().import([named])).toEqual([{ connId: 'theirs', hasCredentials: true }]);
  expect(await notifierOf('theirs')).toBeDefined();
  expect(await agent.rows('SELECT 1 FROM subscriptions.requests')).toEqual([]);
  // Neither histories nor logs have the key.
  const { events } = await agent.supervisor.fetchHistory();
  expect(JSON.stringify([events, agent.slot.logs])).not.toContain(recipientPrivateKey);
  expect(await subscriptions().statistics({ userId: 3 })).toMatchObject({
    items: expect.arrayContaining([expect.objectContaining({ counter: 'ntfKey', value: 1 })]) as object[],
  });
});

test('N19 credentials that an application has on its router are taken over, until the subscription has its own', async () => {
  const [queue] = await makeQueues([{ userId: 1, server: server() }]);
  const { recipientId, recipientPrivateKey } = queue!;
  const [auth, dh] = [generateAuthKeys(), generateDhKeys()];
  const key = Buffer.from(recipientPrivateKey, 'base64url');
  const itsOwn = { address: server(), userId: 1, connId: '', recipientId, recipientPrivateKey: key };
  const application = createMessagingRouters();
  const [made] = await application.createNotifierKeys([{ queue: itsOwn, auth, dh }]);
  await application.close();
  const { notifierId, routerDhPublicKey } = valueOf(made);
  const text = (bytes: Buffer) => bytes.toString('base64url');

  const [taken] = await subscriptions().import([
    {
      ...{ ...queue!, server: routerAddressText(server(), 'smp') },
      notifier: {
        ...{ notifierId, publicKey: text(auth.publicKey), privateKey: text(auth.privateKey) },
        dhSecret: text(dhSecret(routerDhPublicKey, dh.privateKey)),
      },
    },
  ]);
  expect(taken).toMatchObject({ hasCredentials: true });
  const { connId } = taken as { connId: string };
  await agent.active([connId]);
  const now = (await notifierOf(connId))!.notifierId;
  expect(now).not.toBe(notifierId);
  await eventually('the notification router to listen', async () =>
    agent.routers.smp[0]!.subscribed().includes(now),
  );
});

test('I79 kinds-F8 an application keeps its imported queue with all messages when the connection is deleted or its user forgotten', async () => {
  const queues = [await applicationQueue(), await applicationQueue(), await applicationQueue()];
  const stored = ({ recipientId }: { recipientId: string }) =>
    agent.routers.smp[0]!.queues().find((queue) => queue.recipientId === recipientId);
  const itsOwn = stored(queues[2]!)!.notifier;
  const told = await agent.events();
  await subscriptions().import([
    { ...queues[0], userId: 31, connId: 'deleted' },
    { ...queues[1], userId: 32, connId: 'forgotten' },
    { ...queues[2], userId: 31, connId: 'silent', enableNotifications: false },
  ]);
  await agent.active(['deleted', 'forgotten']);

  expect(await subscriptions().delete(['deleted', 'silent'])).toMatchObject({ deleted: 2, unknown: [] });
  const { users } = operator();
  const jane = { userId: 'jane', subscriptionUser: 32 };
  const found = { what: 'subscriptions.connections', count: 1 };
  expect((await users.preview(jane)).removed).toEqual([found]);
  expect((await users.forget(jane, { requestedBy: 'nina' })).removed).toContainEqual(found);
  await eventually('the connections to go', async () => {
    const left = await agent.rows(
      'SELECT user_id FROM subscriptions.connections WHERE user_id = ANY($1) UNION ALL SELECT user_id FROM subscriptions.ntf_subscriptions WHERE user_id = ANY($1)',
      [[31, 32]],
    );
    return left.length === 0;
  });
  expect(queues.map((queue) => stored(queue)?.messages.length)).toEqual([1, 1, 1]);
  // The notifiers that the service has made go; the application's own one does not.
  expect(queues.map((queue) => stored(queue)!.notifier)).toEqual([undefined, undefined, itsOwn]);
  expect(itsOwn).toBeDefined();
  expect(await agent.events()).toEqual(told);
  // What workers counted meanwhile.
  const { remains } = await users.forget(jane, { requestedBy: 'nina' });
  expect(remains.filter(({ what }) => what.includes('sealed keys'))).toEqual([]);
  expect((await subscriptions().statistics({ userId: 32 })).items).toEqual([]);
  expect((await subscriptions().statistics({ userId: 31 })).items).not.toEqual([]);
});

test('kinds-F8 a queue belongs to one agent: another one cannot import it before the first has given it back', async () => {
  const queue = { ...(await applicationQueue()), userId: 33 };
  const other = operator('other').subscriptions;
  await subscriptions().import([{ ...queue, connId: 'shared' }]);
  await agent.active(['shared']);

  expect(await other.import([{ ...queue, connId: 'shared' }])).toEqual([
    { error: `shared: agent ${AGENT} has the queue already` },
  ]);
  await subscriptions().delete(['shared']);
  await eventually('it to be given back', async () => {
    const [imported] = await other.import([{ ...queue, connId: 'shared' }]);
    return 'connId' in imported!;
  });
});
