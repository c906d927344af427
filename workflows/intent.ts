/** The story of one intent: accept it, publish each of its routes in a workflow of its own, report the totals. */
import {
  ApplicationFailure,
  ChildWorkflowFailure,
  ParentClosePolicy,
  executeChild,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  workflowInfo,
} from '@temporalio/workflow';
import type { IntentActivities } from '../activities/intent.ts';
import { ROUTE_DEAD_LETTERED } from './failures.ts';
import type {
  Acceptance,
  BatchInput,
  NotificationInput,
  NotificationOutcome,
  RouteToPublish,
  RouteTotals,
} from './intent-contract.ts';
import {
  MAX_RECIPIENTS_ACCEPTED_LOCALLY,
  ROUTES_PER_BATCH,
  batchWorkflowId,
  routeWorkflowId,
} from './intent-contract.ts';
import { notificationRoute } from './intent-route.ts';
import { ACCEPTANCE, DATABASE_READ, FIRST_TRY } from './policies.ts';
import { inheritedAttributes, routeChannel } from './search-attributes.ts';

/** Whose routes they are. */
type Notification = Pick<NotificationInput, 'notificationId' | 'notificationType'>;
type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

const firstTry = proxyLocalActivities<IntentActivities>(FIRST_TRY);
const durable = proxyActivities<IntentActivities>(ACCEPTANCE);
const database = proxyActivities<IntentActivities>(DATABASE_READ);

/** One intent, from its stream entry to the totals of its routes. Completes even when routes were dead-lettered. */
export async function notification(intent: NotificationInput): Promise<NotificationOutcome> {
  const acceptance = await accept(intent);
  if (acceptance.outcome !== 'accepted') return acceptance;

  const totals =
    acceptance.routes.length === acceptance.routeCount - acceptance.skipped
      ? await publishEach(intent, acceptance.routes)
      : await publishInBatches(intent, acceptance);
  return { outcome: 'accepted', ...totals, skipped: totals.skipped + acceptance.skipped };
}

/** A slice of the routes of a large notification. */
export async function notificationBatch(batch: BatchInput): Promise<RouteTotals> {
  const routes = await database.listRoutesToPublish(batch.notificationId, batch.offset, ROUTES_PER_BATCH);
  return publishEach(batch, routes);
}

async function accept(intent: NotificationInput): Promise<Acceptance> {
  if (intent.recipientUserIds.length <= MAX_RECIPIENTS_ACCEPTED_LOCALLY) {
    try {
      return await firstTry.acceptIntent(intent);
    } catch (error) {
      if (isCancellation(error)) throw error;
      setCurrentDetails(
        'Acceptance failed at the first try; the pending activity shows why and when it is tried again.',
      );
    }
  }
  const acceptance = await durable.acceptIntent(intent);
  setCurrentDetails('');
  return acceptance;
}

async function publishEach(of: Notification, routes: RouteToPublish[]): Promise<RouteTotals> {
  const outcomes = await Promise.all(routes.map((route) => publish(of, route)));
  const count = (status: string) => outcomes.filter((outcome) => outcome === status).length;
  return { published: count('published'), skipped: count('skipped'), deadLettered: count('dead_letter') };
}

async function publish(
  of: Notification,
  { routeRef, channel }: RouteToPublish,
): Promise<'published' | 'skipped' | 'dead_letter'> {
  try {
    const { status } = await executeChild(notificationRoute, {
      args: [{ notificationId: of.notificationId, routeRef }],
      workflowId: routeWorkflowId(of.notificationId, routeRef),
      // A notification that is terminated or reset must not take routes with it in mid-publication.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      typedSearchAttributes: [
        ...inheritedAttributes(workflowInfo().typedSearchAttributes),
        routeChannel(channel),
      ],
      staticSummary: `${of.notificationType} ${routeRef}`,
    });
    return status;
  } catch (error) {
    // The route's own workflow is the record of its failure; siblings and the notification go on.
    if (isDeadLettered(error)) return 'dead_letter';
    throw error;
  }
}

function isDeadLettered(error: unknown): boolean {
  return (
    error instanceof ChildWorkflowFailure &&
    error.cause instanceof ApplicationFailure &&
    error.cause.type === ROUTE_DEAD_LETTERED
  );
}

async function publishInBatches(of: Notification, { routeCount }: Accepted): Promise<RouteTotals> {
  const batches = Array.from({ length: Math.ceil(routeCount / ROUTES_PER_BATCH) }, (_, batch) =>
    executeChild(notificationBatch, {
      args: [
        {
          notificationId: of.notificationId,
          notificationType: of.notificationType,
          offset: batch * ROUTES_PER_BATCH,
        },
      ],
      workflowId: batchWorkflowId(of.notificationId, batch),
      parentClosePolicy: ParentClosePolicy.ABANDON,
      typedSearchAttributes: inheritedAttributes(workflowInfo().typedSearchAttributes),
      staticSummary: `${of.notificationType} batch ${batch}`,
    }),
  );
  const totals = await Promise.all(batches);
  const sum = (name: keyof RouteTotals) => totals.reduce((total, batch) => total + batch[name], 0);
  return { published: sum('published'), skipped: sum('skipped'), deadLettered: sum('deadLettered') };
}
