/** Rotation of keys of encryption: what is still sealed with an old one is known, and goes without a pause. */
import { randomBytes } from 'node:crypto';
import type { KeyBoxKey } from '../../api/key-box.ts';
import { createKeyBox, sealingKeyOf } from '../../api/key-box.ts';
import { notifierKeyContext, recipientKeyContext, tokenContext } from '../../api/subscription/rows.ts';
import type { RenewedKeys } from '../../client/keys.ts';
import type { Operator } from '../../client/operator.ts';
import { createOperator } from '../../client/operator.ts';
import { INTENT_TASK_QUEUE, bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import { LONG_LIVED_RUNS, RENEW_SIGNAL } from '../../workflows/renewal-contract.ts';
import { POOL_WORKER_WORKFLOW } from '../../workflows/subscription/contract.ts';
import { stateOf } from '../../activities/workflows.ts';
import { createLogger } from '../../workers/logger.ts';
import { startReconciler } from '../../workers/reconciler.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, resourcesOf, slotOfEachTest } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { delivered } from '../service-process.ts';

const newKey = (id: string): KeyBoxKey => ({ id, key: randomBytes(32) });
const [OLD, NEW] = [newKey('old'), newKey('new')];
const written = (...keys: KeyBoxKey[]) =>
  keys.map(({ id, key }) => `${id}:${key.toString('base64')}`).join(',');
/** On a machine with much else to do, the long-lived workflows go on one after the other. */
const LIMIT = { limitMs: 240_000 };
jest.setTimeout(300_000);
const BRIDGE = bridgeWorkflowId('notification:intents');

const slot = slotOfEachTest();
const program = cliOfEachTest(slot);

const operatorWith = (subscription: readonly KeyBoxKey[] = []): Operator =>
  createOperator({ ...resourcesOf(slot), keyBox: () => createKeyBox(subscription) });

test('I51 I62 security-2 a key of payloads that is rotated and taken out stops nothing, and one that is missing is named', async () => {
  const { keys } = operatorWith();
  const { cli } = program;
  const env = (...given: KeyBoxKey[]) => ({ NOTIFICATION_PAYLOAD_KEYS: written(...given) });
  let service = await slot.startService(env(OLD));
  const first = await publishTurn(slot.redis, 'first');
  await delivered(slot, first);
  await service.stop();

  // Taken out too early.
  service = await slot.startService(env(NEW));
  const second = await publishTurn(slot.redis, 'second');
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
  await delivered(slot, first, second);
  const both = { payload: [NEW, OLD], subscription: [] };
  // The reader runs since the start; the notification has ended soon.
  const longLived = 1;
  await eventually('what is open to be long-lived', async () => {
    const { payload } = await keys.status(both);
    return payload.some(({ key, use, open }) => key === 'old' && use === 'opens' && open === longLived);
  });
  const renewed = await keys.renew(both, LIMIT);
  expect(renewed).toEqual({ workflows: longLived, values: 0, waiting: [], unreadable: 0 });
  // Temporal's list follows the runs with a delay: former ones as still open, new ones not yet.
  const { newKey, oldKey } = await eventually(
    'the new runs to be open, and the former ones closed',
    async () => {
      const { payload } = await keys.status(both, { withRetained: true });
      const [newState, oldState] = ['new', 'old'].map((id) => payload.find(({ key }) => key === id)!);
      return newState!.open === longLived && oldState!.open === 0 && { newKey: newState!, oldKey: oldState! };
    },
  );
  expect(newKey.use).toBe('seals');
  expect(oldKey.use).toBe('opens');
  expect(oldKey.retained).toBeGreaterThan(0);
  const third = await publishTurn(slot.redis, 'third');
  await delivered(slot, first, second, third);

  // An operator who takes it out now is told what is still sealed with it, and the work goes on.
  await service.stop();
  // Without a process no workflow goes on, and the command says which.
  const renewal = await cli(['keys', 'renew', '--timeout', '1s', '--json'], { changes: env(NEW) });
  expect([renewal.code, renewal.stderr]).toEqual([
    1,
    expect.stringContaining('still to go on in a new run: '),
  ]);
  expect((JSON.parse(renewal.stdout) as RenewedKeys).waiting).toHaveLength(longLived);
  await slot.startService(env(NEW));
  const fourth = await publishTurn(slot.redis, 'fourth');
  await delivered(slot, first, second, third, fourth);
  const alone = await keys.status({ payload: [NEW], subscription: [] }, { withRetained: true });
  expect(alone.payload.find(({ key }) => key === 'old')).toMatchObject({ use: 'missing', open: 0 });
});

test('I51 I60 a long-lived run is renewed while the work that it waits for has not begun', async () => {
  const env = { NOTIFICATION_PAYLOAD_KEYS: written(NEW) };
  const service = await slot.startService(env);
  const first = await publishTurn(slot.redis, 'first');
  await delivered(slot, first);
  await service.stop();
  const bridge = slot.client.workflow.getHandle(BRIDGE);
  const { runId } = await bridge.describe();
  await bridge.signal(RENEW_SIGNAL);

  await slot.startService(env);
  const second = await publishTurn(slot.redis, 'second');
  await delivered(slot, first, second);
  await eventually('another run', async () => (await bridge.describe()).runId !== runId);
  const { events } = await slot.client.workflow.getHandle(BRIDGE, runId).fetchHistory();
  expect(events!.filter((event) => event.workflowTaskFailedEventAttributes)).toEqual([]);
  // It is no secret.
  const { payload } = await operatorWith().keys.status(
    { payload: [NEW], subscription: [] },
    { withRetained: true },
  );
  expect(payload.map(({ key }) => key)).toEqual(['new']);
});

test('I51 runs that began long ago are continued by new ones, and each of them once', async () => {
  await slot.startService();
  const first = await publishTurn(slot.redis, 'first');
  await delivered(slot, first);
  const runOf = async () => (await slot.client.workflow.getHandle(BRIDGE).describe()).runId;
  const before = await runOf();
  const longestMs = 2_000;
  const reconciler = startReconciler({
    ...{ client: slot.client, log: createLogger('silent'), everyMs: 200 },
    ...{ workflows: [], schedules: [], underWay: () => Promise.resolve([]) },
    longestRunMs: longestMs,
  });
  await eventually('another run of the reader', async () => (await runOf()) !== before);
  await reconciler.stop();
  const { events } = await slot.client.workflow.getHandle(BRIDGE, before).fetchHistory();
  expect(events!.filter((event) => event.workflowExecutionSignaledEventAttributes)).toHaveLength(1);
  const second = await publishTurn(slot.redis, 'second');
  await delivered(slot, first, second);
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
  expect(await operatorWith().keys.renew({ payload: [], subscription: [] }, LIMIT)).toMatchObject({
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
  const queue = (rcvId: string, ntfId: string, recipientKey: Buffer, notifierKey: Buffer, secret: Buffer) =>
    slot.db.query(
      `INSERT INTO subscriptions.rcv_queues
         (agent_id, conn_id, host, port, rcv_id, rcv_private_key, ntf_id, ntf_public_key, ntf_private_key,
          rcv_ntf_dh_secret)
       VALUES ('default', $1, 'h', 1, $1, $2, $3, 'public', $4, $5)`,
      [rcvId, recipientKey, ntfId, notifierKey, secret],
    );
  const notifier = notifierKeyContext('default', 'n-1');
  await queue(
    'r-1',
    'n-1',
    seal(old, 'recipient', recipientKeyContext('default', 'r-1')),
    seal(old, 'notifier', notifier),
    // Sealed for another row: it opens with no key.
    seal(old, 'secret', notifier),
  );
  await queue(
    'r-2',
    'n-2',
    seal(lost, 'x', recipientKeyContext('default', 'r-2')),
    seal(lost, 'x', notifier),
    seal(lost, 'x', notifier),
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
  const { keys } = operatorWith(configured.subscription);
  const before = await keys.status(configured);
  expect(before.subscription).toEqual([
    { key: 'new', use: 'seals', values: {} },
    {
      key: 'old',
      use: 'opens',
      values: {
        'ntf_tokens.device_token': 1,
        'ntf_tokens.auth_private_key': 1,
        'ntf_tokens.dh_private_key': 1,
        'rcv_queues.rcv_private_key': 1,
        'rcv_queues.ntf_private_key': 1,
        'rcv_queues.rcv_ntf_dh_secret': 1,
      },
    },
    {
      key: 'lost',
      use: 'missing',
      values: {
        'rcv_queues.rcv_private_key': 1,
        'rcv_queues.ntf_private_key': 1,
        'rcv_queues.rcv_ntf_dh_secret': 1,
      },
    },
  ]);
  expect(await keys.renew(configured, LIMIT)).toMatchObject({ values: 5, unreadable: 4 });

  const { rows } = await slot.db.query<{ rcv_private_key: Buffer; ntf_private_key: Buffer }>(
    `SELECT rcv_private_key, ntf_private_key FROM subscriptions.rcv_queues WHERE rcv_id = 'r-1'`,
  );
  const box = createKeyBox([NEW]);
  expect(box.open(rows[0]!.rcv_private_key, recipientKeyContext('default', 'r-1')).toString()).toBe(
    'recipient',
  );
  expect(box.open(rows[0]!.ntf_private_key, notifier).toString()).toBe('notifier');
  const { rows: tokens } = await slot.db.query<{ device_token: Buffer }>(
    'SELECT device_token FROM subscriptions.ntf_tokens',
  );
  expect(sealingKeyOf(tokens[0]!.device_token)).toBe('new');
  // A second time there is nothing left but what no key opens.
  expect(await keys.renew(configured, LIMIT)).toMatchObject({ values: 0, unreadable: 4 });
});
