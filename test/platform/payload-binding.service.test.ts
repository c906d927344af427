/** Payloads are for one workflow, and in plain for none: on a real Temporal, against a client that may start and signal there. */
import { randomBytes } from 'node:crypto';
import { Client } from '@temporalio/client';
import type { KeyBoxKey } from '../../api/key-box.ts';
import type { Payload } from '@temporalio/common';
import { PLAIN, dataConverterWith, isSealed, payloadHeadOf } from '../../api/payload-codec.ts';
import { createOperator } from '../../client/operator.ts';
import { NOTIFICATION_WORKFLOW, notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { cliOfEachTest } from '../command-line.ts';
import { eventually, operatorOf, resourcesOf, slotOfEachTest } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { delivered, outboundIds } from '../service-process.ts';
import { namespaceOf } from '../slots.ts';

// Several services and commands, one after the other.
jest.setTimeout(240_000);
const KEY: KeyBoxKey = { id: 'test', key: randomBytes(32) };
const KEYS = { NOTIFICATION_PAYLOAD_KEYS: `${KEY.id}:${KEY.key.toString('base64')}` };
const CONFIGURED = { payload: [KEY], subscription: [] };

const slot = slotOfEachTest();
const bench = cliOfEachTest(slot);
let reader: Client;
beforeEach(async () => {
  const { connection, options } = slot.client;
  reader = new Client({
    connection,
    namespace: options.namespace,
    dataConverter: dataConverterWith([KEY])!,
  });
});

const operator = () => createOperator({ ...resourcesOf(slot), temporal: reader });
/** @returns the payloads of a history that are sealed. */
function sealedPayloadsIn(value: unknown): Payload[] {
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return [];
  if (isSealed(value)) return [value];
  return Object.values(value).flatMap(sealedPayloadsIn);
}

const retained = async () => (await operator().keys.status(CONFIGURED, { withRetained: true })).payload;

test('I40 security-15 with keys from the beginning, all that Temporal keeps is bound to its workflow: a payload that is moved, or in plain, is refused', async () => {
  await slot.startService(KEYS);
  const { channels, keys } = operator();
  const pause = { channel: 'email' as const, requestedBy: 'nina' };
  await channels.pause(pause.channel, { requestedBy: pause.requestedBy, reason: 'test' });
  const first = await publishTurn(slot.redis, 'first');
  await eventually('the push', async () => (await outboundIds(slot.redis)).length === 1);
  await channels.resume(pause.channel, { requestedBy: pause.requestedBy });
  await delivered(slot, first);

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
  await keys.renew(CONFIGURED, { limitMs: 60_000 });

  await eventually('all histories to be sealed', async () => {
    const views = await retained();
    return views.length === 1 && views[0]!.open >= 1;
  });
  for await (const { workflowId, history } of slot.client.workflow.list().intoHistories()) {
    const owners = sealedPayloadsIn(history).map((payload) => payloadHeadOf(payload)?.owner.workflowId);
    expect([workflowId, owners.filter((owner) => !owner)]).toEqual([workflowId, []]);
  }
  const failed: string[] = [];
  for await (const { workflowId, status } of slot.client.workflow.list()) {
    if (status.name === 'FAILED') failed.push(workflowId);
  }
  expect(failed).toEqual([]);
  expect(slot.logs.filter(({ msg }) => /refused|not configured/.test(msg))).toEqual([]);

  const { events } = await slot.client.workflow.getHandle(notificationWorkflowId(first)).fetchHistory();
  const { input } = events![0]!.workflowExecutionStartedEventAttributes!;
  const start = async (workflowId: string, payloads: object) => {
    await slot.client.workflowService.startWorkflowExecution({
      namespace: namespaceOf(slot.slot),
      workflowId,
      workflowType: { name: NOTIFICATION_WORKFLOW },
      taskQueue: { name: 'intent' },
      input: payloads,
      requestId: workflowId,
    });
  };
  const said = (msg: string, workflowId: string) =>
    eventually(msg, async () =>
      slot.logs.some((line) => line.msg.startsWith(msg) && line['workflow_id'] === workflowId),
    );
  const moved = notificationWorkflowId('1-1');
  await start(moved, input!);
  await said('a payload was refused', moved);

  const plain = notificationWorkflowId('1-2');
  const [payload] = await reader.options.loadedDataConverter.payloadCodecs[0]!.decode(input!.payloads!);
  await start(plain, { payloads: [payload] });
  await said('a payload in plain was refused', plain);

  for (const id of [moved, plain]) await slot.client.workflow.getHandle(id).terminate('end of the test');
  // Nothing came of either, and others go on.
  const second = await publishTurn(slot.redis, 'second');
  await delivered(slot, first, second);
});

test('security-15 an installation without keys gets them while work waits, and refuses what is in plain at last', async () => {
  let service = await slot.startService();
  await operatorOf(slot).channels.pause('email', { requestedBy: 'nina', reason: 'test' });
  const first = await publishTurn(slot.redis, 'first');
  await eventually('the push', async () => (await outboundIds(slot.redis)).length === 1);
  await service.stop();

  const changing = { ...KEYS, NOTIFICATION_PAYLOAD_PLAIN: 'accept' };
  service = await slot.startService(changing);
  const resumed = await bench.cli(['channels', 'resume', 'email'], { changes: changing });
  expect(resumed).toMatchObject({ code: 0 });
  await delivered(slot, first);
  const plain = () => retained().then((views) => views.find(({ key }) => key === PLAIN));
  await eventually('what runs in plain to be listed', async () => ((await plain())?.open ?? 0) > 0);
  const renewed = await bench.cli(['keys', 'renew'], { changes: changing });
  expect(renewed).toMatchObject({ code: 0 });
  await eventually('nothing that runs to be in plain', async () => (await plain())?.open === 0);
  await service.stop();

  await slot.startService(KEYS);
  const second = await publishTurn(slot.redis, 'second');
  await delivered(slot, first, second);
  const again = await bench.cli(['keys', 'renew'], { changes: KEYS });
  expect(again).toMatchObject({ code: 0 });
  await eventually('nothing that runs to be in plain', async () => ((await plain())?.open ?? 0) === 0);
});
