/** Weights of producers: set by operators, and what they do to the order in which Temporal hands out what waits, on the server of this run. */
import type { Producer } from '../../api/intent/catalog.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { cliOfTests } from '../command-line.ts';
import { eventually, operatorOfTests, slotOfTests } from '../harness.ts';

const slot = slotOfTests();
const operator = operatorOfTests(slot);
const bench = cliOfTests(slot);

const WAITING_EACH = 60;
const HANDED_OUT = 40;
const POLL_LIMIT_MS = 60_000;

const weigh = (...args: string[]) => bench.cli(['producers', 'weight', 'game_lobby', ...args]);
const untilWeight = (wanted: number) =>
  eventually(`the weight ${wanted} to be shown`, async () => {
    const producers = await operator.producers.list();
    return producers.find(({ producer }) => producer === 'game_lobby')?.weight === wanted;
  });
const actions = async () =>
  (await operator.actions.list({ action: 'producers weight' })).items.map(({ detail }) => detail);

test('I86 of what waits in Temporal, a producer gets the share of its weight, and an equal one without weights', async () => {
  expect(await weigh('0')).toMatchObject({ code: 2, stdout: '' });
  await untilWeight(1);
  const { serverVersion } = await slot.client.workflowService.getSystemInfo({});
  const hasWeights = !/^1\.(\d|[12]\d)\./.test(serverVersion);
  expect(await weigh('0.25', '--requested-by', 'nina')).toMatchObject(
    hasWeights
      ? { code: 0, stdout: 'game_lobby has the weight 0.25\n' }
      : { code: 1, stdout: '', stderr: expect.stringContaining('Temporal took no weight') },
  );
  await untilWeight(hasWeights ? 0.25 : 1);
  // The louder one comes first, and no worker runs yet.
  for (const producer of ['game_lobby', 'game_master'] satisfies Producer[]) {
    await Promise.all(
      Array.from({ length: WAITING_EACH }, (_, index) =>
        slot.client.workflow.start('notification', {
          ...{ workflowId: `${producer}-${index}`, taskQueue: INTENT_TASK_QUEUE, args: [] },
          priority: { fairnessKey: producer },
        }),
      ),
    );
  }
  const { namespace } = slot.client.options;
  let ofLobby = 0;
  for (let task = 0; task < HANDED_OUT; task += 1) {
    const { workflowExecution } = await slot.client.withDeadline(Date.now() + POLL_LIMIT_MS, () =>
      slot.client.workflowService.pollWorkflowTaskQueue({
        ...{ namespace, taskQueue: { name: INTENT_TASK_QUEUE }, identity: 'weights' },
      }),
    );
    if (workflowExecution!.workflowId!.startsWith('game_lobby')) ofLobby += 1;
  }
  // A fifth of them, or half.
  const [least, most] = hasWeights ? [5, 11] : [17, 23];
  expect(ofLobby).toBeGreaterThanOrEqual(least);
  expect(ofLobby).toBeLessThanOrEqual(most);

  if (hasWeights) expect(await weigh('1')).toMatchObject({ code: 0 });
  await untilWeight(1);
  expect(await actions()).toEqual(hasWeights ? ['1', '0.25'] : []);
});
