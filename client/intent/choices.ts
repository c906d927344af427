/** Which routes, notifications and entries an operation is about. */
import type { Pool } from 'pg';
import { timeOfEntry } from '../../api/stream-ids.ts';
import type { Choice } from '../choices.ts';
import { conditions } from '../lists.ts';
import type { DeadLetterFilter } from './dead-letters.ts';
import { stillDead } from './dead-letters.ts';
import type { OperatorResources } from '../resources.ts';
import type { MalformedFilter } from './malformed.ts';
import type { OpenFilter } from './open-filter.ts';
import { malformedConditions } from './malformed.ts';
import { findUnaccepted } from './unaccepted.ts';

interface Span {
  oldest: Date;
  newest: Date;
}

export interface OpenGroup extends Span {
  type: string;
  producer: string;
  /** `under_way`: accepted, or tried in vain. `not_begun`: in the stream, or waiting in Temporal for its turn. */
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

/** What a cancellation would reach: what is in the stream alone, and then what rows know of. One between the two is in both. */
export async function openGroups(resources: OperatorResources, filter: OpenFilter): Promise<OpenGroup[]> {
  const unaccepted = await findUnaccepted(resources, filter, Infinity);
  const rows = await groupsOf<Omit<OpenGroup, 'state'>>(resources.db, chooseOpen(filter));
  const notBegun = Map.groupBy(unaccepted, ({ type, producer }) => JSON.stringify([type, producer]));
  return [
    ...rows.map((group): OpenGroup => ({ ...group, state: 'under_way' })),
    ...[...notBegun.values()].map((intents): OpenGroup => {
      const [{ type, producer }, last] = [intents[0]!, intents.at(-1)!];
      const span = {
        oldest: timeOfEntry(intents[0]!.notificationId),
        newest: timeOfEntry(last.notificationId),
      };
      return { type, producer, state: 'not_begun', notifications: intents.length, ...span };
    }),
  ];
}

/** Accepted ones with an open route, and those that wait to be accepted; each once, which is what UNION does. */
const OPEN = `(
           SELECT notification_id, notification_type, producer, accepted_at AS since
             FROM notification.routes
             JOIN notification.records USING (notification_id)
            WHERE next_attempt_at IS NOT NULL
            UNION
           SELECT notification_id, notification_type, producer, waiting_since
             FROM notification.waiting_intents) AS open`;

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
  groups: { type: 'notification_type', producer: 'producer' },
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
