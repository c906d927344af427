/** Workflows that run for good, also after an operator or a fault has ended them. */
import { bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { delivered } from '../service-process.ts';

const slot = slotOfTests();
beforeAll(() => slot.startService({ NOTIFICATION_RECONCILIATION_INTERVAL: '1s' }));

test('I49 security-4 a long-lived workflow that was terminated, and a schedule that was deleted, come back by themselves', async () => {
  const { workflow, schedule } = slot.client;
  const reader = workflow.getHandle(bridgeWorkflowId('notification:intents'));
  const { runId: before } = await reader.describe();
  await reader.terminate('a test');
  await schedule.getHandle('intent-retention').delete();

  await eventually('another run of the reader', async () => {
    const { runId, status } = await reader.describe();
    return status.name === 'RUNNING' && runId !== before;
  });
  await eventually('the schedule', () => schedule.getHandle('intent-retention').describe());
  await delivered(slot, await publishTurn(slot.redis, 'after'));
});
