/**
 * Activities that publish routes: one route for its workflow, or the first attempts of many together.
 * publication.ts makes the attempts.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import { channelOf, routeRefOf, searchableKey } from '../../api/ids.ts';
import type { PublicationFailure } from '../../workflows/failures.ts';
import { POSTGRES_UNUSABLE, ROUTE_DEFERRED } from '../../workflows/failures.ts';
import type {
  Death,
  FirstAttempt,
  Publication,
  PublishResult,
  ReplayOrder,
  RouteInput,
  RouteKey,
  RouteSlice,
  SliceResult,
} from '../../workflows/intent/contract.ts';
import {
  DEAD_LETTER_WORKFLOW,
  INTENT_TASK_QUEUE,
  LOOK_SIGNAL,
  ROUTE_WORKFLOW,
  deadLetterWorkflowId,
  routeWorkflowId,
} from '../../workflows/intent/contract.ts';
import { BEFORE_NEW_ONES } from '../../workflows/policies.ts';
import { notificationAttributes, routeAttributes, routeStatus } from '../../workflows/search-attributes.ts';
import { finalIfRefused, isPostgresAway, isPostgresRefusal } from '../postgres.ts';
import { signalIfRunning } from '../workflows.ts';
import type { Attempt } from './publication.ts';
import { RECOVERY_HINTS, createPublisher, failureDetails } from './publication.ts';
import type { IntentResources, RouteResources } from './resources.ts';
import type { RouteName, RouteRow } from './route-rows.ts';
import { findRoute, loadRoute, loadSlice } from './route-rows.ts';

/** Workflows of routes that are started concurrently. */
const PARALLEL_STARTS = 20;

export type RouteActivities = ReturnType<typeof createRouteActivities>;

export function createRouteActivities(resources: RouteResources & Pick<IntentResources, 'workflows'>) {
  const { db, workflows, route: settings } = resources;
  const publisher = createPublisher(resources);

  return {
    /**
     * Makes one attempt to publish a route.
     *
     * @returns how the route stands now; `paused` or `deferred` when nothing was tried or recorded, which spends no
     * budget.
     * @throws ApplicationFailure of the publication failure's type with `PublicationFailureDetails`, after the
     * failure was recorded, while the route has budget left; `PostgresRefused`, not retried, when PostgreSQL does not
     * take what became of it.
     */
    publishRoute: publish,

    /**
     * The same for a retry policy without end: a deferral is thrown as `RouteDeferred`, so that Temporal makes the
     * attempt again and an operator sees what it waits for.
     */
    async publishRouteWhenPossible(publication: Publication): Promise<PublishResult> {
      const result = await publish(publication);
      if (result.status !== 'deferred') return result;
      throw ApplicationFailure.create({
        type: ROUTE_DEFERRED,
        message: `${result.reason}: nothing was spent`,
        ...(result.retryInMs === undefined ? {} : { nextRetryDelay: result.retryInMs }),
      });
    },

    /**
     * Makes the first attempts of a slice of a notification's routes, concurrently, and starts a workflow for each route that
     * still needs one. A route that was tried before is taken as it stands, so repeating this spends nothing twice.
     *
     * @throws ApplicationFailure of PostgreSQL, what the Temporal client fails with; nothing is spent.
     */
    async publishSlice(slice: RouteSlice): Promise<SliceResult> {
      const runId = Context.current().info.workflowExecution?.runId ?? '';
      const order = slice.replay ? orderOfReset(runId, 'reset of the notification') : undefined;
      let rows: RouteRow[] = [];
      const first = async () => {
        rows = await loadSlice(db, slice);
        return rows.filter(({ status, attemptCount }) =>
          status === 'dead_letter' ? order : status === 'pending' && attemptCount === 0,
        );
      };
      const attempted = await publisher.publish(first, order).catch((error: unknown) => {
        // It belongs to one of them, whose own workflow fails with it.
        if (isPostgresRefusal(error)) return [];
        throw error;
      });
      const made = new Map(attempted.map(({ route, attempt }) => [route, attempt]));
      const result: SliceResult = { published: 0, skipped: 0, open: 0 };
      await pLimit(PARALLEL_STARTS).map(rows, async (route) => {
        const attempt = made.get(route) ?? standing(route);
        const isSettled = attempt.status === 'published' || attempt.status === 'skipped';
        result[isSettled ? attempt.status : 'open'] += 1;
        if (!isSettled) await startRoute(workflows, route, attempt, 'after its first attempt');
        // An attempt that died may have replayed it and not said so: all that ever failed are told.
        if (order && route.classification !== null) await updateDeadLetter(workflows, route);
      });
      return result;
    },

    /** @returns what a route died of; undefined when it is not dead, or removed. */
    async lookAtDeadLetter(key: RouteKey): Promise<Death | undefined> {
      const route = await findRoute(db, key);
      if (route?.status !== 'dead_letter') return undefined;
      const classification = route.classification ?? 'unknown';
      const hint = RECOVERY_HINTS[classification as PublicationFailure] as string | undefined;
      return { classification, cause: route.message ?? '', hint: hint ?? '' };
    },
  };

  /** A route that is not to be tried here, as its row tells. */
  function standing(row: RouteRow): Attempt {
    const classification = row.classification as PublicationFailure;
    switch (row.status) {
      case 'published':
      case 'skipped':
        return { status: row.status };
      case 'dead_letter':
        return { status: 'dead_letter', classification };
      case 'failed':
        return { status: 'failed', classification, message: '', details: failureDetails(row, settings) };
      case 'pending':
        return { status: 'deferred', reason: 'leased' };
    }
  }

  async function publish(publication: Publication): Promise<PublishResult> {
    let attempt: Attempt;
    try {
      const order = orderOf(publication);
      const [one] = await publisher.publish(async () => [await loadRoute(db, publication)], order);
      attempt = one!.attempt;
      // A workflow asks once more before it ends as dead, and an attempt that was lost is made again: no change is missed.
      if (attempt.status === 'dead_letter' && one!.route.status === attempt.status)
        await showDeadLetter(workflows, one!.route);
      else if (order) await updateDeadLetter(workflows, one!.route);
    } catch (error) {
      // Its workflow fails, which operators see. The row stays open: a replay continues with it once the cause is fixed.
      if (isPostgresRefusal(error)) throw finalIfRefused(error);
      if (!isPostgresAway(error)) throw error;
      const reason = error.type === POSTGRES_UNUSABLE ? 'postgres_unusable' : 'postgres_unavailable';
      return publisher.defer(channelOf(publication.routeRef), reason);
    }
    if (attempt.status !== 'failed') return attempt;
    const { classification, message, details } = attempt;
    throw ApplicationFailure.create({
      type: classification,
      message,
      details: [details],
      nextRetryDelay: details.retryInMs,
    });
  }
}

/**
 * What the route's own workflow begins with. It looks for itself whether a paused channel or a prevented attempt is
 * still one: it may have missed the signal that ended the pause. Without any, it would be an order to replay.
 */
function firstOf(attempt: Attempt): FirstAttempt {
  if (attempt.status === 'dead_letter') return attempt;
  if (attempt.status !== 'failed') return { status: 'deferred', reason: 'leased' };
  const { status, classification, details } = attempt;
  return { status, classification, details };
}

const attributesOf = (route: RouteRow) => [
  ...notificationAttributes({ ...route, idempotencyKey: searchableKey(route.idempotencyKey) }),
  ...routeAttributes(routeRefOf(route.routeId)),
];

/**
 * Gives a route a workflow, unless it has one.
 *
 * @param attempt the last one: the workflow continues from there. @param why for people.
 * @throws what the Temporal client fails with.
 */
export async function startRoute(
  workflows: WorkflowClient,
  route: RouteRow,
  attempt: Attempt,
  why: string,
): Promise<void> {
  const { notificationId, notificationType, producer } = route;
  const routeRef = routeRefOf(route.routeId);
  await workflows.start(ROUTE_WORKFLOW, {
    workflowId: routeWorkflowId(notificationId, routeRef),
    taskQueue: INTENT_TASK_QUEUE,
    args: [{ notificationId, routeRef, first: firstOf(attempt) } satisfies RouteInput],
    workflowIdConflictPolicy: 'USE_EXISTING',
    priority: { fairnessKey: producer, ...BEFORE_NEW_ONES.priority },
    typedSearchAttributes: attributesOf(route),
    staticSummary: `${notificationType} ${routeRef} (${why})`,
  });
}

/** The replay that this attempt stands for, if any. */
function orderOf({ replay, originalRunId }: Publication): ReplayOrder | undefined {
  if (replay !== undefined || originalRunId === undefined) return replay;
  const runId = Context.current().info.workflowExecution?.runId;
  return runId === undefined || runId === originalRunId ? undefined : orderOfReset(runId, 'reset');
}

const orderOfReset = (runId: string, requestedBy: string): ReplayOrder => ({
  replayId: `${runId}/reset`,
  requestedBy,
});

// --- Dead letters as Temporal shows them: each is a workflow that is open while its route is dead.

/** Shows a route that is dead. One that is shown already looks again. @throws what the Temporal client fails with. */
export async function showDeadLetter(workflows: WorkflowClient, route: RouteRow): Promise<void> {
  const { notificationId, notificationType } = route;
  const routeRef = routeRefOf(route.routeId);
  await workflows.signalWithStart(DEAD_LETTER_WORKFLOW, {
    workflowId: deadLetterWorkflowId(notificationId, routeRef),
    taskQueue: INTENT_TASK_QUEUE,
    args: [{ notificationId, routeRef } satisfies RouteKey],
    signal: LOOK_SIGNAL,
    typedSearchAttributes: [
      ...attributesOf(route),
      ...routeStatus('dead_letter', route.classification ?? undefined),
    ],
    staticSummary: `${notificationType} ${routeRef}`,
    staticDetails: `Open while the route is dead. \`galaxy-notify replay ${notificationId} ${routeRef}\` publishes it.`,
  });
}

/** Has the dead letter look at its row, which a replay may have changed. @throws what the Temporal client fails with. */
const updateDeadLetter = (workflows: WorkflowClient, { notificationId, routeId }: RouteName): Promise<void> =>
  signalIfRunning(workflows, deadLetterWorkflowId(notificationId, routeRefOf(routeId)), LOOK_SIGNAL);
