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
  executeChild,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { IntentActivities } from '../../activities/intent/acceptance.ts';
import type { RouteActivities } from '../../activities/intent/routes.ts';
import type { SteeringActivities } from '../../activities/intent/steering.ts';
import { detailsOf } from '../details.ts';
import { ROUTE_DEAD_LETTERED } from '../failures.ts';
import type {
  Acceptance,
  BatchInput,
  FirstAttempts,
  NotificationInput,
  NotificationResult,
  RouteSlice,
  RouteToPublish,
  RouteTotals,
  SettledStatus,
} from './contract.ts';
import { ROUTES_PER_BATCH, batchWorkflowId, isListed, routeWorkflowId } from './contract.ts';
import { notificationRoute, wasReset } from './route.ts';
import { ACCEPTANCE, BEFORE_NEW_ONES, DATABASE, FIRST_TRY, STEERING } from '../policies.ts';
import { deadRoutes, inheritedAttributes, routeAttributes } from '../search-attributes.ts';

/**
 * A notification that is terminated or reset must not take routes with it in mid-publication. It does not cancel them
 * one by one either: a request that meets a child just being started is lost (tried with server 1.29), so the routes' rows
 * are closed instead, which no route can miss.
 */
const INDEPENDENT = {
  parentClosePolicy: ParentClosePolicy.ABANDON,
  cancellationType: ChildWorkflowCancellationType.ABANDON,
} as const;

/**
 * Slices of a large notification whose first attempts are under way concurrently: local activities run in the one
 * process that has the notification, beside everything else it does.
 */
const FIRST_ATTEMPT_LANES = 4;

/** Whose routes they are. */
type Notification = Omit<BatchInput, 'offset'>;
type Slice = Omit<RouteSlice, 'notificationId'>;
type Accepted = Extract<Acceptance, { outcome: 'accepted' }>;

const firstTry = proxyLocalActivities<IntentActivities & RouteActivities>(FIRST_TRY);
const durable = proxyActivities<IntentActivities>(ACCEPTANCE);
const database = proxyActivities<IntentActivities>(DATABASE);
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
    const published = await publishAccepted({ ...intent, replay: wasReset() }, acceptance);
    const totals = sumOf([published, { skipped: acceptance.skipped }]);
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
    await skipWhatIsOpen(() => steering.skipOpenRoutes(intent.notificationId));
    throw cancellationOf(error);
  }
}

/**
 * A slice of the routes of a large notification.
 *
 * @throws CancelledFailure when an operator cancelled it; then no route of the slice is left open, and the notification
 * goes on with its other slices.
 */
export async function notificationBatch(batch: BatchInput): Promise<RouteTotals> {
  const { notificationId, offset } = batch;
  const slice = { offset, limit: ROUTES_PER_BATCH };
  try {
    setCurrentDetails(`Publishes routes ${offset + 1} to ${offset + ROUTES_PER_BATCH} at most.`);
    return await publishSlice(batch, slice, () =>
      database.listRoutesToPublish(notificationId, offset, ROUTES_PER_BATCH),
    );
  } catch (error) {
    if (!isOver(error)) throw error;
    await skipWhatIsOpen(() => steering.skipOpenRoutesOfSlice({ notificationId, ...slice }));
    throw cancellationOf(error);
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

function sumOf(parts: readonly Partial<RouteTotals>[]): RouteTotals {
  const sum = (name: keyof RouteTotals) => parts.reduce((total, part) => total + (part[name] ?? 0), 0);
  return { published: sum('published'), skipped: sum('skipped'), deadLettered: sum('deadLettered') };
}

function publishAccepted(of: Notification, acceptance: Accepted): Promise<RouteTotals> {
  const { first, routes, routeCount } = acceptance;
  if (first) return publishRest(of, first);
  return isListed(acceptance)
    ? publishSlice(of, { offset: 0, limit: routeCount }, () => routes)
    : publishInBatches({ ...of, dispatch: 'on_failure' }, acceptance);
}

/** @param list loads the slice's routes to publish; used when they are not loaded yet. */
async function publishSlice(
  of: Notification,
  slice: Slice,
  list: () => RouteToPublish[] | Promise<RouteToPublish[]>,
): Promise<RouteTotals> {
  const first = await makeFirstAttempts(of, slice);
  return first ? publishRest(of, first) : publishEach(of, await list());
}

/** Those that first attempts have left open. */
const publishRest = async (of: Notification, { open, ...done }: FirstAttempts): Promise<RouteTotals> =>
  sumOf([done, await publishEach(of, open)]);

/** @returns undefined when routes make their first attempts themselves, by their mode or because it failed here. */
async function makeFirstAttempts(
  { notificationId, dispatch }: Notification,
  slice: Slice,
): Promise<FirstAttempts | undefined> {
  if (dispatch !== 'on_failure') return undefined;
  try {
    return await firstTry.publishFirstAttempts({ notificationId, ...slice });
  } catch (error) {
    if (isCancellation(error)) throw error;
    return undefined;
  }
}

async function publishEach(of: Notification, routes: RouteToPublish[]): Promise<RouteTotals> {
  const outcomes = await Promise.all(routes.map((route) => publish(of, route)));
  const count = (status: string) => outcomes.filter((outcome) => outcome === status).length;
  return { published: count('published'), skipped: count('skipped'), deadLettered: count('dead_letter') };
}

async function publish(
  { notificationId, notificationType, replay }: Notification,
  { routeRef, first, isPublished }: RouteToPublish,
): Promise<SettledStatus> {
  if (isPublished) return 'published';
  try {
    const { status } = await executeChild(notificationRoute, {
      args: [{ notificationId, routeRef, ...(replay ? { replay } : {}), ...(first ? { first } : {}) }],
      workflowId: routeWorkflowId(notificationId, routeRef),
      ...INDEPENDENT,
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
    // It runs already (this notification was reset) or was terminated: then another workflow settles it.
    return steering.awaitSettled({ notificationId, routeRef });
  }
}

const isDeadLettered = (error: unknown): boolean =>
  error instanceof ChildWorkflowFailure &&
  error.cause instanceof ApplicationFailure &&
  error.cause.type === ROUTE_DEAD_LETTERED;

async function publishInBatches(of: Notification, { routeCount }: Accepted): Promise<RouteTotals> {
  const waiting = Array.from({ length: Math.ceil(routeCount / ROUTES_PER_BATCH) }, (_, batch) => batch);
  const done: Partial<RouteTotals>[] = [];
  const batches: Promise<RouteTotals>[] = [];
  const lane = async () => {
    for (let batch = waiting.shift(); batch !== undefined; batch = waiting.shift()) {
      const first = await makeFirstAttempts(of, {
        offset: batch * ROUTES_PER_BATCH,
        limit: ROUTES_PER_BATCH,
      });
      if (first?.open.length === 0) {
        done.push({ published: first.published, skipped: first.skipped });
        continue;
      }
      // Not waited for here: routes in trouble must not hold up those behind them.
      const running = publishBatch(of, batch);
      running.catch(() => undefined);
      batches.push(running);
    }
  };
  await Promise.all(Array.from({ length: FIRST_ATTEMPT_LANES }, lane));
  return sumOf([...done, ...(await Promise.all(batches))]);
}

async function publishBatch(
  { notificationId, notificationType, replay, dispatch }: Notification,
  batch: number,
): Promise<RouteTotals> {
  const offset = batch * ROUTES_PER_BATCH;
  try {
    return await executeChild(notificationBatch, {
      args: [{ notificationId, notificationType, offset, replay, ...(dispatch ? { dispatch } : {}) }],
      workflowId: batchWorkflowId(notificationId, batch),
      ...INDEPENDENT,
      ...BEFORE_NEW_ONES,
      typedSearchAttributes: inheritedAttributes(workflowInfo().typedSearchAttributes),
      staticSummary: `${notificationType} batch ${batch}`,
    });
  } catch (error) {
    if (isOwnCancellation(error)) throw error;
    return steering.awaitBatchSettled(notificationId, offset, ROUTES_PER_BATCH);
  }
}

/** Whether this workflow was cancelled, and not only the child that it waits for. */
const isOwnCancellation = (error: unknown): boolean =>
  isCancellation(error) && CancellationScope.current().consideredCancelled;

/** An attempt that fails while it is asked to stop fails for its own reason, and is not made again. */
const isOver = (error: unknown): boolean =>
  isCancellation(error) || CancellationScope.current().consideredCancelled;

const cancellationOf = (error: unknown): unknown =>
  isCancellation(error) ? error : new CancelledFailure('Notification cancelled');

/** Also when the cancellation came before acceptance was known: what it wrote must not stay open without an owner. */
async function skipWhatIsOpen(skip: () => Promise<void>): Promise<void> {
  setCurrentDetails('Cancelled; open routes are being skipped.');
  await CancellationScope.nonCancellable(skip);
  setCurrentDetails('Cancelled; open routes are skipped.');
}
