/** Dead letters as Temporal shows them: each is a workflow that is open while its route is dead. */
import type { WorkflowClient } from '@temporalio/client';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import {
  DEAD_LETTER_WORKFLOW,
  INTENT_TASK_QUEUE,
  LOOK_SIGNAL,
  deadLetterWorkflowId,
} from '../../workflows/intent/contract.ts';
import type { RouteKey } from '../../workflows/intent/contract.ts';
import {
  notificationAttributes,
  routeChannel,
  routeStatus,
} from '../../workflows/intent/search-attributes.ts';
import { signalIfRunning } from '../workflows.ts';
import type { RouteRow } from './route-rows.ts';

/** Shows a route that is dead. One that is shown already looks again. @throws what the Temporal client fails with. */
export async function showDeadLetter(workflows: WorkflowClient, route: RouteRow): Promise<void> {
  const { notification_id: notificationId, notification_type: notificationType, producer } = route;
  const routeRef = routeRefOf(route.route_id);
  await workflows.signalWithStart(DEAD_LETTER_WORKFLOW, {
    workflowId: deadLetterWorkflowId(notificationId, routeRef),
    taskQueue: INTENT_TASK_QUEUE,
    args: [{ notificationId, routeRef } satisfies RouteKey],
    signal: LOOK_SIGNAL,
    typedSearchAttributes: [
      ...notificationAttributes({
        ...{ notificationId, notificationType, producer },
        idempotencyKey: searchableKey(route.idempotency_key),
      }),
      routeChannel(route.channel),
      routeStatus('dead_letter'),
    ],
    staticSummary: `${notificationType} ${routeRef}`,
  });
}

/** Has it look at its row, which a replay may have changed. @throws what the Temporal client fails with. */
export const lookAgain = (
  workflows: WorkflowClient,
  { notification_id, route_id }: Pick<RouteRow, 'notification_id' | 'route_id'>,
): Promise<void> =>
  signalIfRunning(workflows, deadLetterWorkflowId(notification_id, routeRefOf(route_id)), LOOK_SIGNAL);
