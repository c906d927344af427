/** The story of one intent: accept it, publish each of its routes in a workflow of its own, report the totals. */
import {
  ApplicationFailure,
  CancellationScope,
  ChildWorkflowCancellationType,
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
import type { SteeringActivities } from '../activities/route-steering.ts';
import { ROUTE_DEAD_LETTERED } from './failures.ts';
import type {
  Acceptance,
  BatchInput,
  NotificationInput,
  NotificationOutcome,
  RouteToPublish,
  RouteTotals,
  SettledStatus,
} from './intent-contract.ts';
import {
  MAX_RECIPIENTS_ACCEPTED_LOCALLY,
  ROUTES_PER_BATCH,
  batchWorkflowId,
  routeWorkflowId,
} from './intent-contract.ts';
import { notificationRoute } from './intent-route.ts';
import { ACCEPTANCE, DATABASE, FIRST_TRY, STEERING } from './policies.ts';
import { wasReset } from './route-operator.ts';
import { inheritedAttributes, routeChannel } from './search-attributes.ts';

/**
 * A notification that is terminated or reset must not take routes with it in mid-publication. Nor does it cancel them
 * one by one: a request that meets a child just being started is lost (tried with server 1.29), so the routes' rows
 * are closed instead, which no route can miss.
 */
const INDEPENDENT = {
  parentClosePolicy: ParentClosePolicy.ABANDON,
  cancellationType: ChildWorkflowCancellationType.ABANDON,
} as const;

/** Whose routes they are. */
type Notification = Omit<BatchInput, 'offset'>;
type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

const firstTry = proxyLocalActivities<IntentActivities>(FIRST_TRY);
const durable = proxyActivities<IntentActivities>(ACCEPTANCE);
const database = proxyActivities<IntentActivities>(DATABASE);
const steering = proxyActivities<SteeringActivities>(STEERING);

/**
 * One intent, from its stream entry to the totals of its routes. Completes even when routes were dead-lettered.
 *
 * @throws CancelledFailure when an operator cancelled it; then no route is left open, and those that were not published
 * are skipped.
 */
export async function notification(intent: NotificationInput): Promise<NotificationOutcome> {
  try {
    const acceptance = await accept(intent);
    if (acceptance.outcome !== 'accepted') return acceptance;

    const of = { ...intent, replay: wasReset() };
    const totals =
      acceptance.routes.length === acceptance.routeCount - acceptance.skipped
        ? await publishEach(of, acceptance.routes)
        : await publishInBatches(of, acceptance);
    return { outcome: 'accepted', ...totals, skipped: totals.skipped + acceptance.skipped };
  } catch (error) {
    if (isCancellation(error)) await skipWhatIsOpen(intent);
    throw error;
  }
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
  { notificationId, notificationType, replay }: Notification,
  { routeRef, channel }: RouteToPublish,
): Promise<SettledStatus> {
  try {
    const { status } = await executeChild(notificationRoute, {
      args: [{ notificationId, routeRef, ...(replay ? { replay } : {}) }],
      workflowId: routeWorkflowId(notificationId, routeRef),
      ...INDEPENDENT,
      typedSearchAttributes: [
        ...inheritedAttributes(workflowInfo().typedSearchAttributes),
        routeChannel(channel),
      ],
      staticSummary: `${notificationType} ${routeRef}`,
    });
    return status;
  } catch (error) {
    // The route's own workflow is the record of its failure; siblings and the notification go on.
    if (isDeadLettered(error)) return 'dead_letter';
    if (isCancellation(error)) throw error;
    // It runs already (this notification was reset) or was terminated: then somebody else settles it.
    return steering.awaitSettled({ notificationId, routeRef });
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
    publishBatch(of, batch),
  );
  const totals = await Promise.all(batches);
  const sum = (name: keyof RouteTotals) => totals.reduce((total, batch) => total + batch[name], 0);
  return { published: sum('published'), skipped: sum('skipped'), deadLettered: sum('deadLettered') };
}

async function publishBatch(
  { notificationId, notificationType, replay }: Notification,
  batch: number,
): Promise<RouteTotals> {
  const offset = batch * ROUTES_PER_BATCH;
  try {
    return await executeChild(notificationBatch, {
      args: [{ notificationId, notificationType, offset, replay }],
      workflowId: batchWorkflowId(notificationId, batch),
      ...INDEPENDENT,
      typedSearchAttributes: inheritedAttributes(workflowInfo().typedSearchAttributes),
      staticSummary: `${notificationType} batch ${batch}`,
    });
  } catch (error) {
    if (isCancellation(error)) throw error;
    return steering.awaitBatchSettled(notificationId, offset, ROUTES_PER_BATCH);
  }
}

/** Also when the cancellation came before acceptance was known: what it wrote must not stay open without an owner. */
async function skipWhatIsOpen({ notificationId }: NotificationInput): Promise<void> {
  setCurrentDetails('cancelled, routes that are open are being skipped');
  await CancellationScope.nonCancellable(() => steering.skipOpenRoutes(notificationId));
  setCurrentDetails('cancelled, routes that were open are skipped');
}
