/** Work that is under way: intents that are not decided yet, what a cancellation reaches, and what a resume releases. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Grouped, Listing, Page, Span } from '../lists.ts';
import { conditionsOf, listOf, spanOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

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

export const waitingOperations = (resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>) => ({
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
  given: conditionsOf(
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
  given: conditionsOf(
    {
      filters: { channel: 'channel = ?', producer: 'producer = ?' },
      always: 'next_attempt_at IS NOT NULL',
    },
    filter,
  ),
  groups: { channel: 'channel', producer: 'producer' },
  counted: 'routes',
});
