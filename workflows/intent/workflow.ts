/**
 * The story of one intent: accept it, publish its routes, report the totals. Each route has its own workflow, from
 * the beginning or from its first trouble on (`DispatchMode`).
 */
import {
  ApplicationFailure,
  CancellationScope,
  CancelledFailure,
  ChildWorkflowCancellationType,
  ChildWorkflowFailure,
  ParentClosePolicy,
  condition,
  continueAsNew,
  executeChild,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { IntentActivities } from '../../activities/intent/acceptance.ts';
import type { BridgeActivities } from '../../activities/intent/reader.ts';
import type { RouteActivities } from '../../activities/intent/routes.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { detailsOf } from '../details.ts';
import { ROUTE_DEAD_LETTERED } from '../failures.ts';
import type {
  Acceptance,
  NotificationInput,
  NotificationResult,
  RouteSlice,
  RouteTotals,
  SettledStatus,
  SliceResult,
} from './contract.ts';
import { ROUTES_PER_SLICE, routeWorkflowId } from './contract.ts';
import { notificationRoute, wasReset } from './route.ts';
import { onRenewal } from '../long-lived.ts';
import {
  ACCEPTANCE,
  BEFORE_NEW_ONES,
  FIRST_TRY,
  PUBLICATION_WHEN_POSSIBLE,
  STEERING,
  STREAM_READER,
} from '../policies.ts';
import { deadRoutes, inheritedAttributes, routeAttributes } from '../search-attributes.ts';

/** Slices of a large notification that are under way concurrently. */
const PARALLEL_SLICES = 4;

/** Whose routes they are. */
type Notification = NotificationInput & { replay: boolean };
type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

const firstTry = proxyLocalActivities<IntentActivities & RouteActivities>(FIRST_TRY);
const durable = proxyActivities<IntentActivities>(ACCEPTANCE);
const slices = proxyActivities<RouteActivities>(PUBLICATION_WHEN_POSSIBLE);
const steering = proxyActivities<SteeringActivities>(STEERING);

/**
 * One intent, from its stream entry to the totals of its routes. Completes even when routes were dead-lettered.
 *
 * @throws CancelledFailure when an operator cancelled it; then no route is left open, and those that were not published
 * are skipped.
 */
export async function notification(intent: NotificationInput): Promise<NotificationResult> {
  try {
    const acceptance = await accept(intent);
    if (acceptance.outcome !== 'accepted') {
      setCurrentDetails(`Not accepted: \`${Object.values(acceptance).join(' ')}\`.`);
      return acceptance;
    }
    setCurrentDetails(`Accepted; its ${acceptance.routeCount} routes are being published.`);
    const isEach = acceptance.routes && intent.dispatch !== 'on_failure';
    const publish = isEach ? publishEach : publishInSlices;
    const totals = await publish({ ...intent, replay: wasReset() }, acceptance);
    const { deadLettered } = totals;
    setCurrentDetails(
      detailsOf(
        `${totals.published} published, ${totals.skipped} skipped, ${deadLettered} dead.`,
        // Dead letters are other workflows, which are open while a route needs an operator.
        deadLettered > 0 && 'Dead routes need an operator until they are replayed: view Dead letters.',
      ),
    );
    if (deadLettered > 0) upsertSearchAttributes([deadRoutes(deadLettered)]);
    return { outcome: 'accepted', ...totals };
  } catch (error) {
    if (!isOver(error)) throw error;
    await skipWhatIsOpen(intent.notificationId);
    throw isCancellation(error) ? error : new CancelledFailure('Notification cancelled');
  }
}

async function accept(intent: NotificationInput): Promise<Acceptance> {
  if (!intent.isLarge) {
    try {
      return await firstTry.acceptIntent(intent);
    } catch (error) {
      if (isCancellation(error)) throw error;
      setCurrentDetails(
        'Acceptance failed at the first try; the pending activity shows why and when it is tried again.',
      );
    }
  }
  return durable.acceptIntent(intent);
}

async function publishEach(
  of: Notification,
  { routes = [], routeCount, skipped }: Accepted,
): Promise<RouteTotals> {
  const outcomes = await Promise.all(routes.map((routeRef) => publish(of, routeRef)));
  if (outcomes.includes(undefined)) return steering.awaitAllSettled(of.notificationId);
  const count = (status: SettledStatus) => outcomes.filter((outcome) => outcome === status).length;
  return {
    published: routeCount - skipped - routes.length + count('published'),
    skipped: skipped + count('skipped'),
    deadLettered: count('dead_letter'),
  };
}

/** Rows tell how routes in trouble end: their workflows are no children. */
async function publishInSlices(
  { notificationId, replay }: Notification,
  { routeCount }: Accepted,
): Promise<RouteTotals> {
  const isOne = routeCount <= ROUTES_PER_SLICE;
  const totals = { published: 0, skipped: 0, deadLettered: 0 };
  let open = 0;
  const count = Math.ceil(routeCount / ROUTES_PER_SLICE);
  const waiting = Array.from({ length: count }, (_, slice) => slice * ROUTES_PER_SLICE).values();
  const lane = async () => {
    for (const offset of waiting) {
      const slice = { notificationId, offset, limit: ROUTES_PER_SLICE, replay };
      const done = (isOne && (await publishNow(slice))) || (await slices.publishSlice(slice));
      totals.published += done.published;
      totals.skipped += done.skipped;
      open += done.open;
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_SLICES }, lane));
  return open === 0 ? totals : steering.awaitAllSettled(notificationId);
}

/** @returns undefined when it failed here. */
async function publishNow(slice: RouteSlice): Promise<SliceResult | undefined> {
  try {
    return await firstTry.publishSlice(slice);
  } catch (error) {
    if (isCancellation(error)) throw error;
    return undefined;
  }
}

/** @returns undefined when another workflow settles the route, as its row tells. */
async function publish(
  { notificationId, notificationType, replay }: Notification,
  routeRef: string,
): Promise<SettledStatus | undefined> {
  try {
    const { status } = await executeChild(notificationRoute, {
      args: [{ notificationId, routeRef, ...(replay ? { replay } : {}) }],
      workflowId: routeWorkflowId(notificationId, routeRef),
      // A notification that is terminated or reset must not take routes with it in mid-publication. It does not cancel them one by
      // one either: a request that meets a child just being started is lost (tried with server 1.29), so the rows of
      // the routes are closed instead, which no route can miss.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      cancellationType: ChildWorkflowCancellationType.ABANDON,
      ...BEFORE_NEW_ONES,
      typedSearchAttributes: [
        ...inheritedAttributes(workflowInfo().typedSearchAttributes),
        ...routeAttributes(routeRef),
      ],
      staticSummary: `${notificationType} ${routeRef}`,
    });
    return status;
  } catch (error) {
    // The route's own workflow is the record of its failure; siblings and the notification continue.
    if (isDeadLettered(error)) return 'dead_letter';
    if (isOwnCancellation(error)) throw error;
    // It runs already (this notification was reset) or was terminated.
    return undefined;
  }
}

const isDeadLettered = (error: unknown): boolean =>
  error instanceof ChildWorkflowFailure &&
  error.cause instanceof ApplicationFailure &&
  error.cause.type === ROUTE_DEAD_LETTERED;

/** Whether this workflow was cancelled, and not only the child that it waits for. */
const isOwnCancellation = (error: unknown): boolean =>
  isCancellation(error) && CancellationScope.current().consideredCancelled;

/** An attempt that fails while it is asked to stop fails for its own reason, and is not made again. */
const isOver = (error: unknown): boolean =>
  isCancellation(error) || CancellationScope.current().consideredCancelled;

/** Also when the cancellation came before acceptance was known: what it wrote must not stay open without an owner. */
async function skipWhatIsOpen(notificationId: string): Promise<void> {
  setCurrentDetails('Cancelled; open routes are being skipped.');
  await CancellationScope.nonCancellable(() => steering.skipOpenRoutes(notificationId));
  setCurrentDetails('Cancelled; open routes are skipped.');
}

// --- The reader: one is kept on an intent stream. Temporal supplies what it needs from outside: that there is only one, that another
// worker takes over when it dies, and that operators see its progress (heartbeat details of the pending activity) and can pause
// it there.

const reader = proxyActivities<BridgeActivities>(STREAM_READER);

/** @param stream name of the Redis Stream, e.g. `notification:intents`. Runs until it is cancelled or terminated. */
export async function streamBridge(stream: string): Promise<void> {
  setCurrentDetails(`Reads \`${stream}\`; the pending activity shows how far.`);
  const isRenewed = onRenewal();
  const reading = new CancellationScope();
  // It fails only when the workflow is cancelled, which ends the reader as well.
  condition(isRenewed).then(
    () => reading.cancel(),
    () => undefined,
  );
  while (!isRenewed()) {
    try {
      await reading.run(() => reader.bridgeStream(stream));
    } catch (error) {
      // A reader whose process has died ends by its time-out, and the next run begins another one.
      if (!isRenewed() || CancellationScope.current().consideredCancelled) throw error;
    }
  }
  await continueAsNew<typeof streamBridge>(stream);
}
