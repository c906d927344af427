/**
 * What the service is compared with, in Temporal's sandbox: the least that each shape can cost, and the same work as a
 * tutorial would do it. They are no part of the product, and of its bundle.
 */
import { executeChild, proxyActivities, workflowInfo } from '@temporalio/workflow';
import type { IntentActivities } from '../activities/intent/acceptance.ts';
import type { RouteActivities } from '../activities/intent/routes.ts';
import type { NotificationInput, RouteKey } from '../workflows/intent/contract.ts';

const { acceptIntent } = proxyActivities<IntentActivities>({ startToCloseTimeout: '1 minute' });
const { publishRoute } = proxyActivities<RouteActivities>({ startToCloseTimeout: '1 minute' });

export async function emptyWorkflow(): Promise<void> {}

/** The shape of an intent for one recipient, push and e-mail, without any work. */
export async function emptyTree(): Promise<void> {
  const { workflowId } = workflowInfo();
  await Promise.all(
    ['push', 'email'].map((channel) =>
      executeChild(emptyWorkflow, { workflowId: `${workflowId}/${channel}` }),
    ),
  );
}

/** The real work with the settings that the SDK has by default: regular activities, a child for each route. */
export async function naiveNotification(intent: NotificationInput): Promise<void> {
  const acceptance = await acceptIntent(intent);
  if (acceptance.outcome !== 'accepted') throw new Error(`not accepted: ${acceptance.outcome}`);
  const { notificationId } = intent;
  await Promise.all(
    (acceptance.routes ?? []).map((routeRef) =>
      executeChild(naiveRoute, {
        args: [{ notificationId, routeRef }],
        workflowId: `${workflowInfo().workflowId}/${routeRef}`,
      }),
    ),
  );
}

export async function naiveRoute(route: RouteKey): Promise<string> {
  const { status } = await publishRoute(route);
  return status;
}
