/** Workflows that run for good, also after an operator or a fault has ended them. */
import { channelWorkflowId } from '../../workflows/intent/channel-contract.ts';
import { bridgeWorkflowId } from '../../workflows/intent/reader-contract.ts';
import { eventually, slotOfTests } from '../harness.ts';
import { publishTurn } from '../intent/entries.ts';
import { delivered } from '../service-process.ts';

const slot = slotOfTests();
beforeAll(() => slot.startService({ NOTIFICATION_RECONCILIATION_INTERVAL: '1s' }));

test('I49 security-4 a long-lived workflow that was terminated, and a schedule that was deleted, come back by themselves', async () => {
  const { workflow, schedule } = slot.client;
  const ids = [bridgeWorkflowId('notification:intents'), channelWorkflowId('email')];
  const runOf = async (workflowId: string) => (await workflow.getHandle(workflowId).describe()).runId;
  const before = await Promise.all(ids.map(runOf));
  for (const id of ids) await workflow.getHandle(id).terminate('a test');
  await schedule.getHandle('intent-retention').delete();

  for (const [index, id] of ids.entries()) {
    await eventually(`another run of ${id}`, async () => {
      const { runId, status } = await workflow.getHandle(id).describe();
      return status.name === 'RUNNING' && runId !== before[index];
    });
  }
  await eventually('the schedule', () => schedule.getHandle('intent-retention').describe());
  await delivered(slot, await publishTurn(slot.redis, 'after'));
});
