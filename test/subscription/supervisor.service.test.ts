/** Commands: what lets them pass, what finds work without a signal, and what waits. */
import { writeEvent } from '../../activities/subscription/agents.ts';
import { inTransaction } from '../../activities/postgres.ts';
import { fieldsOf } from '../../api/stream-ids.ts';
import { holdAnswers } from '../../dev/stand-ins/failure-scripts.ts';
import type { AgentState } from '../../workflows/subscription/contract.ts';
import { CLOSE_UPDATE, OPEN_UPDATE } from '../../workflows/subscription/contract.ts';
import { eventually } from '../harness.ts';
import { AGENT, agentOfTests } from './agent.ts';

const EVENTS = 'notification:subscription-events';

const agent = agentOfTests({ smp: 2 });
// Longer than any of these tests: nothing here goes on because a router was given up.
beforeAll(() => agent.startActive({ NOTIFICATION_SUBSCRIPTION_COMMAND_TIMEOUT: '10m' }));
afterEach(async () => {
  agent.routers.heal();
  await agent.setToken('ACTIVE');
});

const smp = (index = 0) => agent.routers.smp[index]!;
const ntf = () => agent.routers.ntf[0]!;
const server = () => smp().address;

/** A connection without a record: made while nothing could pass the gate. */
async function createWithoutRecord(): Promise<string> {
  await agent.setToken('REGISTERED');
  const [connId] = await agent.create([{ userId: 1, server: server() }]);
  await agent.setToken('ACTIVE');
  return connId!;
}

const keysAskedFor = () => smp().calls.filter(({ op }) => op === 'NKEY').length;

/** Has a worker ask for keys, and its router hold the answer. @returns has it answer. */
async function keysUnderWay(connIds: string[]): Promise<() => void> {
  const answers = holdAnswers();
  smp().fail({ failure: answers.failure, subject: 'NKEY', times: 1 });
  await agent.command(connIds);
  await answers.arrived;
  return answers.release;
}

test.each([
  ['REGISTERED', 'INSTANT'],
  ['CONFIRMED', 'INSTANT'],
  ['EXPIRED', 'INSTANT'],
  ['ACTIVE', 'PERIODIC'],
  ['ACTIVE', null],
])('N9 N17 scenario 25: with a token that is %s and %s no command passes', async (status, mode) => {
  const connId = await createWithoutRecord();
  await agent.setToken(status, mode);
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
  const answer = await keysUnderWay([connId]);
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
  await agent.worker('ntf-smp', server()).result();
  expect(await agent.record(connId)).toMatchObject({ smp_ntf_id: 'theirs' });
  expect(await agent.queueOf(connId)).toMatchObject({ ntf_id: 'theirs' });
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
  const events = entries.map(([, fields]) => fieldsOf(fields));
  expect(events).toMatchObject([{ agent_id: AGENT, kind: 'ERRS', offers_restart: 'false' }]);
  expect(JSON.parse(events[0]!['errors_json']!)).toEqual([
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
  const gone = { host: 'ntf.invalid', port: 443, keyHash: 'h' };
  await agent.rows("INSERT INTO subscriptions.ntf_servers VALUES ($1, 'ntf.invalid', 443, 'h')", [AGENT]);
  await agent.insertDeletions(['young'], gone, 20);
  await agent.insertDeletions(['old'], gone, 22);
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
  const answer = await keysUnderWay(connIds);
  const keys = keysAskedFor();
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
  await agent
    .worker('ntf-smp', server())
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

test('subscription-B2 subscription-B7 N1 N16 connections on a silent router hold up neither a deletion nor a sweep', async () => {
  const [connId] = (await agent.createActive()) as [string];
  const waiting = await agent.createActive(2, smp(1).address);
  smp(1).fail({ failure: { kind: 'silence' }, subject: 'NDEL' });
  expect(await agent.remove(waiting)).toEqual({ deleted: 2, unknown: [] });
  await eventually('the silent router to be asked', async () => smp(1).calls.some(({ op }) => op === 'NDEL'));
  await agent.sweep();

  expect(await agent.remove([connId])).toEqual({ deleted: 1, unknown: [] });
  await eventually('the connection to go', async () => !(await agent.deleting()).includes(connId));
  expect((await agent.deleting()).sort()).toEqual(waiting.sort());

  smp(1).heal();
  await eventually('the others to go', async () => (await agent.deleting()).length === 0);
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
