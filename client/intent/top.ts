/** Intents at one glance: what comes in, goes out, waits and died. */
import { CHANNELS } from '../../api/intent/catalog.ts';
import { loadOffset, oldestUnprocessedAgeMs } from '../../api/intent/stream.ts';
import type { KindLook } from '../look.ts';
import {
  COUNTED_AT_MOST,
  READ_AT_MOST,
  WINDOW_BEGIN,
  ageMs,
  lookOf,
  readDead,
  readRates,
  readWaits,
} from '../look.ts';
import type { OperatorResources } from '../resources.ts';

/** Never throws: what could not be read is said. */
export function intentLook({ db, redis, intentsStream, catalog }: OperatorResources): Promise<KindLook> {
  return lookOf(
    ['rates', () => readRates(db, READ_RATES)],
    ['waiting routes', () => readWaits(db, READ_ROUTES)],
    [
      'urgent routes',
      () =>
        readWaits(db, READ_URGENT, [
          [...catalog.types.values()].flatMap(({ type, isUrgent }) => (isUrgent ? [type] : [])),
        ]),
    ],
    ['waiting intents', () => readWaits(db, READ_ACCEPTANCE)],
    ['dead letters', () => readDead(db, READ_DEAD)],
    ['the stream', async () => ({ waits: [{ what: 'not read yet', oldestMs: await unreadMs() }] })],
  );

  async function unreadMs(): Promise<number> {
    const offset = await loadOffset(redis, intentsStream);
    return oldestUnprocessedAgeMs(redis, intentsStream, offset, Date.now());
  }
}

/** Intents that were accepted, and routes that were handed off. */
const READ_RATES = `
  SELECT (SELECT count(*)::float8
            FROM (SELECT FROM notification.records
                   WHERE accepted_at > ${WINDOW_BEGIN}
                   ORDER BY accepted_at DESC
                   LIMIT ${COUNTED_AT_MOST}) AS accepted) AS arrived,
         (SELECT count(*)::float8
            FROM (SELECT FROM notification.routes
                   WHERE published_at > ${WINDOW_BEGIN}
                   ORDER BY published_at DESC
                   LIMIT ${COUNTED_AT_MOST}) AS published) AS done`;

const READ_ROUTES = `
  SELECT asked.channel AS what, waiting.count, ${ageMs('oldest')} AS "oldestMs"
    FROM unnest(ARRAY['${CHANNELS.join("', '")}']) AS asked (channel)
   CROSS JOIN LATERAL (
     SELECT count(*)::float8 AS count, min(next_attempt_at) AS oldest
       FROM (SELECT next_attempt_at
               FROM notification.routes
              WHERE routes.channel = asked.channel AND next_attempt_at IS NOT NULL
              ORDER BY next_attempt_at
              LIMIT ${COUNTED_AT_MOST}) AS first
   ) AS waiting`;

/** How long the oldest urgent one has waited, if it is among those that wait longest. */
const READ_URGENT = `
  SELECT 'urgent among them' AS what, NULL::float8 AS count, ${ageMs('min(next_attempt_at)')} AS "oldestMs"
    FROM unnest(ARRAY['${CHANNELS.join("', '")}']) AS asked (channel)
   CROSS JOIN LATERAL (
     SELECT notification_id, next_attempt_at
       FROM notification.routes
      WHERE routes.channel = asked.channel AND next_attempt_at IS NOT NULL
      ORDER BY next_attempt_at
      LIMIT ${READ_AT_MOST}
   ) AS waiting
   WHERE (SELECT notification_type FROM notification.records WHERE records.notification_id = waiting.notification_id)
         = ANY ($1::text[])`;

const READ_ACCEPTANCE = `
  SELECT 'not accepted yet' AS what, count(*)::float8 AS count, ${ageMs('min(read_at)')} AS "oldestMs"
    FROM (SELECT read_at FROM notification.intents WHERE status = 'open' LIMIT ${READ_AT_MOST}) AS open`;

const READ_DEAD = `
  SELECT coalesce(last_error_classification, 'unknown') AS failure, count(*)::float8 AS count
    FROM (SELECT last_error_classification
            FROM notification.routes
           WHERE status = 'dead_letter'
           ORDER BY dead_lettered_at DESC, notification_id DESC, route_id DESC
           LIMIT ${READ_AT_MOST}) AS newest
   GROUP BY 1`;

export const STATEMENTS = { READ_RATES, READ_ROUTES, READ_URGENT, READ_ACCEPTANCE, READ_DEAD };
