/** Which routes, notifications and entries an operation is about. */
import type { Pool } from 'pg';
import type { Choice } from '../choices.ts';
import { conditions } from '../lists.ts';
import type { DeadLetterFilter } from './dead-letters.ts';
import { stillDead } from './dead-letters.ts';
import type { OperatorResources } from '../resources.ts';
import type { MalformedFilter } from './malformed.ts';
import { malformedConditions } from './malformed.ts';

/** Which notifications are to be cancelled; all given filters must hold. Those without an open route are left alone. */
export interface OpenFilter {
  type?: string;
  producer?: string;
  /** Bounds of the time of acceptance; of one that is not accepted, of its first trouble or of its entry. Both included. */
  since?: Date;
  until?: Date;
}

interface Span {
  oldest: Date;
  newest: Date;
}

export interface OpenGroup extends Span {
  type: string;
  producer: string;
  /** `under_way`: accepted, or tried in vain. `not_begun`: read, and waiting for its turn. */
  state: 'under_way' | 'not_begun';
  notifications: number;
}

export interface RefusedGroup extends Span {
  code: string;
  /** As the entries gave them; null when they gave none. */
  type: string | null;
  producer: string | null;
  entries: number;
}

export const chooseDead = (filter: DeadLetterFilter): Choice => ({
  columns: ['notification_id', 'route_id'],
  from: `notification.routes AS route
            JOIN notification.records AS record USING (notification_id)`,
  at: 'dead_lettered_at',
  given: conditions(stillDead(filter)),
});

/** What a cancellation would reach. */
export const openGroups = ({ db }: OperatorResources, filter: OpenFilter): Promise<OpenGroup[]> =>
  groupsOf<OpenGroup>(db, chooseOpen(filter));

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

export const chooseOpen = ({ type, producer, since, until }: OpenFilter): Grouped => ({
  columns: ['notification_id'],
  from: OPEN,
  at: 'since',
  given: conditions([
    ['notification_type = ?', type],
    ['producer = ?', producer],
    ['since >= ?', since],
    ['since <= ?', until],
  ]),
  groups: { type: 'notification_type', producer: 'producer', state: 'state' },
  counted: 'notifications',
});

export const chooseMalformed = (filter: MalformedFilter): Grouped => ({
  columns: ['notification_id'],
  from: `(SELECT *, stream_entry_id AS notification_id FROM notification.malformed_intents) AS malformed`,
  at: 'recorded_at',
  given: conditions(malformedConditions(filter)),
  groups: { code: 'failure_code', type: 'notification_type', producer: 'producer' },
  counted: 'entries',
});

interface Grouped extends Choice {
  /** Columns of `from` by the names of a group's fields. */
  groups: Readonly<Record<string, string>>;
  /** The name of their number. */
  counted: string;
}

/** How many items match, by what they have in common. */
export async function groupsOf<Group extends Span>(
  db: Pool,
  { from, at, given, groups, counted }: Grouped,
): Promise<Group[]> {
  const fields = Object.entries(groups).map(([name, column]) => `${column} AS ${name}`);
  const { rows } = await db.query<Group & object>(
    `SELECT ${fields.join(', ')}, count(*)::int AS ${counted}, min(${at}) AS oldest, max(${at}) AS newest
       FROM ${from}
      ${given.where}
      GROUP BY ${Object.values(groups).join(', ')}
      ORDER BY ${counted} DESC`,
    given.values,
  );
  return rows;
}
