/**
 * Overdue routes, open intents and stuck workflows that nothing works on. Routes are attempted here, many together, and
 * only those that fail get a workflow: after a loss there may be a hundred thousand. An attempt beside a worker that was
 * overlooked takes the route's lease and finds what was handed off.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import { routeRefOf } from '../../api/ids.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type {
  Counts,
  RecoveryProgress,
  RepairProgress,
  RestoredStream,
} from '../../workflows/recovery-contract.ts';
import { withHeartbeats } from '../attempt.ts';
import type { OutboundRow } from '../outbound-state.ts';
import { LOAD_OUTBOUND, databaseOf } from '../outbound-state.ts';
import { query } from '../postgres.ts';
import type { Reconciled } from '../reconciliation.ts';
import { listed } from '../reconciliation.ts';
import { recall } from '../stream-memory.ts';
import { endStuck, keepRunning, stateOf } from '../workflows.ts';
import { giveUp, isGivenUp } from './entries.ts';
import type { IntentResources, RouteResources } from './resources.ts';
import { createPublisher } from './publication.ts';
import { repairOf } from './repair.ts';
import type { RouteName, RouteRow } from './route-rows.ts';
import { isOpen, loadEach } from './route-rows.ts';
import { startRoute } from './routes.ts';

/** Longer overdue than a healthy worker lets a route be, ms. */
const OVERDUE_MS = 60_000;
/** A workflow that began later is not looked at, ms. */
const YOUNG_MS = 120_000;
/** Workflows that a run looks at whether they are stuck. Any number of them run and wait. */
const MOST_LOOKED_AT = 2_000;

interface OverdueRoute extends RouteName {
  /** Of its next attempt, to the microsecond. */
  dueAt: string;
}

interface UndecidedIntent {
  notificationId: string;
  /** To the microsecond. */
  updatedAt: string;
}

export function intentReconciliation(
  resources: RouteResources & Pick<IntentResources, 'workflows'>,
): Reconciled[] {
  const { db, metrics, workflows } = resources;
  const publisher = createPublisher(resources);

  const routes: Reconciled<OverdueRoute> = {
    ...{ what: 'route', isLoss: true, seen: 'overdue', done: ['published', 'restarted'] },
    page(after, limit) {
      const place = [after?.dueAt ?? '-infinity', after?.notificationId ?? '', after?.routeId ?? ''];
      return query(db, LIST_OVERDUE, [...place, limit, OVERDUE_MS, CHANNELS]);
    },
    idOf: ({ notificationId }) => notificationId,
    start: takeUpRoutes,
  };
  const intents: Reconciled<UndecidedIntent> = {
    ...{ what: 'intent', isLoss: true, done: ['intents'] },
    page: (after, limit) =>
      query(db, LIST_UNDECIDED, [after?.updatedAt ?? '-infinity', after?.notificationId ?? '', limit]),
    idOf: ({ notificationId }) => notificationId,
    start: ([intent]) => restartIntent(intent!.notificationId),
  };
  return [routes, intents, stuckOfSettled(db, workflows)];

  async function takeUpRoutes(overdue: RouteName[]): Promise<Counts> {
    const id = overdue[0]!.notificationId;
    const state = await endIfStuck(notificationWorkflowId(id));
    const idle: RouteName[] = [];
    for (const one of overdue) {
      // Temporal that does not know the notification does not know its routes either, or an attempt finds out.
      const workflowId = routeWorkflowId(id, routeRefOf(one.routeId));
      const route = state === undefined ? undefined : await endIfStuck(workflowId);
      // Its notification may wait for a workflow that is lost. An attempt beside that of the notification does no harm.
      if (route !== 'RUNNING') idle.push(one);
    }
    const done = { published: 0, restarted: 0 };
    if (idle.length === 0) return done;
    const attempted = await publisher.publish(async () => (await loadEach(db, idle)).filter(isDue));
    for (const { route, attempt } of attempted) {
      if (attempt.status === 'published') done.published += 1;
      else if (attempt.status === 'failed' || attempt.status === 'dead_letter') {
        await startRoute(workflows, route, attempt, 'taken up');
        done.restarted += 1;
      } else continue;
      metrics.workTakenUp({ what: 'route' });
    }
    return done;
  }

  /** @returns the state of a workflow. A stuck one is ended: the rows say what it has left to do, and that it is due. */
  async function endIfStuck(workflowId: string): Promise<string | undefined> {
    const state = await stateOf(workflows, workflowId, true);
    if (state === 'STUCK') await endStuck(workflows, workflowId);
    return state;
  }

  /**
   * The dispatcher starts again what Temporal does not know, what cannot go on, and what has ended although nothing is
   * decided: its decision was lost. An intent whose workflow an operator has ended is given up.
   */
  async function restartIntent(id: string): Promise<Counts> {
    const state = await endIfStuck(notificationWorkflowId(id));
    const isRunning = state === 'RUNNING';
    if (!isRunning && isGivenUp(state)) await giveUp(db, id);
    else await query(db, DISPATCH_AGAIN, [id, isRunning]);
    if (isRunning) return {};
    metrics.workTakenUp({ what: 'intent' });
    return { intents: 1 };
  }
}

/**
 * Workflows of intents that cannot go on and have nothing left to do. Temporal that is put back beneath workers leaves
 * some: they wrote into a history that is another one now, and would run for ever.
 *
 * @param youngMs workflows that began later are left alone.
 */
export const stuckOfSettled = (db: Pool, workflows: WorkflowClient, youngMs = YOUNG_MS): Reconciled<string> =>
  listed({
    ...{ what: 'stuck workflow', count: 'ended' },
    async list() {
      const before = new Date(Date.now() - youngMs).toISOString();
      const running = workflows.list({
        query: `ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH 'notification/' AND StartTime < '${before}'`,
      });
      const ids: string[] = [];
      for await (const { workflowId } of running) if (ids.push(workflowId) === MOST_LOOKED_AT) break;
      return ids;
    },
    idOf: (workflowId) => workflowId,
    async start(workflowId) {
      if ((await stateOf(workflows, workflowId, true)) !== 'STUCK') return 0;
      const [row] = await query<{ is_settled: boolean }>(db, IS_SETTLED, [workflowId.split('/')[1] ?? '']);
      if (!row!.is_settled) return 0;
      await endStuck(workflows, workflowId);
      return 1;
    },
  });

/** Still so since the page was read. */
const isDue = (route: RouteRow): boolean => isOpen(route) && (route.retryInMs ?? 0) < 0 && !route.isPaused;

/**
 * The longest due first; each channel has its index. Paused channels leave routes overdue, any number of them, which are not
 * walked through. Those of paused producers are among the others, and are passed over here: a page full of them would hide what
 * is behind it. The LIMIT 1 holds PostgreSQL to looking by a key. $1 to $3 the last one of the page before, $4 rows at most, $5
 * for how long they are due, ms, $6 channels.
 */
const LIST_OVERDUE = {
  name: 'list_overdue_routes',
  text: `
    SELECT notification_id AS "notificationId", route_id AS "routeId", next_attempt_at::text AS "dueAt"
      FROM (SELECT unnest($6::text[]) EXCEPT
            SELECT name FROM notification.holds WHERE kind = 'channel' AND is_paused) AS wanted (channel)
     CROSS JOIN LATERAL (
           SELECT notification_id, route_id, next_attempt_at
             FROM notification.routes
            WHERE routes.channel = wanted.channel AND next_attempt_at < now() - $5::int * interval '1 millisecond'
              AND (SELECT true FROM notification.holds
                    WHERE is_paused AND kind = 'producer'
                      AND name = (SELECT producer FROM notification.records AS record
                                   WHERE record.notification_id = routes.notification_id)
                    LIMIT 1) IS NULL
              AND next_attempt_at >= $1::timestamptz
              AND (next_attempt_at, notification_id, route_id) > ($1::timestamptz, $2, $3)
            ORDER BY next_attempt_at, notification_id, route_id
            LIMIT $4) AS route
     ORDER BY route.next_attempt_at, notification_id, route_id
     LIMIT $4`,
};

/** Every wait between two attempts is shorter. $1 and $2 the last of the page before, $3 rows at most. */
const LIST_UNDECIDED = {
  name: 'list_undecided_intents',
  text: `
    SELECT notification_id AS "notificationId", updated_at::text AS "updatedAt"
      FROM notification.intents AS intent
     WHERE status = 'open' AND dispatched_at IS NOT NULL AND updated_at < now() - interval '2 minutes'
       AND updated_at >= $1::timestamptz AND (updated_at, notification_id) > ($1::timestamptz, $2)
     ORDER BY intent.updated_at, notification_id
     LIMIT $3`,
};

/** $1 notification, $2 whether its workflow waits for its turn: then only others are looked at before it. */
const DISPATCH_AGAIN = {
  name: 'dispatch_intent_again',
  text: `
    UPDATE notification.intents SET dispatched_at = CASE WHEN $2::boolean THEN dispatched_at END, updated_at = now()
     WHERE notification_id = $1 AND status = 'open'`,
};

/** $1 notification: whether it is decided and has no open route. */
const IS_SETTLED = {
  name: 'is_notification_settled',
  text: `
    SELECT EXISTS (SELECT FROM notification.intents WHERE notification_id = $1 AND status <> 'open')
           AND NOT EXISTS (SELECT FROM notification.routes
                            WHERE notification_id = $1 AND status IN ('pending', 'failed')) AS is_settled`,
};

// --- Recovery: what an operator asks for after the loss of a store.

type ReadAgain = NonNullable<RecoveryProgress['readAgain']>;

export type RecoveryActivities = ReturnType<typeof createRecoveryActivities>;

export function createRecoveryActivities({
  db,
  redis,
  workflows,
  route,
}: Pick<IntentResources, 'db' | 'redis' | 'workflows' | 'route'>) {
  return {
    /**
     * Asks the reader to go back in time, by the clock of Redis, which gives the entries their ids.
     *
     * @returns undefined when nothing of the stream was ever read.
     */
    async readAgainSince(stream: string, sinceMs: number): Promise<ReadAgain | undefined> {
      const [seconds] = await redis.time();
      const from = `${Math.max(0, Number(seconds) * 1_000 - sinceMs)}-0`;
      const [asked] = await query<{ passed_id: string }>(db, ASK_TO_REWIND, [stream, from]);
      return asked && { from, upTo: asked.passed_id };
    },

    /** @throws ApplicationFailure `NotReadAgain`, retried, until the reader has gone back and is where it was. */
    async awaitReadAgain(stream: string, { from, upTo }: ReadAgain): Promise<void> {
      const { rewindTo } = await recall({ db, redis, role: 'intent', stream });
      if (rewindTo === from) throw notYet('the reader has not gone back yet: see bridge status');
      const offset = await loadOffset(redis, stream);
      if (compareEntryIds(offset, upTo) < 0) throw notYet(`the reader is at ${offset} of ${upTo}`);
    },

    /** Looks for the entries of all routes that were published so long ago at most, and hands off again what is gone. */
    async restoreOutbound(stream: string, sinceMs: number, requestedBy: string): Promise<RestoredStream> {
      const total: RestoredStream = { stream, checked: 0, repaired: 0 };
      await query(db, SUSPECT_SINCE, [stream, `asked for by ${requestedBy}`, sinceMs]);
      await withHeartbeats(async () => {
        // A repair that was going on does not end this suspicion.
        while (await isSuspect(stream)) {
          const handle = await keepRunning(workflows, repairOf(stream, `asked for by ${requestedBy}`, route));
          const { checked, repaired } = (await handle.result()) as RepairProgress;
          total.checked += checked;
          total.repaired += repaired;
          Context.current().cancellationSignal.throwIfAborted();
        }
      });
      return total;
    },
  };

  async function isSuspect(stream: string): Promise<boolean> {
    const [row] = await query<OutboundRow>(db, LOAD_OUTBOUND, [stream, databaseOf(redis)]);
    return row !== undefined && row.suspect_since !== null;
  }
}

const notYet = (message: string): ApplicationFailure =>
  ApplicationFailure.create({ type: 'NotReadAgain', message, nextRetryDelay: '1 second' });

/** $1 stream, $2 from where. */
const ASK_TO_REWIND = {
  name: 'ask_to_rewind',
  text: 'UPDATE notification.inbound_streams SET rewind_to = $2 WHERE stream = $1 RETURNING passed_id',
};

/** A look that wants to clear the earlier suspicion finds another one. $1 stream, $2 why, $3 how far back, ms. */
const SUSPECT_SINCE = {
  name: 'suspect_outbound_since',
  text: `
    UPDATE notification.outbound_streams
       SET suspect_since = clock_timestamp(), suspect_reason = $2,
           seen_at = LEAST(seen_at, clock_timestamp() - $3::bigint * interval '1 millisecond')
     WHERE stream = $1`,
};
