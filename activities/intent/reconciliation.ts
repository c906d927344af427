/**
 * Takes up work that nobody does. The rows are the truth and workflows are their workers: a route that is overdue and an
 * intent that waits have one that goes on, unless Temporal or PostgreSQL has been put back to an earlier state, or
 * somebody has terminated it.
 *
 * Routes are attempted here, many together, and only those in trouble get a workflow: after a loss there may be a
 * hundred thousand. All of it may be done twice, and beside a worker that was overlooked: an attempt takes the route's
 * lease and finds what was handed off.
 */
import { Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { routeRefOf } from '../../api/ids.ts';
import type { ReconciliationOutcome } from '../../workflows/intent/contract.ts';
import { CHANNELS, notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { heartbeat } from '../heartbeat.ts';
import { query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import { endStuck, stateOf } from '../workflows.ts';
import type { RouteResources } from './publication.ts';
import { createPublisher } from './publication.ts';
import type { RouteRow } from './route-rows.ts';
import { loadRoutes } from './route-rows.ts';
import { startRoute } from './routes.ts';
import { giveUp, isGivenUp } from './inbox.ts';
import { endSettledStuck } from './stuck.ts';

/** Longer overdue than a healthy worker lets a route be, ms. */
const OVERDUE_MS = 60_000;
/** Routes that are looked at together. */
const PAGE_SIZE = 500;
/** Notifications that are looked at concurrently: little beside what new ones need. */
const PARALLEL = 8;
/** A run that has taken so long leaves the rest to the next one, ms. */
const MAX_RUN_MS = 600_000;
/** Intents that are looked at in a run. */
const MAX_INTENTS = 1_000;

interface ReconciliationResources extends RouteResources {
  workflows: WorkflowClient;
}

export type ReconciliationActivities = ReturnType<typeof createReconciliationActivities>;

interface OverdueRoute {
  notification_id: string;
  route_id: string;
  /** To the microsecond. */
  next_attempt_at: string;
}

export function createReconciliationActivities(resources: ReconciliationResources) {
  const { db, log, metrics, workflows } = resources;
  const publisher = createPublisher(resources);

  return {
    /** Looks at every overdue route, at every intent that nobody has tried for a while, and at what is stuck. */
    async takeUpWork(): Promise<ReconciliationOutcome> {
      const activity = Context.current();
      const outcome: ReconciliationOutcome = {
        overdue: 0,
        published: 0,
        restarted: 0,
        intents: 0,
        ended: 0,
      };
      const endAt = performance.now() + MAX_RUN_MS;
      let after: Pick<OverdueRoute, 'notification_id' | 'route_id' | 'next_attempt_at'> = {
        notification_id: '',
        route_id: '',
        next_attempt_at: '-infinity',
      };
      for (;;) {
        const overdue = await query<OverdueRoute>(db, LIST_OVERDUE, [
          OVERDUE_MS,
          after.next_attempt_at,
          after.notification_id,
          after.route_id,
          PAGE_SIZE,
          CHANNELS,
        ]);
        await pLimit(PARALLEL).map(
          Map.groupBy(overdue, ({ notification_id }) => notification_id),
          ([id, routes]) => orLeave(id, () => takeUp(id, routes, outcome)),
        );
        outcome.overdue += overdue.length;
        heartbeat(outcome);
        activity.cancellationSignal.throwIfAborted();
        if (overdue.length < PAGE_SIZE || performance.now() > endAt) break;
        after = overdue.at(-1)!;
      }
      outcome.intents = await restartIntents();
      outcome.ended = await endSettledStuck(db, workflows);
      const { published, restarted, intents, ended } = outcome;
      if (published + restarted + intents + ended > 0) {
        log.warn({ ...outcome }, 'work was taken up that nobody did');
      }
      return outcome;
    },
  };

  /** What fails for one notification is left to the next run, and ends nothing for the others. */
  async function orLeave(notificationId: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      log.warn({ notification_id: notificationId, reason: reasonOf(error) }, 'work could not be taken up');
    }
  }

  async function takeUp(id: string, overdue: OverdueRoute[], outcome: ReconciliationOutcome): Promise<void> {
    const state = await takeFrom(notificationWorkflowId(id));
    const isOwned = state === 'RUNNING';
    const idle: string[] = [];
    // Temporal that does not know the notification knows its routes no more either, or an attempt finds out.
    const isLost = state === undefined && !isOwned;
    for (const { route_id } of overdue) {
      const route = isLost ? undefined : await takeFrom(routeWorkflowId(id, routeRefOf(route_id)));
      // A route without a workflow is its notification's own; one whose workflow has ended it only waits for.
      if (route !== 'RUNNING' && !(isOwned && route === undefined)) idle.push(route_id);
    }
    if (idle.length === 0) return;
    const begun = await publisher.begin();
    const routes = (await loadRoutes(db, id, idle)).filter(isDue);
    const attempts = await publisher.publish(routes, begun);
    for (const [index, route] of routes.entries()) {
      const attempt = attempts[index]!;
      if (attempt.status === 'published') {
        outcome.published += 1;
        metrics.workTakenUp({ what: 'route' });
      } else if (attempt.status === 'failed' || attempt.status === 'dead_letter') {
        await startRoute(workflows, route, { attempt, why: 'taken up' });
        outcome.restarted += 1;
        metrics.workTakenUp({ what: 'route' });
      }
    }
  }

  /** @returns how a workflow stands; one that is stuck is ended: the rows say what it has left to do. */
  async function takeFrom(workflowId: string): Promise<string | undefined> {
    const state = await stateOf(workflows, workflowId);
    if (state === 'STUCK') await endStuck(workflows, workflowId);
    return state;
  }

  /**
   * The dispatcher starts again what Temporal does not know, what cannot go on, and what has ended although nothing is
   * decided: its decision was lost. An intent whose workflow somebody has ended is given up.
   */
  async function restartIntents(): Promise<number> {
    const undecided = await query<{ notification_id: string }>(db, LIST_UNDECIDED, [MAX_INTENTS]);
    let restarted = 0;
    await pLimit(PARALLEL).map(undecided, ({ notification_id: id }) => orLeave(id, () => restart(id)));
    return restarted;

    async function restart(id: string): Promise<void> {
      const state = await takeFrom(notificationWorkflowId(id));
      if (state === 'RUNNING') {
        await query(db, LOOK_LATER, [id]);
        return;
      }
      if (isGivenUp(state)) await giveUp(db, id);
      else await query(db, DISPATCH_AGAIN, [id]);
      metrics.workTakenUp({ what: 'intent' });
      restarted += 1;
    }
  }
}

/** Whether there may be something to take up. @throws ApplicationFailure of PostgreSQL. */
export async function isWorkOverdue(db: Pool): Promise<boolean> {
  const first = [OVERDUE_MS, '-infinity', '', '', 1, CHANNELS];
  const [routes, intents] = await Promise.all([
    query<OverdueRoute>(db, LIST_OVERDUE, first),
    query(db, LIST_UNDECIDED, [1]),
  ]);
  return routes.length + intents.length > 0;
}

/** Still so since the page was read. */
const isDue = ({ status, retry_in_ms, is_paused }: RouteRow): boolean =>
  (status === 'pending' || status === 'failed') && Number(retry_in_ms) < 0 && !is_paused;

/**
 * Paused channels leave routes overdue, any number of them, which are not walked through. Those of paused producers are
 * among the others, and are passed over here: a page full of them would hide what is behind it. Each LIMIT 1 holds
 * PostgreSQL to looking by a key.
 * $1 for how long, ms, $2 to $4 the last of the page before, $5 rows at most, $6 channels.
 */
const LIST_OVERDUE = {
  name: 'list_overdue_routes',
  text: `
    SELECT notification_id, route_id, overdue.next_attempt_at::text
      FROM (SELECT unnest($6::text[]) EXCEPT
            SELECT name FROM notification.holds WHERE kind = 'channel' AND is_paused) AS open (channel)
     CROSS JOIN LATERAL (
       SELECT notification_id, route_id, next_attempt_at
         FROM notification.routes
        WHERE routes.channel = open.channel AND next_attempt_at < now() - $1::int * interval '1 millisecond'
          AND next_attempt_at >= $2::timestamptz
          AND (next_attempt_at, notification_id, route_id) > ($2::timestamptz, $3, $4)
          AND (SELECT true FROM notification.holds
                WHERE is_paused AND kind = 'producer'
                  AND name = (SELECT producer FROM notification.records AS record
                               WHERE record.notification_id = routes.notification_id)
                LIMIT 1) IS NULL
        ORDER BY next_attempt_at, notification_id, route_id
        LIMIT $5
     ) AS overdue
      JOIN notification.records USING (notification_id)
     ORDER BY overdue.next_attempt_at, notification_id, route_id
     LIMIT $5`,
};

/** Every wait between two attempts is shorter. $1 rows at most. */
const LIST_UNDECIDED = {
  name: 'list_undecided_intents',
  text: `
    SELECT notification_id
      FROM notification.intents
     WHERE status = 'open' AND dispatched_at IS NOT NULL AND updated_at < now() - interval '2 minutes'
     ORDER BY updated_at
     LIMIT $1`,
};

/** $1 notification, whose workflow waits for its turn: others are looked at before it. */
const LOOK_LATER = {
  name: 'look_at_intent_later',
  text: "UPDATE notification.intents SET updated_at = now() WHERE notification_id = $1 AND status = 'open'",
};

/** $1 notification. */
const DISPATCH_AGAIN = {
  name: 'dispatch_intent_again',
  text: `
    UPDATE notification.intents SET dispatched_at = NULL, updated_at = now()
     WHERE notification_id = $1 AND status = 'open'`,
};
