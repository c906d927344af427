/**
 * Makes good what a restored store has forgotten, as far back as an operator says. The parts are those that run by
 * themselves after a loss that is noticed: entries are read again, entries that outbound streams have lost are handed off
 * again, and work that nobody does is taken up.
 */
import {
  defineQuery,
  executeChild,
  getExternalWorkflowHandle,
  proxyActivities,
  setCurrentDetails,
  setHandler,
} from '@temporalio/workflow';
import type { InputRecoveryActivities } from '../activities/account-callback/recovery.ts';
import type { ReconciliationActivities } from '../activities/intent/reconciliation.ts';
import type { RecoveryActivities } from '../activities/intent/recovery.ts';
import { ACCOUNT_CALLBACK_TASK_QUEUE } from './account-callback/contract.ts';
import type { ReconciliationOutcome } from './intent/contract.ts';
import { MOBILE_TASK_QUEUE } from './mobile-push/contract.ts';
import { RETENTION, STEERING } from './policies.ts';
import { mobileReconciliation } from './reconciliation.ts';
import type { RecoveryInput, RecoveryProgress } from './recovery-contract.ts';
import { RECOVERY_PROGRESS_QUERY } from './recovery-contract.ts';
import { SUBSCRIPTION_TASK_QUEUE } from './subscription/contract.ts';
import { subscriptionSweep } from './subscription/supervisor.ts';
import { SYMBOLS_CHANGED_SIGNAL, SYMBOL_REGISTRY, symbolConfigWorkflowId } from './symbol-config/contract.ts';

const { readAgainSince, awaitReadAgain, restoreOutbound } = proxyActivities<RecoveryActivities>(STEERING);
const { takeUpWork } = proxyActivities<ReconciliationActivities>(RETENTION);

const { giveInputsAgain } = proxyActivities<InputRecoveryActivities>({
  ...STEERING,
  taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
});

/** @returns what was done. Every part may be done twice, and beside what goes on. */
export async function recovery(input: RecoveryInput): Promise<RecoveryProgress> {
  const { stream, outbound, sinceMs, also, requestedBy } = input;
  const progress: RecoveryProgress = {
    step: 'reading again',
    restored: [],
    takenUp: { overdue: 0, published: 0, restarted: 0, intents: 0, ended: 0 },
  };
  setHandler(defineQuery<RecoveryProgress>(RECOVERY_PROGRESS_QUERY), () => progress, {
    description: 'How far the recovery is.',
  });
  const begin = (step: RecoveryProgress['step'], details: string) => {
    progress.step = step;
    setCurrentDetails(`asked for by ${requestedBy}: ${details}`);
  };

  begin('reading again', `entries of \`${stream}\` are read again; while intake is paused, this waits`);
  const readAgain = await readAgainSince(stream, sinceMs);
  if (readAgain) {
    progress.readAgain = readAgain;
    await awaitReadAgain(stream, readAgain);
  }

  begin('looking for entries', 'published routes are looked for in the outbound streams');
  for (const name of outbound) progress.restored.push(await restoreOutbound(name, sinceMs, requestedBy));

  begin('taking work up', 'work that nobody does is taken up, of all kinds');
  for (let last: ReconciliationOutcome = await takeUpWork(); ; last = await takeUpWork()) {
    add(progress.takenUp, last);
    if (last.published + last.restarted + last.intents === 0) break;
  }
  if (also.includes('mobile-push')) {
    progress.mobilePush = await executeChild(mobileReconciliation, { taskQueue: MOBILE_TASK_QUEUE });
  }
  if (also.includes('subscription')) {
    progress.subscription = await executeChild(subscriptionSweep, { taskQueue: SUBSCRIPTION_TASK_QUEUE });
  }
  if (also.includes('symbol-config')) {
    // Without one that runs there is nobody to tell: it pushes to all when processes start it.
    await getExternalWorkflowHandle(symbolConfigWorkflowId(SYMBOL_REGISTRY))
      .signal(SYMBOLS_CHANGED_SIGNAL)
      .catch(() => undefined);
    progress.symbolsPushed = true;
  }
  if (also.includes('account-callback')) {
    const { from } = await giveInputsAgain(sinceMs);
    if (from !== undefined) progress.inputsAgainFrom = from;
  }
  begin('done', 'done');
  return progress;
}

function add(total: ReconciliationOutcome, part: ReconciliationOutcome): void {
  total.overdue += part.overdue;
  total.published += part.published;
  total.restarted += part.restarted;
  total.intents += part.intents;
  total.ended += part.ended;
}
