/** What intents keep of people: records and routes, refused and cancelled intents, operations, outcomes, and entries of streams. */
import type { Pool } from 'pg';
import { routeRefOf } from '../../api/ids.ts';
import { FORGOTTEN_KEY, forgottenKeySql } from '../../api/intent/forgotten.ts';
import { OUTCOMES_STREAM } from '../../api/intent/outcome.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { jsonIn } from '../../api/text.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { Person, Personal, Remaining, StreamPlace } from '../places.ts';
import { idsOf, streamOf } from '../places.ts';
import type { OperatorResources } from '../resources.ts';

/** @returns addresses that routes of a user have, at most a hundred. */
export const addressesOf = (db: Pool, userId: string): Promise<string[]> =>
  idsOf(
    db,
    `SELECT DISTINCT resolved_email AS id
       FROM notification.routes
      WHERE recipient_ref = $1 AND resolved_email IS NOT NULL
      LIMIT 100`,
    [`user:${userId}`],
  );

export function intentsOf(resources: OperatorResources, person: Person): Personal {
  const { db, redis, intentsStream } = resources;
  const { userId, recipientRefs, routeIds, pattern, quoted, nested, inUserField } = person;
  const more = quoted.slice(1);
  const streams = streamPlaces(resources, person);
  const { intents, mail } = streams;
  const routeRefs = routeIds.map(routeRefOf);
  const outcomeEntries = outcomeStreamPlace(resources, person);

  const wait = 'wait, or galaxy-notify notifications cancel';

  return {
    places: [
      streams.push,
      mail,
      intents,
      {
        table: 'notification.records',
        key: ['notification_id'],
        values: [userId, [inUserField, pattern], more, recipientRefs],
        where: `
        recipient_user_ids ? $1
        OR (${PAYLOADS} ~ ${IN_USER_FIELD} OR ${names(PAYLOADS, '$3')}) AND NOT ${IS_STILL_SENT}`,
        set: `
        payload_json = CASE WHEN ${IS_SOLE} THEN '{}' WHEN ${IS_STILL_SENT} THEN payload_json
                            ELSE ${withoutUser('payload_json', more)} END,
        contents = CASE WHEN ${IS_SOLE} THEN NULL WHEN ${IS_STILL_SENT} THEN contents
                        ELSE (${withoutUser('contents::text', more)})::json END,
        idempotency_key = CASE WHEN (${IS_SOLE} OR ${IS_ABOUT} AND idempotency_key ~ ${NAMES_USER})
                               THEN ${HASHED_KEY} ELSE idempotency_key END,
        request_id = CASE WHEN ${IS_SOLE} OR ${IS_ABOUT} AND request_id ~ ${NAMES_USER} THEN NULL ELSE request_id END,
        trace_id = CASE WHEN ${IS_SOLE} OR ${IS_ABOUT} AND trace_id ~ ${NAMES_USER} THEN NULL ELSE trace_id END,
        traceparent = CASE WHEN ${IS_SOLE} THEN NULL ELSE traceparent END,
        recipient_user_ids = recipient_user_ids - $1,
        forgotten_at = statement_timestamp()`,
      },
      {
        ...REFUSED,
        values: [userId, [inUserField]],
        where: `${ENTRY_IS_ABOUT} AND notification.named_users(raw_fields) - $1 = '[]'`,
      },
      // A refused entry with more recipients stays theirs.
      {
        ...REFUSED,
        values: [userId, [inUserField, pattern], more, nested.slice(1)],
        where: `${ENTRY_IS_ABOUT} OR ${names('raw_fields::text', '$3')} OR ${names('raw_fields::text', '$4')}`,
        set: `
        raw_fields = (
          SELECT coalesce(jsonb_object_agg(name,
                   CASE WHEN name = 'idempotency_key' AND value ~ ${NAMES_USER} THEN ${forgottenKeySql('value')}
                        WHEN ${FIELD_IS_USER} OR name IN ('request_id', 'trace_id') AND value ~ ${NAMES_USER}
                             OR to_json(value)::text = ANY ($3::text[]) THEN 'forgotten'
                        WHEN name = 'recipient_user_ids_json'
                          THEN ${blanked(`replace(value, to_json($1::text)::text, '"forgotten"')`, more)}
                        ELSE ${withoutUser('value', more)} END), '{}')
            FROM jsonb_each_text(raw_fields) AS field (name, value)),
        idempotency_key = CASE WHEN idempotency_key ~ ${NAMES_USER} THEN ${HASHED_KEY} ELSE idempotency_key END`,
      },
      {
        table: 'notification.intents',
        key: ['notification_id'],
        values: [userId, pattern],
        where: `
        status <> 'open'
        AND (recipient_user_ids ? $1
             OR NOT ${IS_FORGOTTEN_KEY}
                AND CASE WHEN status <> 'accepted' THEN idempotency_key ~ $2
                         ELSE EXISTS (SELECT FROM notification.records
                                       WHERE records.notification_id = intents.notification_id
                                         AND (records.${IS_FORGOTTEN_KEY} OR ${IS_SOLE}
                                              OR recipient_user_ids ? $1 AND records.idempotency_key ~ $2)) END)`,
        set: `recipient_user_ids = recipient_user_ids - $1, idempotency_key = ${HASHED_KEY}`,
      },
      {
        table: 'notification.operation_items',
        key: ['operation_id', 'position'],
        values: [routeIds],
        where: 'route_id = ANY ($1::text[]) AND was_ordered IS NOT NULL',
      },
      {
        table: 'notification.operations',
        key: ['operation_id'],
        values: [pattern],
        // An operation that is under way keeps its options; `underWay` names it.
        where: 'filter::text ~ $1 OR reason ~ $1 OR options::text ~ $1 AND ended_at IS NOT NULL',
        set: `filter = '{}', reason = NULL, options = CASE WHEN ended_at IS NULL THEN options END`,
      },
      {
        table: 'notification.throttles',
        key: ['recipient_ref', 'notification_type', 'value'],
        values: [recipientRefs],
        where: 'recipient_ref = ANY ($1::text[])',
        isIndexed: true,
      },
      // What producers were told about a route is deleted. The end of an intent stays, and loses what tells whose intent it was.
      // After the records.
      {
        ...OUTCOMES,
        values: [routeRefs],
        where: `${IS_RELAYED} AND NOT EXISTS (SELECT FROM json_array_elements(events) AS event WHERE ${IS_OTHERS})`,
      },
      {
        ...OUTCOMES,
        values: [routeRefs, pattern],
        where: `${IS_RELAYED} AND ${TOLD_TO_OTHERS}::jsonb <> events::jsonb`,
        set: `events = ${TOLD_TO_OTHERS}, event_count = json_array_length(${TOLD_TO_OTHERS})`,
      },
      outcomeEntries,
      // Last: until then the routes know the addresses.
      {
        table: 'notification.routes',
        key: ['notification_id', 'route_id'],
        values: [recipientRefs],
        where: 'recipient_ref = ANY ($1::text[]) AND next_attempt_at IS NULL',
        isIndexed: true,
      },
    ],

    underWay: [
      {
        // The index by notification finds an open route of anybody. A plan over all open routes would take too long.
        ids: [
          `SELECT notification_id AS id FROM notification.routes AS own
            WHERE recipient_ref = ANY ($2::text[])
              AND (SELECT true FROM notification.routes
                    WHERE routes.notification_id = own.notification_id AND next_attempt_at IS NOT NULL LIMIT 1)
            UNION ${LIST_NAMING} AND next_attempt_at IS NOT NULL`,
          inUserField,
          recipientRefs,
        ],
        what: 'has routes that will still be tried',
        advice: wait,
      },
      {
        ids: [
          `SELECT notification_id AS id FROM notification.intents
            WHERE status = 'open' AND entry -> 'recipientUserIds' @> $1::jsonb`,
          JSON.stringify([userId]),
        ],
        what: 'waits to be accepted',
        advice: wait,
      },
      {
        ids: [
          `SELECT operation_id AS id FROM notification.operation_items
            WHERE was_ordered IS NULL AND route_id = ANY ($1::text[])
            UNION
           SELECT operation_id FROM notification.operations WHERE ended_at IS NULL AND options::text ~ $2`,
          routeIds,
          pattern,
        ],
        what: 'still has routes of the user to work on, or corrects entries with values that name the user',
        advice: 'wait, or galaxy-notify operations abort',
        thing: 'operation',
      },
      {
        ids: [
          `SELECT DISTINCT event ->> 2 AS id FROM notification.outcomes, json_array_elements(events) AS event
            WHERE relayed_at IS NULL
              AND event ->> 2 IN (SELECT notification_id FROM notification.routes
                                   WHERE recipient_ref = ANY ($1::text[]))`,
          recipientRefs,
        ],
        what: 'has an outcome that is not relayed yet',
        advice: 'wait; galaxy-notify doctor names what keeps it',
      },
      {
        async ids() {
          await intents.count();
          const { own, mentions } = intents.left();
          const offset = await loadOffset(redis, intentsStream);
          return [...own, ...mentions].filter((id) => compareEntryIds(id, offset) > 0);
        },
        what: `is in ${intentsStream} and not read yet`,
        advice: 'wait; galaxy-notify bridge status',
        thing: 'entry',
      },
    ],

    async remains() {
      const dead = await idsOf(db, `${LIST_NAMING} AND status = 'dead_letter'`, [inUserField, recipientRefs]);
      const some = (count: number, what: string, ends: string): Remaining[] =>
        count === 0 ? [] : [{ what: `${count} ${what}`, ends }];
      const entries = ({ what }: StreamPlace) => `entries of ${what}`;
      return [
        ...[intents, mail].flatMap((place) =>
          some(
            place.left().mentions.length,
            `${entries(place)} that are for others, too, or tell another user about the user`,
            'when the stream is trimmed',
          ),
        ),
        ...some(
          mail.left().own.length,
          entries(mail),
          'Mail Service has them and has not acknowledged them; repeat the command then',
        ),
        ...some(
          outcomeEntries.left().own.length,
          entries(outcomeEntries),
          'when their readers have acknowledged them; repeat the command then',
        ),
        ...some(
          dead.length,
          'records of messages to others that name the user and are dead-lettered',
          'by NOTIFICATION_RECORD_RETENTION; or repeat the command when they are replayed',
        ),
      ];
    },
  };
}

function streamPlaces({ redis, intentsStream, streams }: OperatorResources, { userId, routeIds }: Person) {
  const { push, mail } = { push: 'gateway:client-events', mail: 'mail:delivery_commands', ...streams };
  return {
    push: streamOf({
      ...{ redis, stream: push, userId },
      names: ['user_id'],
      isOwn: (fields) => fields['user_id'] === userId,
      // Gateway reads without a group, and tolerates that an entry is missing.
      readingOf: async (ids) => ids.map(() => 'read'),
    }),
    mail: streamOf({
      ...{ redis, stream: mail, userId },
      names: ['delivery_id'],
      // The id of the notification, a slash, and the id of the route.
      isOwn: ({ delivery_id: id = '' }) =>
        routeIds.some((routeId) => id.replace(/^[^/]*/, '') === `/${routeId}`),
      isRemovable: (reading) => reading !== 'pending',
    }),
    intents: streamOf({
      ...{ redis, stream: intentsStream, userId },
      names: ['recipient_user_ids_json'],
      isOwn(fields) {
        const list = jsonIn(fields['recipient_user_ids_json']);
        return Array.isArray(list) && list.length > 0 && list.every((one) => one === userId);
      },
      async readingOf(ids) {
        const offset = await loadOffset(redis, intentsStream);
        return ids.map((id) => (compareEntryIds(id, offset) <= 0 ? 'read' : 'unread'));
      },
    }),
  };
}

/** Entries of the stream of outcomes. No consumer group may miss the end of an intent. */
function outcomeStreamPlace({ db, redis }: OperatorResources, { userId, routeIds, names: named }: Person) {
  const routes = new Set(routeIds.map(routeRefOf));
  let blank = new Map<string, BlankRecord>();
  return streamOf({
    ...{ redis, stream: OUTCOMES_STREAM, userId },
    names: ['notification_id', 'duplicate_of', 'route', 'idempotency_key', 'request_id', 'trace_id'],
    async load(entries) {
      const ids = entries.flatMap(({ fields }) => [fields['notification_id'], fields['duplicate_of']]);
      blank = await blankRecords(db, ids);
    },
    isOwn({ notification_id: id, duplicate_of: original, route, idempotency_key: key, ...more }) {
      if (route !== undefined) return routes.has(route);
      const records = [id, original].flatMap((one) => blank.get(one ?? '') ?? []);
      return (
        records.some((record) => record.idempotency_key !== key) ||
        [key, more['request_id'], more['trace_id']].some((text) => text !== undefined && named.test(text))
      );
    },
    isRemovable: (reading, { route }) => (reading === 'unread' ? route !== undefined : reading !== 'pending'),
  });
}

/** What the record of a forgotten user still says. */
interface BlankRecord {
  idempotency_key: string;
  request_id: string | null;
  trace_id: string | null;
}

/** @returns the records among these that have lost a user. */
async function blankRecords(
  db: Pool,
  ids: readonly (string | undefined)[],
): Promise<Map<string, BlankRecord>> {
  const { rows } = await db.query<BlankRecord & { notification_id: string }>(
    `SELECT notification_id, idempotency_key, request_id, trace_id
       FROM notification.records
      WHERE notification_id = ANY ($1::text[]) AND forgotten_at IS NOT NULL`,
    [[...new Set(ids)]],
  );
  return new Map(rows.map((record) => [record.notification_id, record]));
}

const OUTCOMES = { table: 'notification.outcomes', key: ['outcome_id'] };
const IS_RELAYED = 'relayed_at IS NOT NULL';
/** An event that is not about one of the routes $1. */
const IS_OTHERS = "coalesce(event -> 8 ->> 'route', '') <> ALL ($1::text[])";

/** SQL: what of an event is that of the blank record; without one, whether it names the user. @param at its place in the event. */
const withoutName = (column: string, at: number, blank: string): string =>
  `CASE WHEN record.notification_id IS NOT NULL THEN record.${column}
                     WHEN event ->> ${at} ~ $2 THEN ${blank} ELSE event ->> ${at} END`;

/** The events of a row without those of the routes $1, and without the key and the ids that the pattern $2 or a blank record names. */
const TOLD_TO_OTHERS = `(
          SELECT json_agg(json_build_array(event -> 0, event -> 1, event -> 2, event -> 3, event -> 4,
                   ${withoutName('idempotency_key', 5, hashedKey('(event ->> 5)'))},
                   ${withoutName('request_id', 6, 'NULL')},
                   ${withoutName('trace_id', 7, 'NULL')}, event -> 8) ORDER BY position)
            FROM json_array_elements(events) WITH ORDINALITY AS told (event, position)
            LEFT JOIN LATERAL (
              SELECT * FROM notification.records
               WHERE notification_id IN (event ->> 2, event -> 8 ->> 'duplicate_of') AND forgotten_at IS NOT NULL
               ORDER BY notification_id = event ->> 2 DESC
               LIMIT 1) AS record ON true
           WHERE ${IS_OTHERS})`;

/** What routes of a record carry. */
const PAYLOADS = 'concat(payload_json, contents)';

/** Notifications to others that name the user. $1 pattern, $2 recipients of the user. */
const LIST_NAMING = `
  SELECT DISTINCT notification_id AS id FROM notification.routes JOIN notification.records USING (notification_id)
   WHERE ${PAYLOADS} ~ $1 AND recipient_ref <> ALL ($2::text[])`;

const REFUSED = { table: 'notification.malformed_intents', key: ['stream_entry_id'] };
/** The user is the only recipient of a record. */
const IS_SOLE = `(recipient_user_ids IS NOT NULL AND recipient_user_ids ? $1 AND recipient_user_ids - $1 = '[]')`;
/** Patterns of the walks over records and refused entries. */
const [IN_USER_FIELD, NAMES_USER] = ['($2::text[])[1]', '($2::text[])[2]'];
/** The user is one of the recipients, or a field for user ids names the user. */
const IS_ABOUT = `(recipient_user_ids ? $1 OR payload_json ~ ${IN_USER_FIELD})`;
/** A field of a refused entry that holds the user's id. */
const FIELD_IS_USER = `(name ~ '(^|_)user_id$' AND value = $1)`;
/** The same as {@link IS_ABOUT} for a refused entry, whose fields may be any. Other texts that equal the id are not the user. */
const ENTRY_IS_ABOUT = `(strpos(raw_fields ->> 'recipient_user_ids_json', to_json($1::text)::text) > 0 OR EXISTS (
          SELECT FROM jsonb_each_text(raw_fields) AS field (name, value)
           WHERE ${FIELD_IS_USER} OR value ~ ${IN_USER_FIELD}))`;
/** Another recipient still gets a record's payload, or may get it by a replay. */
const IS_STILL_SENT = `EXISTS (
          SELECT FROM notification.routes
           WHERE routes.notification_id = records.notification_id AND recipient_ref <> ALL ($4::text[])
             AND (next_attempt_at IS NOT NULL OR status = 'dead_letter'))`;
const IS_FORGOTTEN_KEY = `idempotency_key ~ '${FORGOTTEN_KEY.source}'`;
const HASHED_KEY = hashedKey('idempotency_key');

/** SQL: the hash in place of a key; a key that is a hash already stays. */
function hashedKey(key: string): string {
  return `CASE WHEN ${key} ~ '${FORGOTTEN_KEY.source}' THEN ${key} ELSE ${forgottenKeySql(key)} END`;
}

/** SQL: whether a text has one of the texts of an array. */
const names = (text: string, array: string): string =>
  `EXISTS (SELECT FROM unnest(${array}::text[]) AS one (value) WHERE strpos(${text}, one.value) > 0)`;

/** SQL: a JSON text in which `"forgotten"` replaces each of the values, which are $3. */
const blanked = (text: string, values: readonly unknown[]): string =>
  values.reduce<string>((result, _, i) => `replace(${result}, ($3::text[])[${i + 1}], '"forgotten"')`, text);

/** The same, and the user's id in fields for user ids. */
const withoutUser = (text: string, values: readonly unknown[]): string =>
  blanked(`regexp_replace(${text}, ${IN_USER_FIELD}, '\\1"forgotten"', 'g')`, values);
