/**
 * What operators list and what their operations (operations.ts) reach: intents that wait to be accepted, notifications that are
 * open, entries that were refused, routes that are held, and routes that spent their budget.
 */
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import { routeRefOf } from '../../api/ids.ts';
import type { Channel } from '../../api/intent/catalog.ts';
import type { Correction } from '../../api/intent/mending.ts';
import { mendEntry, unknownFieldOf } from '../../api/intent/mending.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { NotFoundError, OperationFailedError } from '../errors.ts';
import type { Grouped, Listing, Page, Span } from '../lists.ts';
import { conditionsOf, listOf, rowOf, spanOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

type Resources = Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>;

export interface WaitingIntent {
  notificationId: string;
  type: string;
  producer: string;
  idempotencyKey: string;
  /** When its entry was read. */
  waitingSince: Date;
  /** Attempts so far, beside the first try. */
  attempt: number;
  /** What the last attempt that said anything met; null before the first one. */
  reason: string | null;
  link?: string;
}

export const waitingOperations = (resources: Resources) => ({
  /** Intents that wait to be accepted or refused, longest first. */
  waiting: (filter: { limit?: number } = {}): Promise<Page<WaitingIntent>> =>
    listOf<Omit<WaitingIntent, 'link'>, object, WaitingIntent>(resources.db, WAITING, filter, (row) => ({
      ...row,
      ...linkField(resources, notificationWorkflowId(row.notificationId)),
    })),
});

/** Why an open intent waits, as SQL. */
export const WHY_OPEN = `CASE WHEN due_at IS NULL THEN reason
              ELSE 'it waits until ' || to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END`;

const WAITING: Listing<object> = {
  columns: `notification_id AS "notificationId", notification_type AS type, producer,
         idempotency_key AS "idempotencyKey", read_at AS "waitingSince", attempts AS attempt, ${WHY_OPEN} AS reason`,
  from: 'notification.intents',
  order: 'due_at IS NOT NULL, intents.reason IS NULL, read_at, notification_id',
  always: "status = 'open'",
};

/** Which notifications are to be cancelled; all given filters must hold. Those without an open route are left alone. */
export interface OpenFilter {
  notificationId?: string;
  type?: string;
  producer?: string;
  /** Bounds of the time of acceptance; of one that is not accepted, of its first trouble or of its entry. Both included. */
  since?: Date;
  until?: Date;
}

export interface OpenGroup extends Span {
  type: string;
  producer: string;
  /** `under_way`: accepted, or tried in vain. `not_begun`: read, and waiting for its turn. */
  state: 'under_way' | 'not_begun';
  notifications: number;
}

/** Accepted ones with an open route, and those that are not decided; each once, which is what UNION does. */
const OPEN = `(
           SELECT notification_id, notification_type, producer, accepted_at AS since, 'under_way' AS state
             FROM notification.routes
             JOIN notification.records USING (notification_id)
            WHERE next_attempt_at IS NOT NULL
            UNION
           SELECT notification_id, notification_type, producer, read_at,
                  CASE WHEN reason IS NULL THEN 'not_begun' ELSE 'under_way' END
             FROM notification.intents
            WHERE status = 'open') AS open`;

/** The notifications that an operation cancels. */
export const chooseOpen = (filter: OpenFilter): Grouped => ({
  columns: ['notification_id'],
  from: OPEN,
  at: 'since',
  conditions: conditionsOf(
    {
      filters: {
        notificationId: 'notification_id = ?',
        ...{ type: 'notification_type = ?', producer: 'producer = ?' },
        ...spanOf('since'),
      },
    },
    filter,
  ),
  groups: { type: 'notification_type', producer: 'producer', state: 'state' },
  counted: 'notifications',
});

// --- Entries that were refused -----------------------------------------------------------------------------------------

export interface MalformedFilter {
  entryId?: string;
  code?: string;
  producer?: string;
  type?: string;
  /** Bounds of the time of recording, both included. */
  since?: Date;
  until?: Date;
}

interface MalformedRow {
  entryId: string;
  code: string;
  message: string;
  /** As the entry gave them; null when it gave none. */
  type: string | null;
  producer: string | null;
  idempotencyKey: string | null;
  recordedAt: Date;
}

/** The link leads to the notification's workflow, for those that were refused only after it was started. */
type MalformedSummary = Given<MalformedRow> & { link?: string };

/** Refused entries of one kind. */
export interface RefusedGroup extends Span {
  code: string;
  /** As the entries gave them; null when they gave none. */
  type: string | null;
  producer: string | null;
  entries: number;
}

export interface MalformedEntry extends MalformedSummary {
  /** The fields of the entry, cut where they are long. */
  rawFields: Record<string, string>;
}

/** Refused by the notification's workflow; all others are refused by the reader and have none. */
const REFUSED_BY_WORKFLOW = ['idempotency_conflict', 'recipient_not_found'];

export function malformedOperations(resources: Resources & Pick<OperatorResources, 'catalog'>) {
  return {
    /** Malformed entries, newest first. */
    list: (filter: MalformedFilter & { limit?: number } = {}): Promise<Page<MalformedSummary>> =>
      listOf<MalformedRow, MalformedFilter, MalformedSummary>(resources.db, MALFORMED, filter, (row) =>
        summaryOf(resources, row),
      ),

    /** @throws NotFoundError when no such entry was recorded, or retention has removed it. */
    show,

    /**
     * @returns the fields with which an entry that was refused would be published again.
     * @throws NotFoundError; OperationFailedError when the service would refuse them as well.
     */
    correct,
  };

  async function show(entryId: string): Promise<MalformedEntry> {
    const entry = await findMalformed(resources, entryId);
    if (!entry) throw new NotFoundError(`no malformed intent ${entryId} is recorded`);
    return entry;
  }

  async function correct(entryId: string, correction: Correction = {}): Promise<Record<string, string>> {
    const entry = await show(entryId);
    const unknown = unknownFieldOf(correction);
    if (unknown !== undefined) throw new OperationFailedError(unknown);
    const corrected = mendEntry(resources.catalog, entryId, entry.rawFields, correction);
    if ('fields' in corrected) return corrected.fields;
    throw new OperationFailedError(corrected.reason);
  }
}

export async function findMalformed(
  resources: Resources,
  entryId: string,
): Promise<MalformedEntry | undefined> {
  const key = [MALFORMED, 'stream_entry_id', entryId, ', raw_fields AS "rawFields"'] as const;
  const row = await rowOf<MalformedRow & Pick<MalformedEntry, 'rawFields'>>(resources.db, ...key);
  return row && { ...summaryOf(resources, row), rawFields: row.rawFields };
}

const summaryOf = (resources: Resources, row: MalformedRow): MalformedSummary => ({
  ...given(row),
  ...(REFUSED_BY_WORKFLOW.includes(row.code)
    ? linkField(resources, notificationWorkflowId(row.entryId))
    : {}),
});

const MALFORMED: Listing<MalformedFilter> = {
  columns: `stream_entry_id AS "entryId", failure_code AS code, failure_message AS message, notification_type AS type,
         producer, idempotency_key AS "idempotencyKey", recorded_at AS "recordedAt"`,
  from: 'notification.malformed_intents',
  order: 'recorded_at DESC, stream_entry_id DESC',
  filters: {
    ...{ entryId: 'stream_entry_id = ?', code: 'failure_code = ?' },
    ...{ producer: 'producer = ?', type: 'notification_type = ?' },
    ...spanOf('recorded_at'),
  },
};

/** The entries that an operation publishes again. */
export const chooseMalformed = (filter: MalformedFilter): Grouped => ({
  columns: ['notification_id'],
  from: `(SELECT *, stream_entry_id AS notification_id FROM notification.malformed_intents) AS malformed`,
  at: 'recorded_at',
  conditions: conditionsOf(MALFORMED, filter),
  groups: { code: 'failure_code', type: 'notification_type', producer: 'producer' },
  counted: 'entries',
});

/** Routes of one channel, or of one producer. */
export interface HeldFilter {
  channel?: string;
  producer?: string;
}

/** Open routes of one channel or producer, counted. */
export interface HeldGroup extends Span {
  channel: string;
  producer: string;
  routes: number;
}

/** The routes that an operation releases. */
export const chooseHeld = (filter: HeldFilter): Grouped => ({
  columns: ['notification_id', 'route_id'],
  from: 'notification.routes JOIN notification.records USING (notification_id)',
  at: 'next_attempt_at',
  conditions: conditionsOf(
    {
      filters: { channel: 'channel = ?', producer: 'producer = ?' },
      always: 'next_attempt_at IS NOT NULL',
    },
    filter,
  ),
  groups: { channel: 'channel', producer: 'producer' },
  counted: 'routes',
});

// --- Dead letters. A row of `dead_letters` is history and stays when the route is replayed; whether the route is still dead is
// `routes.status`.

/** Which dead letters; all given filters must hold. */
export interface DeadLetterFilter {
  notificationId?: string;
  /** Or the route as it is called in workflow ids. */
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
  /** Status of the route now: `dead_letter`, or what a replay made of it. */
  status: string;
  /** How often the route was replayed. */
  replays: number;
  /** The route's workflow in the Web UI. */
  link?: string;
}

export const deadLetterOperations = (resources: Resources) => ({
  /**
   * Dead-lettered routes, newest first.
   *
   * @param all routes that were replayed since as well, with the failure and the time of their first death.
   */
  list({ all = false, ...filter }: DeadLetterFilter & { all?: boolean; limit?: number } = {}): Promise<
    Page<DeadLetter>
  > {
    const listing = all ? EVER_DEAD : STILL_DEAD;
    return listOf<DeadLetterRow, DeadLetterFilter, DeadLetter>(resources.db, listing, filter, (row) => {
      const routeRef = routeRefOf(row.routeId);
      return {
        ...{ ...row, routeRef },
        ...linkField(resources, routeWorkflowId(row.notificationId, routeRef)),
      };
    });
  },
});

const DEAD_FILTERS = {
  notificationId: 'route.notification_id = ?',
  routeId: "? IN (route.route_id, route.channel || ':~' || md5(route.route_id))",
  type: 'notification_type = ?',
  producer: 'producer = ?',
  channel: 'route.channel = ?',
};

type DeadLetterRow = Omit<DeadLetter, 'routeRef' | 'link'>;

const DEAD_ROUTE = `route.notification_id AS "notificationId", route.route_id AS "routeId", notification_type AS type, producer,
         route.channel, route.status, coalesce(recovery_hint, '') AS "recoveryHint",
         (SELECT count(*)::int
            FROM notification.replays
           WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id) AS replays`;
const FAILURE = "coalesce(last_error_classification, 'unknown')";

/** Routes that are dead now, with the failure and the time of their last death. */
const STILL_DEAD: Listing<DeadLetterFilter> = {
  columns: `${DEAD_ROUTE}, ${FAILURE} AS failure, coalesce(last_error_message, '') AS message, attempt_count AS attempts,
         route.max_attempts AS "maxAttempts", dead_lettered_at AS "diedAt"`,
  from: `notification.routes AS route
    JOIN notification.records USING (notification_id)
    LEFT JOIN notification.dead_letters AS dead USING (notification_id, route_id)`,
  order: 'dead_lettered_at DESC, route.notification_id DESC, route.route_id DESC',
  filters: { ...DEAD_FILTERS, failure: 'last_error_classification = ?', ...spanOf('dead_lettered_at') },
  // The literal is the predicate of routes_dead_lettered_idx, so that the index serves.
  always: "route.status = 'dead_letter'",
};

const EVER_DEAD: Listing<DeadLetterFilter> = {
  columns: `${DEAD_ROUTE}, coalesce(failure_classification, 'unknown') AS failure, coalesce(failure_message, '') AS message,
         final_attempt_count AS attempts, dead.max_attempts AS "maxAttempts", dead.created_at AS "diedAt"`,
  from: `notification.dead_letters AS dead
    JOIN notification.routes AS route USING (notification_id, route_id)
    JOIN notification.records USING (notification_id)`,
  order: 'dead.created_at DESC, route.notification_id DESC, route.route_id DESC',
  filters: { ...DEAD_FILTERS, failure: 'failure_classification = ?', ...spanOf('dead.created_at') },
};

/** Dead routes of one kind. */
export interface ReplayGroup extends Span {
  type: string;
  channel: string;
  failure: string;
  routes: number;
  /** Of them, those that are too late: a replay does not send them. */
  expired: number;
}

/** The routes that an operation replays. */
export const chooseDead = (filter: DeadLetterFilter): Grouped => ({
  columns: ['notification_id', 'route_id'],
  from: 'notification.routes AS route JOIN notification.records AS record USING (notification_id)',
  at: 'dead_lettered_at',
  conditions: conditionsOf(STILL_DEAD, filter),
  groups: { type: 'notification_type', channel: 'route.channel', failure: FAILURE },
  counted: 'routes',
  more: ', (count(*) FILTER (WHERE expires_at <= now()))::int AS expired',
});
