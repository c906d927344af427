/**
 * Routes that spent their budget. A row of `dead_letters` is history and stays when the route is replayed; whether the
 * route is still dead is `routes.status`.
 */
import { routeRefOf } from '../../api/ids.ts';
import { runbookField } from '../../api/runbook.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import { routeWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError } from '../errors.ts';
import type { Candidate, Conditions, Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

/** Which dead letters; all given filters must hold. */
export interface DeadLetterFilter {
  notificationId?: string;
  routeId?: string;
  type?: string;
  producer?: string;
  channel?: Channel;
  /** Classification of the failure that killed the route. */
  failure?: string;
  /** Bounds of the time of death, both included. */
  since?: Date;
  until?: Date;
}

export interface DeadLetter {
  notificationId: string;
  /** May hold an e-mail address: for the operator's eyes, not for logs. */
  routeId: string;
  /** The route as it is called in workflow ids. */
  routeRef: string;
  type: string;
  producer: string;
  channel: Channel;
  /** Of the last death. */
  failure: string;
  message: string;
  attempts: number;
  maxAttempts: number;
  diedAt: Date;
  recoveryHint: string;
  /** Where the route stands now: `dead_letter`, or how a replay went on. */
  status: string;
  /** How often the route was replayed. */
  replays: number;
  /** The route's workflow in the Web UI. */
  link?: string;
  /** The section of the runbook. */
  runbook?: string;
}

export function deadLetterOperations(
  resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace' | 'runbookUrl'>,
) {
  const { db } = resources;
  const deadLetterOf = (row: DeadLetterRow): DeadLetter => {
    const routeRef = routeRefOf(row.routeId);
    return {
      ...row,
      routeRef,
      ...linkField(resources, routeWorkflowId(row.notificationId, routeRef)),
      ...runbookField(resources.runbookUrl, 'deadLetter'),
    };
  };

  return {
    /**
     * Dead-lettered routes, newest first.
     *
     * @param all routes that were replayed since as well, with the failure and the time of their first death.
     */
    list,

    /**
     * The dead letters of a notification, replayed ones included; at most 50.
     *
     * @throws NotFoundError without a dead letter.
     */
    async show(notificationId: string, routeId?: string): Promise<DeadLetter[]> {
      const { items } = await list({
        all: true,
        notificationId,
        ...(routeId === undefined ? {} : { routeId }),
      });
      if (items.length === 0) {
        const what = routeId === undefined ? notificationId : `route ${routeId} of ${notificationId}`;
        throw new NotFoundError(`no dead letter of ${what}`);
      }
      return items;
    },
  };

  async function list({
    all = false,
    limit = DEFAULT_LIMIT,
    ...filter
  }: DeadLetterFilter & { all?: boolean; limit?: number } = {}): Promise<Page<DeadLetter>> {
    const given = all ? conditions(everDead(filter)) : conditions(stillDead(filter));
    const statement = all ? LIST_EVER_DEAD(given) : LIST_STILL_DEAD(given);
    const { rows } = await db.query<DeadLetterRow>(statement, [...given.values, limit + 1]);
    return pageOf(rows, limit, deadLetterOf);
  }
}

const common = (filter: DeadLetterFilter): Candidate[] => [
  ['route.notification_id = ?', filter.notificationId],
  ['route.route_id = ?', filter.routeId],
  ['notification_type = ?', filter.type],
  ['producer = ?', filter.producer],
  ['route.channel = ?', filter.channel],
];

/** Conditions on routes that are dead now, with the failure and the time of their last death. */
export const stillDead = (filter: DeadLetterFilter): Candidate[] => [
  // The literal is the predicate of routes_dead_lettered_idx, so that the index serves.
  ["route.status = 'dead_letter'"],
  ...common(filter),
  ['last_error_classification = ?', filter.failure],
  ['dead_lettered_at >= ?', filter.since],
  ['dead_lettered_at <= ?', filter.until],
];

const everDead = (filter: DeadLetterFilter): Candidate[] => [
  ...common(filter),
  ['failure_classification = ?', filter.failure],
  ['dead.created_at >= ?', filter.since],
  ['dead.created_at <= ?', filter.until],
];

type DeadLetterRow = Omit<DeadLetter, 'routeRef' | 'link' | 'runbook'>;

const ROUTE = `route.notification_id AS "notificationId", route.route_id AS "routeId", notification_type AS type, producer,
         route.channel, route.status, coalesce(recovery_hint, '') AS "recoveryHint",
         (SELECT count(*)::int
            FROM notification.replays
           WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id) AS replays`;

const LIST_STILL_DEAD = ({ where, next }: Conditions) => `
  SELECT ${ROUTE}, coalesce(last_error_classification, 'unknown') AS failure,
         coalesce(last_error_message, '') AS message, attempt_count AS attempts,
         route.max_attempts AS "maxAttempts", dead_lettered_at AS "diedAt"
    FROM notification.routes AS route
    JOIN notification.records USING (notification_id)
    LEFT JOIN notification.dead_letters AS dead USING (notification_id, route_id)
   ${where}
   ORDER BY dead_lettered_at DESC, route.notification_id DESC, route.route_id DESC
   LIMIT ${next}`;

const LIST_EVER_DEAD = ({ where, next }: Conditions) => `
  SELECT ${ROUTE}, coalesce(failure_classification, 'unknown') AS failure,
         coalesce(failure_message, '') AS message, final_attempt_count AS attempts,
         dead.max_attempts AS "maxAttempts", dead.created_at AS "diedAt"
    FROM notification.dead_letters AS dead
    JOIN notification.routes AS route USING (notification_id, route_id)
    JOIN notification.records USING (notification_id)
   ${where}
   ORDER BY dead.created_at DESC, route.notification_id DESC, route.route_id DESC
   LIMIT ${next}`;
