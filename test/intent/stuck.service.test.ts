/**
 * Workflows that cannot go on because their workflow task fails for ever, or because nothing will wake them, as after
 * Temporal was put back beneath workers that had them in memory: the rows say what they have left to do, and others do it.
 */
import {
  INTENT_TASK_QUEUE,
  notificationWorkflowId,
  routeWorkflowId,
  bridgeWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { SymbolConfigState } from '../../workflows/symbol-config/contract.ts';
import { SYMBOL_CONFIG_WORKFLOW } from '../../workflows/symbol-config/contract.ts';
import { stuckOfSettled } from '../../activities/intent/reconciliation.ts';
import { reconcile } from '../../activities/reconciliation.ts';
import { stateOf } from '../../activities/workflows.ts';
import { createLogger } from '../../workers/logger.ts';
import { eventually, operatorOfTests, slotOfTests } from '../harness.ts';
import { deliveriesTo, outboundIds } from '../service-process.ts';
import { publishTurn } from './entries.ts';
import { EMAIL, PUSH, bothPublished, routeIn, untilLogged } from './rows.ts';

/** Nothing is left to push. */
const PUSHED: SymbolConfigState = {
  ...{
    version: 0,
    isListEmpty: false,
    toldChanges: 1,
    pushedChanges: 1,
    failedTargets: [],
    fullPushDueMs: 0,
  },
};

const slot = slotOfTests();
const operator = operatorOfTests(slot);
beforeAll(() => slot.startService({ NOTIFICATION_RECONCILIATION_INTERVAL: '1s' }));

/** Puts a run in the place of a workflow of which no worker knows the type: each of its workflow tasks fails. */
async function getStuck(workflowId: string): Promise<void> {
  await slot.client.workflow.start('unknownType', {
    ...{ workflowId, taskQueue: INTENT_TASK_QUEUE },
    workflowIdConflictPolicy: 'TERMINATE_EXISTING',
    workflowTaskTimeout: '1s',
  });
}

const untilState = (workflowId: string, state: string | undefined) =>
  eventually(
    `${workflowId} to be ${state}`,
    async () => (await stateOf(slot.client.workflow, workflowId, state === 'STUCK')) === state,
  );

/** Temporal does not know it any more, as when it was put back while an activity started it. */
async function getLost(workflowId: string): Promise<void> {
  const { workflowService, options } = slot.client.workflow;
  const { namespace } = options;
  await workflowService.deleteWorkflowExecution({ namespace, workflowExecution: { workflowId } });
  await untilState(workflowId, undefined);
}

/** Puts a run in the place of a workflow that has no task, no activity, no child and no timer: it waits for signals. */
async function fallAsleep(workflowId: string): Promise<void> {
  await slot.client.workflow.start(SYMBOL_CONFIG_WORKFLOW, {
    ...{ workflowId, taskQueue: INTENT_TASK_QUEUE, args: [PUSHED] },
    workflowIdConflictPolicy: 'TERMINATE_EXISTING',
  });
  await untilState(workflowId, 'STUCK');
}

const emailOf = (id: string) => routeWorkflowId(id, EMAIL);

/** Publishes an intent whose e-mail waits for its channel, in a workflow. */
async function publishHeld(key: string): Promise<string> {
  await operator.channels.pause('email', { requestedBy: 'test' });
  const id = await publishTurn(slot.redis, key);
  await routeIn(slot, id, PUSH, 'published');
  await untilState(emailOf(id), 'RUNNING');
  return id;
}

/** The channel takes e-mails again, which are long overdue. */
async function letGo(): Promise<void> {
  await operator.channels.resume('email', { requestedBy: 'test' });
  await slot.db.query("UPDATE notification.routes SET next_attempt_at = next_attempt_at - interval '1 hour'");
}

/** In which ways workflows cannot go on. */
const HARMS = [
  ['tasks fail for ever', getStuck],
  ['runs nothing will wake', fallAsleep],
] as const;

test.each(HARMS)(
  'I49 workflows whose %s are replaced: of a route, of a notification, of the reader',
  async (what, harm) => {
    const before = await outboundIds(slot.redis);
    const sent = async () => (await outboundIds(slot.redis)).slice(before.length);
    const id = await publishHeld(`a ${what}`);
    const ofWork = [notificationWorkflowId(id), emailOf(id)];
    for (const workflowId of [...ofWork, bridgeWorkflowId('notification:intents')]) await harm(workflowId);
    await letGo();

    await eventually('the e-mail', async () => (await sent()).length === 2);
    for (const workflowId of ofWork)
      expect(await stateOf(slot.client.workflow, workflowId)).toBe('TERMINATED');
    const next = await publishTurn(slot.redis, `b ${what}`);
    await eventually('the next intent', async () => (await sent()).length === 4);
    expect(await sent()).toEqual(deliveriesTo('user-1', [id, next]));
    await untilLogged(slot, { msg: 'long-lived workflow did not run and is started', state: 'STUCK' });
  },
);

test.each([
  ['is terminated', (workflowId: string) => slot.client.workflow.getHandle(workflowId).terminate('a test')],
  ['cannot go on', getStuck],
  ['will not wake', fallAsleep],
  ['is lost', getLost],
])(
  'intent-4 a route is taken up whose workflow %s while its notification waits for it',
  async (what, end) => {
    const id = await publishHeld(`route ${what}`);
    const notification = slot.client.workflow.getHandle(notificationWorkflowId(id));
    await end(emailOf(id));
    expect((await notification.describe()).status.name).toBe('RUNNING');
    await letGo();
    await bothPublished(slot, [id]);
    expect(await notification.result()).toMatchObject({ published: 2 });
    expect((await outboundIds(slot.redis)).filter((sent) => sent.startsWith(id))).toHaveLength(2);
  },
);

test.each(HARMS)(
  'I49 workflows whose %s are ended once nothing is left to do for them, and not before',
  async (what, harm) => {
    // Nothing is taken up by itself.
    await slot.startService({ NOTIFICATION_RECONCILIATION_INTERVAL: '24h' });
    const settled = await publishTurn(slot.redis, `c ${what}`);
    await bothPublished(slot, [settled]);
    const open = await publishHeld(`d ${what}`);
    const done = [notificationWorkflowId(settled), routeWorkflowId(settled, 'push-user-1')];
    const undone = [notificationWorkflowId(open), notificationWorkflowId('1-0')];
    const { workflow } = slot.client;
    await Promise.all(
      [...done, ...undone].map(async (workflowId) => {
        await harm(workflowId);
        await untilState(workflowId, 'STUCK');
      }),
    );
    const endStuck = () =>
      reconcile(stuckOfSettled(slot.db, workflow, 0), {}, { log: createLogger('silent') });
    await eventually('those to be ended', async () => {
      await endStuck();
      const states = await Promise.all(done.map((id) => stateOf(workflow, id)));
      return states.every((state) => state === 'TERMINATED');
    });
    expect(await endStuck()).toBe(false);
    for (const id of undone) expect([id, await stateOf(workflow, id, true)]).toEqual([id, 'STUCK']);
    await operator.channels.resume('email', { requestedBy: 'test' });
  },
);

test('I49 a workflow that is signalled while its task fails is stuck as well', async () => {
  const { workflow } = slot.client;
  const workflowId = notificationWorkflowId('2-0');
  await getStuck(workflowId);
  await eventually('it to be stuck', async () => {
    // Each signal begins a new count of attempts.
    await workflow.getHandle(workflowId).signal('any');
    return (await stateOf(workflow, workflowId)) === 'STUCK';
  });
});
