/** How a route is told to try again. Pure, so that clients and activities share it. */
import { byWhom, detailsOf, shortText } from '../details.ts';
import type { ReplayRequest, RouteKey } from './contract.ts';
import { INTENT_TASK_QUEUE, REPLAY_SIGNAL, routeWorkflowId } from './contract.ts';
import type { NotificationKeys } from '../search-attributes.ts';
import { notificationAttributes, routeAttributes } from '../search-attributes.ts';

/**
 * What `signalWithStart` takes to have a route replayed: a run that waits tries now, one that failed is followed by
 * another. One that completed has published the route, and the start is refused.
 *
 * @param keys as for notificationAttributes.
 */
export const routeReplay = (
  { routeRef, ...keys }: NotificationKeys & { routeRef: string },
  request: ReplayRequest,
) => ({
  workflowId: routeWorkflowId(keys.notificationId, routeRef),
  taskQueue: INTENT_TASK_QUEUE,
  args: [{ notificationId: keys.notificationId, routeRef } satisfies RouteKey],
  signal: REPLAY_SIGNAL,
  signalArgs: [request],
  workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY' as const,
  typedSearchAttributes: [...notificationAttributes(keys), ...routeAttributes(routeRef)],
  staticSummary: `${keys.notificationType} ${routeRef} (replay)`,
  staticDetails: detailsOf(`Replay${byWhom(request.requestedBy)}`, shortText(request.reason ?? '')),
});
