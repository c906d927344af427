/**
 * What rows and routers come to although something went wrong on the way: fingerprints, connections that were switched
 * off, rows that could not be read, and subscriptions that were given up.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { dhSecret, generateAuthKeys, generateDhKeys } from '../../activities/subscription/router/keys.ts';
import type { RouterAddress } from '../../activities/subscription/router/ports.ts';
import { createMessagingRouters } from '../../activities/subscription/router/routers.ts';
import { routerAddressText } from '../../api/subscription/router-address.ts';
import { recipientKeyContext } from '../../api/subscription/rows.ts';
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
import { scratchFolder } from '../scratch.ts';
import { AGENT, KEY_BOX, agentOfTests } from './agent.ts';
import { valueOf } from './router-agent.ts';

const agent = agentOfTests({ smp: 2 });
beforeAll(() => agent.startActive());
afterEach(async () => {
  agent.routers.heal();
  await agent.setToken('ACTIVE');
});

const [WRONG, OTHER] = ['B'.repeat(42), 'C'.repeat(42)].map((start) => `${start}A`) as [string, string];
/** Sealed with a key that the service does not have. */
const OTHER_BOX = createKeyBox([{ id: 'other', key: Buffer.alloc(32, 7) }]);

const scratch = scratchFolder('router');

const smp = () => agent.routers.smp[0]!;
const server = () => smp().address;
const subscriptions = () => agent.operator().subscriptions;
const trust = (protocol: 'smp' | 'ntf', address: RouterAddress) =>
  subscriptions().trust({ protocol, ...address });
const createOne = () => agent.create([{ userId: 1, server: server() }]) as Promise<[string]>;
const createActive = (count = 1) => agent.createActive(count) as Promise<[string, string, string]>;

async function sweep(): Promise<void> {
  await agent.sweep();
  await agent.idle();
}

const notifierOf = async (connId: string) => (await agent.queueOf(connId)).stored?.notifier;

test('subscription-B3 a fingerprint that differs stays with its queue, and breaks no other', async () => {
  const { address } = agent.routers.smp[1]!;
  const pinned = () =>
    agent.rows('SELECT key_hash FROM subscriptions.smp_servers WHERE port = $1', [address.port]);
  const keyHashes = async (connIds: string[]) =>
    (await Promise.all(connIds.map(agent.queueOf))).map((queue) => queue.server_key_hash);
  // The first one that was named was wrong, and is kept for a queue.
  const [connId] = (await agent.createActive(1, address)) as [string];
  await agent.rows('UPDATE subscriptions.smp_servers SET key_hash = $2 WHERE port = $1', [
    address.port,
    WRONG,
  ]);
  const [other] = (await agent.createActive(1, address)) as [string];
  expect(await keyHashes([connId, other])).toEqual([null, address.keyHash]);
  expect(await pinned()).toEqual([{ key_hash: WRONG }]);
  expect(await notifierOf(other)).toBeDefined();
  // An operator says which fingerprint holds for all; it is tried first.
  await expect(trust('smp', { ...address, keyHash: OTHER })).rejects.toThrow(/BROKER NETWORK/);
  expect(await pinned()).toEqual([{ key_hash: WRONG }]);
  await trust('smp', address);
  expect(await pinned()).toEqual([{ key_hash: address.keyHash }]);
  expect(await keyHashes([connId, other])).toEqual([null, null]);
  await agent.toggle([connId], false);
  await agent.gone(connId);
});

test('N18 an exchanged certificate of a notification router is trusted once it answers, and all that waited goes on', async () => {
  const ntf = agent.routers.ntf[0]!.address;
  const pinnedTo = () =>
    agent.rows('SELECT key_hash FROM subscriptions.ntf_servers WHERE port = $1', [ntf.port]);
  const deletions = () =>
    agent.rows<{ attempts: number }>('SELECT attempts FROM subscriptions.ntf_tokens_to_delete');
  await agent.rows('UPDATE subscriptions.ntf_servers SET key_hash = $2 WHERE port = $1', [ntf.port, WRONG]);
  await agent.insertDeletions([randomBytes(24).toString('base64url')], { ...ntf, keyHash: WRONG });
  await sweep();
  const [connId] = await createOne();
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
  const dataFile = path.join(scratch.dir, 'messaging.json');
  let router = await startMessagingRouter({ dataFile });
  try {
    const before = router.address;
    const [connId] = (await agent.createActive(1, before)) as [string];
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
    await agent.gone(connId);
  } finally {
    await router.stop();
  }
});

test('I49 N19 workers whose workflow task fails for ever are restarted by the sweep', async () => {
  const { workflow } = agent.slot.client;
  const [ntf] = agent.routers.ntf;
  const workerId = poolWorkerWorkflowId({ agentId: AGENT, pool: 'ntf-ntf', server: ntf!.address });
  // No worker knows the type.
  await workflow.start('unknownType', {
    ...{ workflowId: workerId, taskQueue: SUBSCRIPTION_TASK_QUEUE },
    ...{ workflowIdConflictPolicy: 'TERMINATE_EXISTING', workflowTaskTimeout: '1s' },
  });
  await eventually('the worker to be stuck', async () => (await stateOf(workflow, workerId)) === 'STUCK');
  const [connId] = await createOne();
  await eventually('the worker to be replaced', async () => (await agent.sweep()).replaced === 1);
  await agent.active([connId]);
  // One that is idle is not taken for stuck.
  await agent.idle();
  expect(await stateOf(workflow, supervisorWorkflowId(AGENT), true)).toBe('RUNNING');
});

test('subscription-B5 what was switched off while the token could not be used is ended by the sweep', async () => {
  const [off, kept] = await createActive(2);
  await agent.setToken('REGISTERED');
  expect(await agent.toggle([off], false)).toMatchObject({ changed: 1 });
  await agent.idle();
  expect(await agent.record(off)).toBeDefined();
  await sweep();
  await agent.gone(off);
  expect(await notifierOf(off)).toBeUndefined();
  expect(await agent.record(kept)).toMatchObject({ ntf_action: 'C' });
});

test('subscription-B5 the sweep ends subscriptions of connections that are gone, and all of an agent that wants none', async () => {
  const [deleted, unheard, plain] = await createActive(3);
  // Their commands were lost.
  await agent.rows('UPDATE subscriptions.connections SET is_deleted = true WHERE conn_id = $1', [deleted]);
  expect(await subscriptions().import([{ userId: 1, connId: deleted, ...(await queueOf(deleted)) }])).toEqual(
    [{ error: `${deleted}: the connection is still being deleted` }],
  );
  await sweep();
  await agent.gone(deleted);
  expect(await agent.record(unheard)).toMatchObject({ ntf_action: 'C' });
  // Made PERIODIC while another device took over: verifying it commands nothing.
  await agent.setToken('ACTIVE', 'PERIODIC');
  await sweep();
  await agent.gone(unheard);
  await agent.gone(plain);
});

test('subscription-B5 the sweep starts one over that was given up and is switched on since, and leaves the others', async () => {
  const [on, left] = await createActive(2);
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
  await agent.gone(left);
});

/** Replaces the recipient's key by one that does not open, as after a start without the key that sealed it. */
async function loseKey(connId: string) {
  const { rcv_id: rcvId, rcv_private_key: sealed } = await agent.queueOf(connId);
  const context = recipientKeyContext(AGENT, rcvId);
  const setKey = (key: Buffer) =>
    agent.rows('UPDATE subscriptions.rcv_queues SET rcv_private_key = $2 WHERE conn_id = $1', [connId, key]);
  await setKey(OTHER_BOX.seal(KEY_BOX.open(sealed, context), context));
  return { restore: () => setKey(sealed) };
}
const unreadable = (count: number) =>
  eventually('the findings', async () => (await subscriptions().status()).unreadable === count);

test('subscription-B4 rows that could not be read are listed, counted and told once; a command starts them over, and the sweep once their keys open', async () => {
  await agent.rows('DELETE FROM subscriptions.events');
  const [created, back, deleted] = await createActive(3);
  await agent.toggle([created, back], false);
  for (const connId of [created, back]) await agent.gone(connId);
  const keys = [await loseKey(created), await loseKey(back), await loseKey(deleted)] as const;
  await agent.toggle([created, back], true);
  await agent.remove([deleted]);
  await unreadable(3);
  const { items } = await subscriptions().list({ isUnreadable: true });
  expect(items.map(({ connId }) => connId).sort()).toEqual([created, back].sort());
  await sweep();
  await sweep();
  expect((await agent.events()).flatMap(({ errors }) => errors)).toHaveLength(3);

  await keys[0].restore();
  await agent.command([created]);
  await agent.active([created]);
  expect(await agent.record(created)).toMatchObject({ ntf_failed: false, smp_failed: false });
  expect(await agent.record(back)).toMatchObject({ smp_failed: true });
  expect(await notifierOf(deleted)).toBeDefined();
  await keys[1].restore();
  await keys[2].restore();
  await sweep();
  await agent.active([back]);
  await eventually('the deleted connection to go', async () => (await agent.deleting()).length === 0);
  expect(await subscriptions().status()).toMatchObject({ unreadable: 0 });
});

test('subscription-B4 a deleted connection whose key is lost for good goes after three weeks, with its queue, and no other', async () => {
  const [lost, young] = await createActive(2);
  await loseKey(lost);
  await loseKey(young);
  await agent.remove([lost, young]);
  await unreadable(2);
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
  const [refused, forgotten] = await createActive(2);
  await agent.rows('DELETE FROM subscriptions.events');
  const fails = async (code: string, connId: string) => {
    smp().fail({ failure: { kind: 'error', code }, subject: 'NDEL', times: 1 });
    await agent.remove([connId]);
  };
  // Its application has deleted the queue before.
  await fails('AUTH', forgotten);
  await eventually('the forgotten one to go', async () => (await agent.deleting()).length === 0);
  await fails('QUOTA', refused);
  await eventually('the report', async () => (await agent.events()).length === 1);
  expect(await agent.events()).toMatchObject([{ errors: [{ connId: refused, error: 'SMP QUOTA' }] }]);
  expect(await agent.deleting()).toEqual([]);
  expect(await agent.record(refused)).toBeUndefined();
});

test('I50 the sweep finds what is missing behind more agents and connections than one statement looks at', async () => {
  const [connId] = await createActive();
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
  const { rcv_id: recipientId, rcv_private_key: sealed } = await agent.queueOf(connId);
  const key = KEY_BOX.open(sealed, recipientKeyContext(AGENT, recipientId));
  return { server: server(), recipientId, recipientPrivateKey: key.toString('base64url') };
}

/** An application takes its queue away from here, with the notifier that it has on its router. */
const takeAway = (connId: string) =>
  agent.rows('DELETE FROM subscriptions.connections WHERE conn_id = $1', [connId]);

/** A queue that an application uses, with a message that it has not received yet. */
async function applicationQueue() {
  const [connId] = await createActive();
  const queue = await queueOf(connId);
  smp().send((await agent.queueOf(connId)).stored!.senderId, 'unread');
  await takeAway(connId);
  return queue;
}

test('subscription-L5 queues that an application has already are imported, subscribed, and not imported twice', async () => {
  const [connId] = await createActive();
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
  await eventually('the notification router to listen', async () => smp().subscribed().includes(now));
});

test('I79 kinds-F8 an application keeps its imported queue with all messages when the connection is deleted or its user forgotten', async () => {
  const queues = [await applicationQueue(), await applicationQueue(), await applicationQueue()];
  const stored = ({ recipientId }: { recipientId: string }) =>
    smp()
      .queues()
      .find((queue) => queue.recipientId === recipientId);
  const itsOwn = stored(queues[2]!)!.notifier;
  const told = await agent.events();
  await subscriptions().import([
    { ...queues[0], userId: 31, connId: 'deleted' },
    { ...queues[1], userId: 32, connId: 'forgotten' },
    { ...queues[2], userId: 31, connId: 'silent', enableNotifications: false },
  ]);
  await agent.active(['deleted', 'forgotten']);

  expect(await subscriptions().delete(['deleted', 'silent'])).toMatchObject({ deleted: 2, unknown: [] });
  const { users } = agent.operator();
  const jane = { userId: 'jane', subscriptionUser: 32 };
  const found = { what: 'subscriptions.connections', count: 1 };
  expect((await users.preview(jane)).removed).toEqual([found]);
  expect((await users.forget(jane, { requestedBy: 'nina' })).removed).toContainEqual(found);
  for (const connId of ['deleted', 'forgotten']) await agent.gone(connId);
  await eventually('the connections to go', async () => {
    const left = await agent.rows('SELECT FROM subscriptions.connections WHERE user_id IN (31, 32)');
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
  const other = agent.operator('other').subscriptions;
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
