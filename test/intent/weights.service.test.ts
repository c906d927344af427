/** What weights of producers do to the order in which Temporal hands out what waits, on the server of this run. */
import type { Producer } from '../../api/intent/catalog.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { operatorOf, slotOfTests } from '../harness.ts';

const slot = slotOfTests();

const WAITING_EACH = 60;
const HANDED_OUT = 40;
const POLL_LIMIT_MS = 60_000;

test('I86 of what waits in Temporal, a producer gets the share of its weight, and an equal one without weights', async () => {
  const hasWeights = await operatorOf(slot)
    .producers.weigh('game_lobby', { weight: 0.25, requestedBy: 'nina' })
    .then(() => true)
    .catch((error: Error) => {
      expect(error.message).toContain('Temporal took no weight');
      return false;
    });
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
});
