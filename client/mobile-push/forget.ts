/** What mobile pushes keep of somebody: jobs with their content and sends, entries, and the tokens of their devices. */
import { DEFAULT_MOBILE_STREAM, PAYLOAD_FIELD } from '../../api/mobile-push/job.ts';
import type { PartOfForgetting, Person, Place } from '../forget-places.ts';
import { rowsOf, sentence, walkOf } from '../forget-places.ts';
import { lookFor, readByAll, streamPlace } from '../forget-streams.ts';
import type { OperatorResources } from '../resources.ts';

const TOKENS = 'public.device_token';
/** The table is another service's: there is none, its ids take no such value, or this role has no right to it. */
const NO_SUCH_TABLE = '42P01';
const NO_SUCH_ID = ['22P02', '22003'];
const NO_RIGHT = '42501';

export function mobilePushesOf(resources: OperatorResources, person: Person): PartOfForgetting {
  const { db, redis } = resources;
  const { userId, quoted, nested } = person;
  const stream = DEFAULT_MOBILE_STREAM;
  const entryPlace = (...path: [string, string?]) =>
    streamPlace({
      ...{ redis, stream },
      look: lookFor({ redis, stream, userId }, [userId], path),
      removable: (ids) => readByAll(redis, stream, ids),
    });
  // A job has its fields flat, or as JSON in one of them.
  const entries = [entryPlace('userId'), entryPlace(PAYLOAD_FIELD, 'userId')];
  let mayNotDelete = false;

  const tokens = rowsOf(db, {
    table: TOKENS,
    key: ['id'],
    where: '"userId" = $1',
    values: [userId],
  });
  const asFarAsPossible = async (work: () => Promise<number>): Promise<number> => {
    try {
      return await work();
    } catch (error) {
      const { code } = error as { code?: string };
      if (code === NO_RIGHT) mayNotDelete = true;
      else if (code !== NO_SUCH_TABLE && !NO_SUCH_ID.includes(code ?? '')) throw error;
      return 0;
    }
  };
  const places: Place[] = [
    ...entries,
    {
      what: TOKENS,
      count: () => asFarAsPossible(tokens.count),
      forget: () => asFarAsPossible(tokens.forget),
    },
    // Their sends go with them.
    rowsOf(db, {
      table: 'notifications.notification_log',
      key: ['job_id'],
      where: "user_id = $1 AND status <> 'pending'",
      values: [userId],
    }),
    // Refused ones of which nobody could tell whose they were.
    walkOf(db, {
      table: 'notifications.notification_log',
      key: ['job_id'],
      where: `status = 'malformed' AND EXISTS (
        SELECT FROM unnest($1::text[]) AS one (value) WHERE strpos(raw_fields::text, one.value) > 0)`,
      values: [[...quoted, ...nested]],
    }),
  ];

  return {
    places,
    async underWay() {
      const { rows } = await db.query<{ id: string }>(
        `SELECT job_id AS id FROM notifications.notification_log
          WHERE user_id = $1 AND status = 'pending' ORDER BY created_at LIMIT 100`,
        [userId],
      );
      for (const place of entries) await place.count();
      const unread = entries.flatMap(({ left }) => left().own);
      const ids = rows.map(({ id }) => id);
      return [
        ...sentence(ids, 'is under way', 'wait; galaxy-notify mobile show says for what', 'mobile push'),
        ...sentence(
          unread.filter((id) => !ids.includes(id)),
          `is in ${stream} and not taken yet`,
          'wait; galaxy-notify doctor says whether somebody takes them',
          'mobile push',
        ),
      ];
    },
    remains: () =>
      Promise.resolve(
        mayNotDelete
          ? [
              {
                what: `tokens of devices in ${TOKENS}`,
                ends: 'when the service that it belongs to deletes them',
              },
            ]
          : [],
      ),
  };
}
