/** Commands: what lets them pass, what finds work without a signal, and what waits. */
import { writeEvent } from '../../activities/subscription/agents.ts';
import { inTransaction } from '../../activities/postgres.ts';
import type { AgentState } from '../../workflows/subscription/contract.ts';
import { CLOSE_UPDATE, OPEN_UPDATE } from '../../workflows/subscription/contract.ts';
import { eventually } from '../harness.ts';
import { AGENT, KEY_BOX, agentOfTests } from './agent.ts';

const EVENTS = 'notification:subscription-events';

const agent = agentOfTests({ smp: 2 });
beforeAll(async () => {
  // Longer than any of these tests: nothing here goes on because a router was given up.
  await agent.start({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' });
  await agent.activateToken();
});
afterEach(async () => {
  for (const router of [...agent.routers.smp, ...agent.routers.ntf]) router.heal();
  await setToken('ACTIVE', 'INSTANT');
});

const smp = (index = 0) => agent.routers.smp[index]!;
const ntf = () => agent.routers.ntf[0]!;
const server = () => smp().address;
const setToken = (status: string, mode: string | null) =>
  agent.rows('UPDATE subscriptions.ntf_tokens SET status = $1, mode = $2', [status, mode]);

/** A connection without a record: made while nothing could pass the gate. */
async function createWithoutRecord(): Promise<string> {
  await setToken('REGISTERED', 'INSTANT');
  const [connId] = await agent.create([{ userId: 1, server: server() }]);
  await setToken('ACTIVE', 'INSTANT');
  return connId!;
}

const keysAskedFor = () => smp().calls.filter(({ op }) => op === 'NKEY').length;

test.each([
  ['REGISTERED', 'INSTANT'],
  ['CONFIRMED', 'INSTANT'],
  ['EXPIRED', 'INSTANT'],
  ['ACTIVE', 'PERIODIC'],
  ['ACTIVE', null],
])('N9 N17 scenario 25: with a token that is %s and %s no command passes', async (status, mode) => {
  const connId = await createWithoutRecord();
  await setToken(status, mode);
  const { done } = await agent.idle();
  expect(await agent.toggle([connId, 'unknown'], false)).toEqual({ changed: 1, unknown: ['unknown'] });
  expect(await agent.toggle([connId], true)).toEqual({ changed: 1, unknown: [] });
  expect((await agent.idle()).done).toBe(done);
  expect(await agent.record(connId)).toBeUndefined();
  // A deletion does: the connection is gone, whatever the token is.
  await agent.remove([connId]);
  await eventually('the deletion', async () => (await agent.idle()).done === done + 1);
});

test('N14 credentials of a claim that was replaced do not end up on the queue', async () => {
  const connId = await createWithoutRecord();
  const { promise: until, resolve: answer } = Promise.withResolvers<void>();
  smp().fail({ failure: { kind: 'hold', until }, subject: 'NKEY', times: 1 });
  const keys = keysAskedFor();
  await agent.command([connId]);
  await eventually('its call', async () => keysAskedFor() > keys);
  await agent.idle();
  // Another worker picks the record up, has its key first, and leaves nothing to do.
  await agent.rows(
    `UPDATE subscriptions.ntf_subscriptions
        SET claim = claim + 1000, status = 'KEY', smp_ntf_id = 'theirs', ntf_action = NULL, smp_action = NULL,
            action_ts = NULL
      WHERE conn_id = $1`,
    [connId],
  );
  await agent.rows(
    `UPDATE subscriptions.rcv_queues
        SET ntf_id = 'theirs', ntf_public_key = 'p', ntf_private_key = 'k', rcv_ntf_dh_secret = 's' WHERE conn_id = $1`,
    [connId],
  );
  answer();
  await eventually('the late worker to have its answer, and to end', async () => {
    const { status } = await agent.worker('ntf-smp', server()).describe();
    return status.name === 'COMPLETED';
  });
  expect(await agent.record(connId)).toMatchObject({ smp_ntf_id: 'theirs' });
  expect(
    await agent.rows('SELECT ntf_id FROM subscriptions.rcv_queues WHERE conn_id = $1', [connId]),
  ).toEqual([{ ntf_id: 'theirs' }]);
  await agent.remove([connId]);
  await agent.idle();
});

test('N6 N16 errors reach the stream of clients once, with the connections that they are about', async () => {
  await agent.rows('DELETE FROM subscriptions.events');
  await agent.slot.redis.del(EVENTS);
  const connId = await createWithoutRecord();
  smp().fail({ failure: { kind: 'error', code: 'QUOTA' }, subject: 'NKEY', times: 1 });
  await agent.command([connId]);
  const entries = await eventually('the event', async () => {
    const found = await agent.slot.redis.xrange(EVENTS, '-', '+');
    return found.length > 0 && found;
  });
  const fields = entries.map(([, list]) =>
    Object.fromEntries(list.flatMap((value, index) => (index % 2 === 0 ? [[value, list[index + 1]!]] : []))),
  );
  expect(fields).toMatchObject([{ agent_id: AGENT, kind: 'ERRS', offers_restart: 'false' }]);
  expect(JSON.parse(fields[0]!['errors_json']!)).toEqual([
    { connId, error: expect.stringMatching(/^SMP QUOTA/) },
  ]);
  // It is in the stream before its row says so.
  await eventually(
    'the events to be marked as relayed',
    async () =>
      (await agent.rows('SELECT 1 FROM subscriptions.events WHERE relayed_at IS NULL')).length === 0,
  );
  expect(await agent.record(connId)).toMatchObject({ status: 'NEW', smp_action: null, action_ms: null });
});

test('N3 N5 the sweep wakes a worker for work without a signal, and forgets deletions that are too old', async () => {
  // Connections of other tests have no record.
  await agent.sweep();
  await agent.idle();
  const [due, recordless] = [await createWithoutRecord(), await createWithoutRecord()];
  await agent.slot.db.query(
    `INSERT INTO subscriptions.ntf_subscriptions
            (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, smp_action, action_ts)
     VALUES ($1, $2, 1, $3, $4, $5, $6, 'NEW', 'K', now())`,
    [AGENT, due, server().host, server().port, ntf().address.host, ntf().address.port],
  );
  const deletion = (days: number) =>
    agent.slot.db.query(
      `INSERT INTO subscriptions.ntf_tokens_to_delete
              (agent_id, host, port, key_hash, token_id, private_key, created_at)
       VALUES ($1, 'ntf.invalid', 443, 'h', 't', $2, now() - $3 * interval '1 day')`,
      [AGENT, KEY_BOX.seal(Buffer.alloc(32, 1), `ntf_tokens_to_delete.private_key:${AGENT}/t`), days],
    );
  await agent.rows("INSERT INTO subscriptions.ntf_servers VALUES ($1, 'ntf.invalid', 443, 'h')", [AGENT]);
  await deletion(20);
  await deletion(22);
  expect(await agent.sweep()).toMatchObject({ differing: 1 });
  await agent.active([due, recordless]);
  await agent.slot.client.schedule.getHandle('subscription-retention').trigger();
  await eventually(
    'the old one to go',
    async () => (await agent.rows('SELECT 1 FROM subscriptions.ntf_tokens_to_delete')).length === 1,
  );
  await agent.rows('DELETE FROM subscriptions.ntf_tokens_to_delete');
});

test('subscription-B8 N13 N17 scenario 40: closing in the middle of a batch ends all calls, writes nothing, and opening goes on', async () => {
  const connIds = [await createWithoutRecord(), await createWithoutRecord()];
  const { promise: until, resolve: answer } = Promise.withResolvers<void>();
  smp().fail({ failure: { kind: 'hold', until }, subject: 'NKEY', times: 1 });
  const keys = keysAskedFor();
  await agent.command(connIds);
  await eventually('the batch to be under way', async () => keysAskedFor() > keys);
  const before = await agent.records();
  const closed = await agent.update<AgentState>(CLOSE_UPDATE);
  expect(closed).toMatchObject({ isOpen: false });
  const calls = () => smp().calls.length + ntf().calls.length;
  const callsAtClose = calls();
  // A request finds it closed now.
  await agent.command(connIds);
  await agent.sweep();
  answer();
  await eventually('the late answer', async () =>
    smp()
      .calls.slice(-2)
      .every(({ answer }) => answer !== '-'),
  );
  const ended = agent.slot.client.workflow.list({
    query: "WorkflowType = 'subscriptionWorker' AND ExecutionStatus = 'Running'",
  });
  for await (const { workflowId } of ended)
    await agent.slot.client.workflow
      .getHandle(workflowId)
      .result()
      .catch(() => undefined);
  expect(calls()).toBe(callsAtClose);
  expect(await agent.records()).toEqual(before);

  expect(await agent.update<AgentState>(OPEN_UPDATE)).toMatchObject({
    isOpen: true,
    epoch: closed.epoch + 1,
  });
  await agent.active(connIds);
  expect(keysAskedFor()).toBeGreaterThan(keys + connIds.length - 1);
});

const createOne = async (address = server()): Promise<string> => {
  const [connId] = await agent.create([{ userId: 1, server: address }]);
  await agent.active([connId!]);
  return connId!;
};

test('subscription-B2 subscription-B7 N1 N16 connections on a silent router hold up neither a deletion nor a sweep', async () => {
  const connId = await createOne();
  const waiting = [await createOne(smp(1).address), await createOne(smp(1).address)];
  smp(1).fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
  expect(await agent.remove(waiting)).toEqual({ deleted: 2, unknown: [] });
  await eventually('the silent router to be asked', async () => smp(1).calls.some(({ op }) => op === 'NDEL'));
  await agent.sweep();

  expect(await agent.remove([connId])).toEqual({ deleted: 1, unknown: [] });
  const left = async () =>
    (
      await agent.rows<{ conn_id: string }>('SELECT conn_id FROM subscriptions.connections WHERE is_deleted')
    ).map(({ conn_id }) => conn_id);
  await eventually('the connection to go', async () => !(await left()).includes(connId));
  expect((await left()).sort()).toEqual(waiting.sort());

  smp(1).heal();
  await eventually('the others to go', async () => (await left()).length === 0);
  // The application keeps its queues, without the notifiers.
  expect(
    smp(1)
      .queues()
      .map(({ notifier }) => notifier),
  ).toEqual([undefined, undefined]);
});

test('N16 only the end of a worker for good offers a restart', async () => {
  await inTransaction(agent.slot.db, async (client) => {
    for (const kind of ['ERRS', 'ERR INTERNAL', 'ERR CRITICAL'] as const)
      await writeEvent(client, { agentId: AGENT, kind, errors: [{ connId: '', error: 'NTF AUTH' }] });
  });
  const offers = (await agent.events()).slice(-3).map(({ offers_restart }) => offers_restart);
  expect(offers).toEqual([false, false, true]);
});
