/**
 * Keys of encryption on a real Temporal. What is still sealed with an old one is known, and goes without a pause. A payload is
 * for one workflow, and in plain for none, also against a client that may start workflows there.
 */
import { randomBytes } from 'node:crypto';
import type { Payload } from '@temporalio/common';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { createKeyBox, sealingKeyOf } from '../../api/key-box.ts';
import { PLAIN, dataConverterWith, isSealed, payloadHeadOf } from '../../api/payload-codec.ts';
import { notifierKeyContext, recipientKeyContext, tokenContext } from '../../api/subscription/rows.ts';
import type { RenewedKeys } from '../../client/keys.ts';
import { createOperator } from '../../client/operator.ts';
import {
  INTENT_TASK_QUEUE,
  NOTIFICATION_WORKFLOW,
  bridgeWorkflowId,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import { LONG_LIVED_RUNS, RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import { POOL_WORKER_WORKFLOW } from '../../workflows/subscription/contract.ts';
import { stateOf } from '../../activities/workflows.ts';
import { createLogger } from '../../workers/logger.ts';
import { startReconciler } from '../../workers/reconciler.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, operatorOf, resourcesOf, slotOfEachTest } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { delivered, outboundIds } from '../service-process.ts';

const newKey = (id: string): KeyBoxKey => ({ id, key: randomBytes(32) });
const [OLD, NEW] = [newKey('old'), newKey('new')];
/** Variables of a service or a command that has these keys of payloads. */
const env = (...keys: KeyBoxKey[]) => ({
  NOTIFICATION_PAYLOAD_KEYS: keys.map(({ id, key }) => `${id}:${key.toString('base64')}`).join(','),
});
/** On a machine with much else to do, the long-lived workflows go on one after the other. */
const LIMIT = { limitMs: 240_000 };
jest.setTimeout(300_000);
const BRIDGE = bridgeWorkflowId('notification:intents');

const slot = slotOfEachTest();
const program = cliOfEachTest(slot);

const statusWith = async (...payload: KeyBoxKey[]) =>
  (await operatorOf(slot).keys.status({ payload, subscription: [] }, { withRetained: true })).payload;
const run = async (changes: Record<string, string>, ...args: string[]) =>
  expect(await program.cli(args, { changes })).toMatchObject({ code: 0 });

/** Intents of a test: each further one, and the wait until all so far are delivered. */
function createIntents() {
  const ids: string[] = [];
  const publish = async () => ids.push(await publishTurn(slot.redis, `turn-${ids.length}`));
  const arrive = () => delivered(slot, ...ids);
  return { ids, publish, arrive, deliverAnother: () => publish().then(arrive) };
}

test('I51 I62 security-2 a key of payloads that is rotated and taken out stops nothing, and one that is missing is named', async () => {
  const { keys } = operatorOf(slot);
  const { cli } = program;
  const intents = createIntents();
  let service = await slot.startService(env(OLD));
  await intents.deliverAnother();
  await service.stop();

  // Taken out too early.
  service = await slot.startService(env(NEW));
  await intents.publish();
  const missing = await eventually('the missing key to be named', async () =>
    slot.logs.find(({ msg }) => msg.startsWith('sealed with a key that is not configured')),
  );
  expect(missing).toMatchObject({ level: 'error', purpose: 'payload', key_id: 'old' });
  // Which one of those that go on depends on when the first process ended.
  await slot.client.workflow.getHandle(missing['workflow_id'] as string).describe();
  await eventually('the command to name it', async () => {
    const status = await cli(['keys', 'status'], { changes: env(NEW) });
    expect(status).toMatchObject({ code: 1, stdout: expect.stringMatching(/old +missing +\d/) as string });
    expect(status.stderr).toMatch(/not configured, and still needed: old/);
    return true;
  });
  await service.stop();
  expect(slot.logs.filter(({ key_id }) => key_id === 'old')).toHaveLength(1);

  // What the runbook says.
  service = await slot.startService(env(NEW, OLD));
  await intents.arrive();
  // The reader runs since the start; the notification has ended soon.
  const longLived = 1;
  await eventually('what is open to be long-lived', async () =>
    (await statusWith(NEW, OLD)).some(
      ({ key, use, open }) => key === 'old' && use === 'opens' && open === longLived,
    ),
  );
  const renewed = await keys.renew({ payload: [NEW, OLD], subscription: [] }, LIMIT);
  expect(renewed).toEqual({ workflows: longLived, values: 0, waiting: [], unreadable: 0 });
  // Temporal's list follows the runs with a delay: former ones as still open, new ones not yet.
  await eventually('the new runs to be open, and the former ones closed', async () => {
    expect(await statusWith(NEW, OLD)).toEqual([
      { key: 'new', use: 'seals', open: longLived, retained: expect.any(Number) },
      { key: 'old', use: 'opens', open: 0, retained: expect.any(Number) },
    ]);
    return true;
  });
  await intents.deliverAnother();

  // An operator who takes it out now is told what is still sealed with it, and the work goes on.
  await service.stop();
  // Without a process no workflow goes on, and the command says which.
  const renewal = await cli(['keys', 'renew', '--timeout', '1s', '--json'], { changes: env(NEW) });
  expect([renewal.code, renewal.stderr]).toEqual([
    ...[1, expect.stringContaining('still to go on in a new run: ')],
  ]);
  expect((JSON.parse(renewal.stdout) as RenewedKeys).waiting).toHaveLength(longLived);
  await slot.startService(env(NEW));
  await intents.deliverAnother();
  const [, old] = await statusWith(NEW);
  expect(old).toEqual({ key: 'old', use: 'missing', open: 0, retained: expect.any(Number) });
  expect(old!.retained).toBeGreaterThan(0);
});

test('I51 I60 runs that began long ago go on in new ones, each once, also while the work that they wait for has not begun', async () => {
  const intents = createIntents();
  const bridge = slot.client.workflow.getHandle(BRIDGE);
  const runOf = async () => (await bridge.describe()).runId;
  const untilAfter = (runId: string) => eventually('another run', async () => (await runOf()) !== runId);
  const eventsOf = async (runId: string) =>
    (await slot.client.workflow.getHandle(BRIDGE, runId).fetchHistory()).events!;
  const service = await slot.startService(env(NEW));
  await intents.deliverAnother();
  const first = await runOf();
  const reconciler = startReconciler({
    ...{ client: slot.client, log: createLogger('silent'), everyMs: 200 },
    ...{ workflows: [], schedules: [], underWay: () => Promise.resolve([]) },
    longestRunMs: 2_000,
  });
  await untilAfter(first);
  await reconciler.stop();
  expect(
    (await eventsOf(first)).filter((event) => event.workflowExecutionSignaledEventAttributes),
  ).toHaveLength(1);

  await service.stop();
  const second = await runOf();
  await bridge.signal(RENEW_SIGNAL);
  await slot.startService(env(NEW));
  await intents.deliverAnother();
  await untilAfter(second);
  expect((await eventsOf(second)).filter((event) => event.workflowTaskFailedEventAttributes)).toEqual([]);
  // It is no secret.
  expect((await statusWith(NEW)).map(({ key }) => key)).toEqual(['new']);
});

test('I51 a long-lived run that cannot go on is ended when keys are renewed: it would be waited for in vain', async () => {
  await slot.startService();
  const { workflow } = slot.client;
  // Without what it works on, each of its workflow tasks fails.
  const stuck = await workflow.start(POOL_WORKER_WORKFLOW, {
    workflowId: 'subscription/stuck',
    taskQueue: INTENT_TASK_QUEUE,
    workflowTaskTimeout: '1s',
  });
  await eventually('it to be stuck', async () => {
    // Each signal begins a new count of attempts.
    await stuck.signal('any');
    return (await stateOf(workflow, stuck.workflowId)) === 'STUCK';
  });
  await eventually('it to be listed', async () => {
    const { count } = await workflow.count(`${LONG_LIVED_RUNS} AND WorkflowId = '${stuck.workflowId}'`);
    return count === 1;
  });
  expect(await operatorOf(slot).keys.renew({ payload: [], subscription: [] }, LIMIT)).toMatchObject({
    waiting: [],
  });
  expect((await stuck.describe()).status.name).toBe('TERMINATED');
});

test('I51 security-20 values in rows are sealed again, and what no key opens is counted and left alone', async () => {
  const [old, lost] = [createKeyBox([OLD]), createKeyBox([newKey('lost')])];
  const seal = (box: typeof old, text: string, context: string) => box.seal(Buffer.from(text), context);
  // Without the agent, the routers and the connections that rows refer to.
  for (const table of ['rcv_queues', 'ntf_tokens'])
    await slot.db.query(`ALTER TABLE subscriptions.${table} DISABLE TRIGGER ALL`);
  const recipient = recipientKeyContext('default', 'r-1');
  const notifier = notifierKeyContext('default', 'n-1');
  for (const [row, ...sealed] of [
    // The last one is sealed for another row: it opens with no key.
    ['1', seal(old, 'recipient', recipient), seal(old, 'notifier', notifier), seal(old, 'secret', notifier)],
    ['2', seal(lost, 'x', recipient), seal(lost, 'x', notifier), seal(lost, 'x', notifier)],
  ] as const)
    await slot.db.query(
      `INSERT INTO subscriptions.rcv_queues
         (agent_id, conn_id, host, port, rcv_id, rcv_private_key, ntf_id, ntf_public_key, ntf_private_key,
          rcv_ntf_dh_secret)
       VALUES ('default', 'r-' || $1, 'h', 1, 'r-' || $1, $2, 'n-' || $1, 'public', $3, $4)`,
      [row, ...sealed],
    );
  await slot.db.query(
    `INSERT INTO subscriptions.ntf_tokens
       (agent_id, provider, device_token, host, port, auth_public_key, auth_private_key, dh_public_key, dh_private_key, status)
     VALUES ('default', 'AT', $1, 'n', 1, '', $2, '', $3, 'NEW')`,
    ['device_token', 'auth_private_key', 'dh_private_key'].map((column) =>
      seal(old, column, tokenContext(column, 'default')),
    ),
  );
  const configured = { payload: [], subscription: [NEW, OLD] };
  const { keys } = createOperator({
    ...resourcesOf(slot),
    keyBox: () => createKeyBox(configured.subscription),
  });
  const ofQueues = {
    ...{ 'rcv_queues.rcv_private_key': 1, 'rcv_queues.ntf_private_key': 1 },
    ...{ 'rcv_queues.rcv_ntf_dh_secret': 1 },
  };
  const ofTokens = {
    ...{ 'ntf_tokens.device_token': 1, 'ntf_tokens.auth_private_key': 1, 'ntf_tokens.dh_private_key': 1 },
  };
  expect((await keys.status(configured)).subscription).toEqual([
    { key: 'new', use: 'seals', values: {} },
    { key: 'old', use: 'opens', values: { ...ofTokens, ...ofQueues } },
    { key: 'lost', use: 'missing', values: ofQueues },
  ]);
  expect(await keys.renew(configured, LIMIT)).toMatchObject({ values: 5, unreadable: 4 });

  const { rows } = await slot.db.query<{ rcv_private_key: Buffer; ntf_private_key: Buffer }>(
    `SELECT rcv_private_key, ntf_private_key FROM subscriptions.rcv_queues WHERE rcv_id = 'r-1'`,
  );
  const [{ rcv_private_key: ofRecipient, ntf_private_key: ofNotifier }] = rows as [(typeof rows)[0]];
  const box = createKeyBox([NEW]);
  expect(String(box.open(ofRecipient, recipient))).toBe('recipient');
  expect(String(box.open(ofNotifier, notifier))).toBe('notifier');
  const { rows: tokens } = await slot.db.query<{ device_token: Buffer }>(
    'SELECT device_token FROM subscriptions.ntf_tokens',
  );
  expect(sealingKeyOf(tokens[0]!.device_token)).toBe('new');
  // A second time there is nothing left but what no key opens.
  expect(await keys.renew(configured, LIMIT)).toMatchObject({ values: 0, unreadable: 4 });
});

/** @returns the payloads of a history that are sealed. */
function sealedPayloadsIn(value: unknown): Payload[] {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return [];
  return isSealed(value) ? [value] : Object.values(value).flatMap(sealedPayloadsIn);
}

/** An intent whose push is published, and whose e-mail waits for an operator. */
async function pauseAndPublish(variables: Record<string, string>) {
  const intents = createIntents();
  await run(variables, 'channels', 'pause', 'email', '--reason', 'test');
  await intents.publish();
  await eventually('the push', async () => (await outboundIds(slot.redis)).length === 1);
  return intents;
}

test('I40 security-15 with keys from the beginning, all that Temporal keeps is bound to its workflow: a payload that is moved, or in plain, is refused', async () => {
  await slot.startService(env(OLD));
  const intents = await pauseAndPublish(env(OLD));
  await run(env(OLD), 'channels', 'resume', 'email');
  await intents.arrive();

  // Each run of a schedule is given the result of the one before. Two in one second would have one id.
  const schedule = slot.client.schedule.getHandle('intent-retention');
  for (const run of ['a run of the schedule', 'another one']) {
    const since = Date.now();
    await eventually('a second without a run', async () => Date.now() >= since + 1_100);
    await schedule.trigger();
    await eventually(run, async () => {
      const last = (await schedule.describe()).info.recentActions.at(-1);
      if (!last || last.takenAt.getTime() < since) return false;
      const { workflowId, firstExecutionRunId } = last.action.workflow;
      const { status } = await slot.client.workflow.getHandle(workflowId, firstExecutionRunId).describe();
      return status.name === 'COMPLETED';
    });
  }
  await run(env(OLD), 'keys', 'renew');
  await eventually('all histories to be sealed', async () => {
    const views = await statusWith(OLD);
    return views.length === 1 && views[0]!.open >= 1;
  });
  for await (const { workflowId, history } of slot.client.workflow.list().intoHistories()) {
    const owners = sealedPayloadsIn(history).map((payload) => payloadHeadOf(payload)?.owner.workflowId);
    expect([workflowId, owners.filter((owner) => !owner)]).toEqual([workflowId, []]);
  }
  expect((await slot.client.workflow.count("ExecutionStatus = 'Failed'")).count).toBe(0);
  expect(slot.logs.filter(({ msg }) => /refused|not configured/.test(msg))).toEqual([]);

  const { workflow } = slot.client;
  const { events } = await workflow.getHandle(notificationWorkflowId(intents.ids[0]!)).fetchHistory();
  const { payloads: sealed } = events![0]!.workflowExecutionStartedEventAttributes!.input!;
  const plain = await dataConverterWith([OLD])!.payloadCodecs![0]!.decode(sealed!);
  for (const [id, payloads, msg] of [
    ['1-1', sealed!, 'a payload was refused'],
    ['1-2', plain, 'a payload in plain was refused'],
  ] as const) {
    const workflowId = notificationWorkflowId(id);
    await slot.client.workflowService.startWorkflowExecution({
      ...{ namespace: slot.client.options.namespace, workflowId, requestId: workflowId },
      ...{ workflowType: { name: NOTIFICATION_WORKFLOW }, taskQueue: { name: INTENT_TASK_QUEUE } },
      input: { payloads: [...payloads] },
    });
    await eventually(msg, async () =>
      slot.logs.some((line) => line.msg.startsWith(msg) && line['workflow_id'] === workflowId),
    );
    await workflow.getHandle(workflowId).terminate('end of the test');
  }
  // Nothing came of either, and others go on.
  await intents.deliverAnother();
});

test('security-15 an installation without keys gets them while work waits, and refuses what is in plain at last', async () => {
  let service = await slot.startService();
  const intents = await pauseAndPublish({});
  await service.stop();

  const changing = { ...env(OLD), NOTIFICATION_PAYLOAD_PLAIN: 'accept' };
  service = await slot.startService(changing);
  await run(changing, 'channels', 'resume', 'email');
  await intents.arrive();
  const openInPlain = async () => (await statusWith(OLD)).find(({ key }) => key === PLAIN)?.open ?? 0;
  await eventually('what runs in plain to be listed', async () => (await openInPlain()) > 0);
  await run(changing, 'keys', 'renew');
  await eventually('nothing that runs to be in plain', async () => (await openInPlain()) === 0);
  await service.stop();

  await slot.startService(env(OLD));
  await intents.deliverAnother();
  await run(env(OLD), 'keys', 'renew');
  await eventually('nothing that runs to be in plain', async () => (await openInPlain()) === 0);
});
