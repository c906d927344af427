/**
 * A dead letter as operators find it in Temporal: this workflow is open for as long as its route is dead. What failed stays
 * failed in Temporal whatever is done about it, so that the failed runs of routes are no list of what is left to do.
 *
 * The activity or command that changes a dead route sends the signal `look`. The row decides: a route that was replayed, or that retention has
 * removed, is not dead any more.
 */
import {
  condition,
  continueAsNew,
  defineSignal,
  proxyLocalActivities,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { RouteActivities } from '../../activities/intent/routes.ts';
import { isHistoryLong } from '../long-lived.ts';
import { ROW_LOOK } from '../policies.ts';
import type { RouteKey } from './contract.ts';
import { LOOK_SIGNAL } from './contract.ts';
import { routeStatus } from '../search-attributes.ts';
import { deadLetterDetails } from './route.ts';

const { lookAtDeadLetter } = proxyLocalActivities<RouteActivities>(ROW_LOOK);

/**
 * Ends when the route is not dead any more. Each day it goes on in a new run, which looks at the row without a signal:
 * retention sends none.
 *
 * @throws CancelledFailure when an operator takes the dead letter off the list; its row stays.
 */
export async function notificationDeadLetter(route: RouteKey): Promise<void> {
  let isTold = false;
  let shown = workflowInfo().typedSearchAttributes.get({ name: 'FailureClassification', type: 'KEYWORD' });
  setHandler(defineSignal(LOOK_SIGNAL), () => void (isTold = true), {
    description: 'Looks whether the route is still dead, and ends if it is not.',
  });
  do {
    isTold = false;
    const death = await lookAtDeadLetter(route);
    if (!death) return setCurrentDetails('Over: the route was replayed, or retention has removed it.');
    setCurrentDetails(deadLetterDetails(death));
    // It died again, of something else, before anything was noticed.
    if (death.classification !== shown)
      upsertSearchAttributes(routeStatus('dead_letter', death.classification));
    shown = death.classification;
  } while ((await condition(() => isTold, '1 day')) && !isHistoryLong());
  await continueAsNew<typeof notificationDeadLetter>(route);
}
