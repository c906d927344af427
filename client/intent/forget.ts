/** What intents keep of somebody: records and routes, refused and cancelled ones, operations, and entries of streams. */
import { forgottenKeySql, FORGOTTEN_KEY } from '../../api/intent/forgotten.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { compareEntryIds } from '../../api/stream-ids.ts';
import type { PartOfForgetting, Person, Place, Remaining } from '../forget-places.ts';
import { NAMED, rowsOf, sentence, walkOf } from '../forget-places.ts';
import type { StreamPlace } from '../forget-streams.ts';
import { lookFor, readingOf, streamPlace } from '../forget-streams.ts';
import type { OperatorResources } from '../resources.ts';
import { outcomePlaces } from './forget-outcomes.ts';

/** Notifications that are looked at together. */
const TOGETHER = 200;

/** Addresses that routes of a user have, at most so many. */
export async function addressesOf({ db }: Pick<OperatorResources, 'db'>, userId: string): Promise<string[]> {
  const { rows } = await db.query<{ address: string }>(
    `SELECT DISTINCT resolved_email AS address
       FROM notification.routes
      WHERE recipient_ref = $1 AND resolved_email IS NOT NULL
      LIMIT 100`,
    [`user:${userId}`],
  );
  return rows.map(({ address }) => address);
}

export function intentsOf(resources: OperatorResources, person: Person): PartOfForgetting {
  const { db, redis, intentsStream } = resources;
  const { userId, recipientRefs, pattern, quoted, nested, inUserField } = person;
  const more = quoted.slice(1);
  const named = JSON.stringify([userId]);
  const streams = outboundPlaces(resources, person);
  const outcomes = outcomePlaces(resources, person);

  const places: Place[] = [
    streams.push,
    streams.mail,
    streams.intents,
    walkOf(db, {
      table: 'notification.records',
      key: ['notification_id'],
      values: [userId, [inUserField, pattern], more, recipientRefs],
      where: `
        recipient_user_ids ? $1
        OR (payload_json ~ ${IN_USER_FIELD} OR ${names('payload_json', ['$3'])}) AND NOT ${IS_STILL_SENT}`,
      set: `
        payload_json = CASE WHEN ${IS_SOLE} THEN '{}' WHEN ${IS_STILL_SENT} THEN payload_json
                            ELSE ${blanked(`regexp_replace(payload_json, ${IN_USER_FIELD}, '\\1"forgotten"', 'g')`, '$3', more.length)} END,
        idempotency_key = CASE WHEN (${IS_SOLE} OR ${IS_ABOUT} AND idempotency_key ~ ${NAMES_USER}) AND NOT ${IS_FORGOTTEN_KEY}
                               THEN ${forgottenKeySql('idempotency_key')} ELSE idempotency_key END,
        request_id = CASE WHEN ${IS_SOLE} OR ${IS_ABOUT} AND request_id ~ ${NAMES_USER} THEN NULL ELSE request_id END,
        trace_id = CASE WHEN ${IS_SOLE} OR ${IS_ABOUT} AND trace_id ~ ${NAMES_USER} THEN NULL ELSE trace_id END,
        traceparent = CASE WHEN ${IS_SOLE} THEN NULL ELSE traceparent END,
        recipient_user_ids = recipient_user_ids - $1,
        forgotten_at = statement_timestamp()`,
    }),
    walkOf(db, {
      table: 'notification.malformed_intents',
      key: ['stream_entry_id'],
      values: [userId, [inUserField]],
      where: `${ENTRY_IS_ABOUT} AND notification.named_users(raw_fields) - $1 = '[]'`,
    }),
    // One that is for others, too, stays theirs.
    walkOf(db, {
      table: 'notification.malformed_intents',
      key: ['stream_entry_id'],
      values: [userId, [inUserField, pattern], more, nested.slice(1)],
      where: `${ENTRY_IS_ABOUT} OR ${names('raw_fields::text', ['$3', '$4'])}`,
      set: `
        raw_fields = (
          SELECT coalesce(jsonb_object_agg(name,
                   CASE WHEN name = 'idempotency_key' AND value ~ ${NAMES_USER} THEN ${forgottenKeySql('value')}
                        WHEN ${FIELD_IS_USER} OR name IN ('request_id', 'trace_id') AND value ~ ${NAMES_USER}
                             OR to_json(value)::text = ANY ($3::text[]) THEN 'forgotten'
                        WHEN name = 'recipient_user_ids_json'
                          THEN ${blanked(`replace(value, to_json($1::text)::text, '"forgotten"')`, '$3', more.length)}
                        ELSE ${blanked(`regexp_replace(value, ${IN_USER_FIELD}, '\\1"forgotten"', 'g')`, '$3', more.length)} END), '{}')
            FROM jsonb_each_text(raw_fields) AS field (name, value)),
        idempotency_key = CASE WHEN idempotency_key ~ ${NAMES_USER} AND NOT ${IS_FORGOTTEN_KEY}
                               THEN ${forgottenKeySql('idempotency_key')} ELSE idempotency_key END`,
    }),
    walkOf(db, {
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
      set: `
        recipient_user_ids = recipient_user_ids - $1,
        idempotency_key = CASE WHEN NOT ${IS_FORGOTTEN_KEY} THEN ${forgottenKeySql('idempotency_key')}
                               ELSE idempotency_key END`,
    }),
    walkOf(db, {
      table: 'notification.operation_items',
      key: ['operation_id', 'position'],
      values: [person.routeIds],
      where: 'route_id = ANY ($1::text[]) AND was_ordered IS NOT NULL',
    }),
    walkOf(db, {
      table: 'notification.operations',
      key: ['operation_id'],
      values: [pattern],
      // What is under way goes on as it was asked for; `underWay` names it.
      where: 'filter::text ~ $1 OR reason ~ $1 OR options::text ~ $1 AND ended_at IS NOT NULL',
      set: `filter = '{}', reason = NULL, options = CASE WHEN ended_at IS NULL THEN options END`,
    }),
    ...outcomes,
    // Last: until then they know the addresses.
    rowsOf(db, {
      table: 'notification.routes',
      key: ['notification_id', 'route_id'],
      values: [recipientRefs],
      where: 'recipient_ref = ANY ($1::text[]) AND next_attempt_at IS NULL',
    }),
  ];

  return {
    places,

    async underWay() {
      const ids = await notificationsOf(resources, person);
      const found = await Promise.all([
        openAmong(resources, ids),
        listOf(
          db,
          `SELECT DISTINCT notification_id AS id FROM notification.routes JOIN notification.records USING (notification_id)
            WHERE next_attempt_at IS NOT NULL AND payload_json ~ $1
              AND recipient_ref <> ALL ($2::text[]) LIMIT ${NAMED + 1}`,
          [inUserField, recipientRefs],
        ),
        listOf(
          db,
          `SELECT notification_id AS id FROM notification.intents
            WHERE status = 'open' AND entry -> 'recipientUserIds' @> $1::jsonb LIMIT ${NAMED + 1}`,
          [named],
        ),
        listOf(
          db,
          `SELECT DISTINCT operation_id AS id FROM notification.operation_items
            WHERE was_ordered IS NULL AND route_id = ANY ($1::text[])
            UNION
           SELECT operation_id FROM notification.operations WHERE ended_at IS NULL AND options::text ~ $2
            LIMIT ${NAMED + 1}`,
          [person.routeIds, pattern],
        ),
        listOf(
          db,
          `SELECT DISTINCT event ->> 2 AS id
             FROM notification.outcomes, json_array_elements(events) AS event
            WHERE relayed_at IS NULL AND event ->> 2 = ANY ($1::text[]) LIMIT ${NAMED + 1}`,
          [ids],
        ),
        unreadIntents(),
      ]);
      const [open, naming, waiting, operations, untold, unread] = found;
      return [
        ...sentence(
          [...new Set([...open, ...naming])],
          'has routes that will still be tried',
          'wait, or galaxy-notify notifications cancel',
        ),
        ...sentence(waiting, 'waits to be accepted', 'wait, or galaxy-notify notifications cancel'),
        ...sentence(
          operations,
          'still has routes of the user to work on, or mends entries with what names the user',
          'wait, or galaxy-notify operations abort',
          'operation',
        ),
        ...sentence(
          untold,
          'has an outcome that is not relayed yet',
          'wait; galaxy-notify doctor names what keeps it',
        ),
        ...sentence(
          unread,
          `is in ${intentsStream} and not read yet`,
          'wait; galaxy-notify bridge status',
          'entry',
        ),
      ];
    },

    async remains() {
      const { intents, mail } = streams;
      const dead = await listOf(
        db,
        `SELECT DISTINCT notification_id AS id FROM notification.routes JOIN notification.records USING (notification_id)
          WHERE status = 'dead_letter' AND payload_json ~ $1 AND recipient_ref <> ALL ($2::text[])`,
        [inUserField, recipientRefs],
      );
      return [
        ...[intents, mail].flatMap(({ what, left }): Remaining[] => {
          const count = left().mentions.length;
          if (count === 0) return [];
          const words = `${count} entries of ${what} that are for others, too, or tell somebody else about the user`;
          return [{ what: words, ends: 'when the stream is trimmed' }];
        }),
        ...pendingOf(mail, 'Mail Service has them and has not acknowledged them; repeat the command then'),
        ...pendingOf(outcomes[1], 'when their readers have acknowledged them; repeat the command then'),
        ...(dead.length === 0
          ? []
          : [
              {
                what: `${dead.length} records of messages to others that name the user and are dead-lettered`,
                ends: 'by NOTIFICATION_RECORD_RETENTION; or repeat the command when they are replayed',
              },
            ]),
      ];
    },
  };

  /** Entries that name them, and that the reader has not come to. */
  async function unreadIntents(): Promise<string[]> {
    await streams.intents.count();
    const { own, mentions } = streams.intents.left();
    const offset = await loadOffset(redis, intentsStream);
    return [...own, ...mentions].filter((id) => compareEntryIds(id, offset) > 0);
  }
}

function pendingOf({ what, left }: StreamPlace, ends: string): Remaining[] {
  const { own } = left();
  return own.length === 0 ? [] : [{ what: `${own.length} entries of ${what}`, ends }];
}

const lookForIntents = ({ redis, intentsStream }: OperatorResources, { userId }: Person) =>
  lookFor({ redis, stream: intentsStream, userId }, [userId], ['recipient_user_ids_json', '*']);

function outboundPlaces(resources: OperatorResources, person: Person) {
  const { redis, intentsStream, streams } = resources;
  const { userId } = person;
  const { push, mail } = { push: 'gateway:client-events', mail: 'mail:delivery_commands', ...streams };
  return {
    push: streamPlace({
      redis,
      stream: push,
      look: lookFor({ redis, stream: push, userId }, [userId], ['user_id']),
      // Gateway reads without a group, and does without what it has not read.
      removable: (ids) => Promise.resolve(new Set(ids)),
    }),
    mail: streamPlace({
      redis,
      stream: mail,
      look: lookFor({ redis, stream: mail, userId }, person.routeIds, ['delivery_id', '/']),
      async removable(ids) {
        const { reading } = await readingOf(redis, mail, ids);
        return new Set(ids.filter((id) => reading.get(id) !== 'pending'));
      },
    }),
    intents: streamPlace({
      redis,
      stream: intentsStream,
      look: lookForIntents(resources, person),
      async removable(ids) {
        const offset = await loadOffset(redis, intentsStream);
        return new Set(ids.filter((id) => compareEntryIds(id, offset) <= 0));
      },
    }),
  };
}

async function notificationsOf({ db }: OperatorResources, { recipientRefs }: Person): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    'SELECT DISTINCT notification_id AS id FROM notification.routes WHERE recipient_ref = ANY ($1::text[])',
    [recipientRefs],
  );
  return rows.map(({ id }) => id);
}

/** Those of which a route is open, be it of somebody else: batches go through routes by their number. */
async function openAmong({ db }: OperatorResources, ids: readonly string[]): Promise<string[]> {
  const open: string[] = [];
  for (let from = 0; from < ids.length && open.length <= NAMED; from += TOGETHER) {
    open.push(
      ...(await listOf(
        db,
        `SELECT id FROM unnest($1::text[]) AS one (id)
          WHERE EXISTS (SELECT FROM notification.routes
                         WHERE routes.notification_id = one.id AND next_attempt_at IS NOT NULL)`,
        [ids.slice(from, from + TOGETHER)],
      )),
    );
  }
  return open;
}

async function listOf(db: OperatorResources['db'], statement: string, values: unknown[]): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(statement, values);
  return rows.map(({ id }) => id);
}

/** The user is the only recipient of a record. */
const IS_SOLE = `(recipient_user_ids IS NOT NULL AND recipient_user_ids ? $1 AND recipient_user_ids - $1 = '[]')`;
/** Patterns of the walks over records and refused entries. */
const [IN_USER_FIELD, NAMES_USER] = ['($2::text[])[1]', '($2::text[])[2]'];
/** The user is one of the recipients, or a field for ids of users names them. */
const IS_ABOUT = `(recipient_user_ids ? $1 OR payload_json ~ ${IN_USER_FIELD})`;
/** A field of a refused entry that holds the user's id. */
const FIELD_IS_USER = `(name ~ '(^|_)user_id$' AND value = $1)`;
/** The same as {@link IS_ABOUT} for a refused entry, whose fields may be any. Other texts that equal the id are not the user. */
const ENTRY_IS_ABOUT = `(strpos(raw_fields ->> 'recipient_user_ids_json', to_json($1::text)::text) > 0 OR EXISTS (
          SELECT FROM jsonb_each_text(raw_fields) AS field (name, value)
           WHERE ${FIELD_IS_USER} OR value ~ ${IN_USER_FIELD}))`;
/** Somebody else still gets a record's payload, or may get it by a replay. */
const IS_STILL_SENT = `EXISTS (
          SELECT FROM notification.routes
           WHERE routes.notification_id = records.notification_id AND recipient_ref <> ALL ($4::text[])
             AND (next_attempt_at IS NOT NULL OR status = 'dead_letter'))`;
const IS_FORGOTTEN_KEY = `idempotency_key ~ '${FORGOTTEN_KEY.source}'`;

/** Whether a text has one of the texts of some arrays. */
const names = (text: string, arrays: readonly string[]): string =>
  `(${arrays.map((array) => `EXISTS (SELECT FROM unnest(${array}::text[]) AS one (value) WHERE strpos(${text}, one.value) > 0)`).join(' OR ')})`;

/** A text with JSON in it, in which each of the JSON texts of an array says `"forgotten"` instead. */
function blanked(text: string, array: string, length: number): string {
  let result = text;
  for (let i = 1; i <= length; i += 1) result = `replace(${result}, (${array}::text[])[${i}], '"forgotten"')`;
  return result;
}
