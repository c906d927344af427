/**
 * What producers were told about somebody's notifications. What is told about a route goes; how an intent ended stays
 * told, and told once, without what says whose intent it was.
 */
import { routeRefOf } from '../../api/ids.ts';
import { forgottenKeyOf } from '../../api/intent/forgotten.ts';
import type { OutcomeRow } from '../../api/intent/outcome.ts';
import { OUTCOMES_STREAM } from '../../api/intent/outcome.ts';
import type { Person, Place } from '../forget-places.ts';
import { walk } from '../forget-places.ts';
import type { StreamPlace } from '../forget-streams.ts';
import { entriesAfter, readingOf, streamPlace } from '../forget-streams.ts';
import type { OperatorResources } from '../resources.ts';

interface StoredOutcomes {
  id: string;
  events: OutcomeRow[];
}

/** What the record of somebody who is forgotten still says. */
interface BlankRecord {
  idempotency_key: string;
  request_id: string | null;
  trace_id: string | null;
}

/** Of an entry of the stream, what may tell whose it is. */
const FIELDS = [
  'notification_id',
  'duplicate_of',
  'route',
  'idempotency_key',
  'request_id',
  'trace_id',
] as const;

/** Rows that were relayed, and entries of their stream. After the records. */
export function outcomePlaces(resources: OperatorResources, person: Person): readonly [Place, StreamPlace] {
  const { db, redis } = resources;
  const routes = new Set(person.routeIds.map(routeRefOf));
  const isNamed = (text: string | null | undefined): boolean => text != null && person.names.test(text);

  const ofRows = (isDryRun: boolean) =>
    walk(db, { table: 'notification.outcomes', key: ['outcome_id'] }, [person.pattern], async (range) => {
      const { rows } = await db.query<StoredOutcomes>(LIST_OUTCOMES(range.condition), [...range.all]);
      const blank = await blankRecords(
        resources,
        rows.flatMap(({ events }) => events.flatMap(notificationsOf)),
      );
      let changed = 0;
      for (const { id, events } of rows) {
        const kept = events.flatMap((event) => rewritten(event, blank));
        const before = JSON.stringify(events);
        if (JSON.stringify(kept) === before) continue;
        changed += 1;
        if (isDryRun) continue;
        if (kept.length === 0) await db.query(DELETE_OUTCOMES, [id]);
        else await db.query(REWRITE_OUTCOMES, [id, JSON.stringify(kept), kept.length]);
      }
      return changed;
    });

  /** @returns nothing for an event of one of the routes. */
  function rewritten(event: OutcomeRow, blank: Map<string, BlankRecord>): OutcomeRow[] {
    const [eventId, kind, notificationId, type, producer, key, requestId, traceId, details] = event;
    if (typeof details['route'] === 'string' && routes.has(details['route'])) return [];
    const record = notificationsOf(event).flatMap((id) => blank.get(id) ?? [])[0];
    return [
      [
        ...([eventId, kind, notificationId, type, producer] as const),
        record?.idempotency_key ?? (isNamed(key) ? forgottenKeyOf(key!) : key),
        record ? record.request_id : isNamed(requestId) ? null : requestId,
        record ? record.trace_id : isNamed(traceId) ? null : traceId,
        details,
      ],
    ];
  }

  const stream = OUTCOMES_STREAM;
  /** Entries that say how an intent ended, which nobody must miss. */
  const ends = new Set<string>();
  const entries = streamPlace({
    redis,
    stream,
    async look(after) {
      const { last, entries: page } = await entriesAfter(redis, stream, after, FIELDS);
      const ids = page.flatMap(({ fields }) => [fields.notification_id ?? '', fields.duplicate_of ?? '']);
      const blank = await blankRecords(resources, ids);
      ends.clear();
      const found = page.filter(({ id, fields }) => {
        if (fields.route !== undefined) return routes.has(fields.route);
        const { notification_id: of = '', duplicate_of: original = '' } = fields;
        const isBlank = [of, original].some((one) => {
          const record = blank.get(one);
          return record !== undefined && record.idempotency_key !== fields.idempotency_key;
        });
        if (!isBlank && ![fields.idempotency_key, fields.request_id, fields.trace_id].some(isNamed))
          return false;
        ends.add(id);
        return true;
      });
      return { last, found: found.map(({ id }) => ({ id, isOwn: true })) };
    },
    async removable(ids) {
      const { hasGroups, reading } = await readingOf(redis, stream, ids);
      return new Set(
        ids.filter((id) => {
          const state = reading.get(id);
          return !hasGroups || state === 'read' || (state === 'unread' && !ends.has(id));
        }),
      );
    },
  });

  return [{ what: 'notification.outcomes', count: () => ofRows(true), forget: () => ofRows(false) }, entries];
}

/** The notifications that an event is about. */
const notificationsOf = ([, , notificationId, , , , , , details]: OutcomeRow): string[] => {
  const of = details['duplicate_of'];
  return [notificationId, ...(typeof of === 'string' ? [of] : [])];
};

/** Those of these notifications that somebody is forgotten of. */
async function blankRecords(
  { db }: OperatorResources,
  ids: readonly string[],
): Promise<Map<string, BlankRecord>> {
  const { rows } = await db.query<BlankRecord & { notification_id: string }>(
    `SELECT notification_id, idempotency_key, request_id, trace_id
       FROM notification.records
      WHERE notification_id = ANY ($1::text[]) AND forgotten_at IS NOT NULL`,
    [[...new Set(ids)]],
  );
  return new Map(rows.map(({ notification_id, ...record }) => [notification_id, record]));
}

/** $1 pattern. */
const LIST_OUTCOMES = (condition: string): string => `
  SELECT outcome_id::text AS id, events
    FROM notification.outcomes
   WHERE ${condition} AND relayed_at IS NOT NULL
     AND (events::text ~ $1
          OR EXISTS (SELECT FROM json_array_elements(events) AS event
                       JOIN notification.records ON notification_id IN (event ->> 2, event -> 8 ->> 'duplicate_of')
                      WHERE forgotten_at IS NOT NULL))`;

const REWRITE_OUTCOMES =
  'UPDATE notification.outcomes SET events = $2::json, event_count = $3 WHERE outcome_id = $1 AND relayed_at IS NOT NULL';
const DELETE_OUTCOMES = 'DELETE FROM notification.outcomes WHERE outcome_id = $1 AND relayed_at IS NOT NULL';
