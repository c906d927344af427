/**
 * Windows of types with `collapse`. The first intent of a type, recipient and key opens a window, and its row is due when
 * the window ends. The transaction that accepts it closes the window: its route carries the newest payload, or a digest, and the
 * record keeps a copy of that. Every other intent of the window is due later, and its route is skipped as `collapsed` then.
 *
 * A closed window is its route: `upTo` is the last intent that the transaction saw. The reader numbers intents in the order in
 * which it commits them, so none comes in between later.
 */
import type { Pool, PoolClient } from 'pg';
import type { Catalog } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { expiryOf } from '../../api/intent/entry.ts';
import { forgottenKeySql } from '../../api/intent/forgotten.ts';
import type { SkipReason } from '../../api/intent/outcome.ts';
import { query } from '../postgres.ts';
import type { RouteSlot } from './audience.ts';
import { EARLIER } from './entries.ts';

/** Intents of a window that are looked into, the newest. */
const MOST_IN_WINDOW = 10_000;

/** A slot, with what its row keeps of the window that it closes, and the position of what it carries in the contents. */
export type ClosingSlot = RouteSlot & { collapse?: Partial<ClosedWindow> & { content?: number } };

interface ClosedWindow {
  window: string;
  upTo: number;
  /** Epoch ms. */
  at: number;
  /** Intents of the window. */
  count: number;
  /** The notification whose payload it carries. */
  newest: string;
}

/** A window of an intent. */
interface FoundWindow {
  /** As routes name the user; null: all administrators. */
  recipient: string | null;
  /** The notification whose route has closed it before. */
  carrier: string | null;
  /** Null when nothing in it is worth sending any more. */
  closed: ClosedWindow | null;
  /** Of the intents to carry, the newest first. */
  payloads: string[];
  /** When the last of these expires, epoch ms; null: never. */
  expires_at_ms: number | null;
}

/**
 * Finds what is in the windows of an intent, within the transaction that accepts it. Until its end no other transaction closes
 * one of them.
 *
 * @returns how its routes close them, what they carry, and when the last of that expires, epoch ms.
 * @throws ApplicationFailure of PostgreSQL.
 */
export async function closeWindows(client: Pool | PoolClient, catalog: Catalog, intent: Intent) {
  const { collapse, expiresAfterMs = null } = catalog.types.get(intent.notificationType) ?? {};
  const { items = 1, bytes = 0 } = collapse?.digest ?? {};
  await query(client, LOCK_WINDOWS, [intent.notificationId]);
  const values = [intent.notificationId, expiresAfterMs, items, bytes];
  const windows = await query<FoundWindow>(client, FIND_WINDOWS, values);
  const ends = windows.flatMap((window) => (window.closed ? [window.expires_at_ms ?? Infinity] : []));
  const lastEnd = ends.length === 0 ? expiryOf(catalog, intent) : Math.max(...ends);
  const contents: string[] = [];
  const contentOf = ({ closed, payloads }: Pick<FoundWindow, 'closed' | 'payloads'>) =>
    collapse?.digest ? digestOf(payloads, closed?.count ?? 1) : payloads[0]!;
  // Of a digest type each delivery has items, also without a window.
  const alone = contentOf({ closed: null, payloads: [intent.payloadJson] });
  return { expiresAtMs: lastEnd === Infinity ? undefined : lastEnd, contents, slotOf };

  function slotOf(slot: RouteSlot): ClosingSlot {
    if (slot.status === 'skipped') return slot;
    const skipped = (mark: SkipReason, problem: string): ClosingSlot => ({
      ...slot,
      status: 'skipped',
      mark,
      problem,
    });
    const window = windows.find(({ recipient }) => (recipient ?? slot.recipientRef) === slot.recipientRef);
    if (window?.carrier)
      return skipped('collapsed', `notification ${window.carrier} carries the newest of its window`);
    // The record expires with what other routes carry.
    if (window?.closed === null && ends.length > 0)
      return skipped('expired', 'nothing of its window is worth sending');
    const content = window?.closed ? contentOf(window) : alone;
    if (content === intent.payloadJson) return window?.closed ? { ...slot, collapse: window.closed } : slot;
    if (!contents.includes(content)) contents.push(content);
    return { ...slot, collapse: { count: 1, ...window?.closed, content: contents.indexOf(content) } };
  }
}

/** @returns the newest payload, with all of them, the oldest first. @param payloads the newest first, of so many in the window. */
function digestOf(payloads: readonly string[], count: number): string {
  const items = payloads.map((text) => JSON.parse(text) as object);
  return JSON.stringify({ ...items[0], items: items.toReversed(), items_omitted: count - items.length });
}

/** Of locks, beside the hash of the window. */
const LOCK = 0x77_69_6e;

/** In one order by all transactions. $1 notification. */
const LOCK_WINDOWS = {
  name: 'lock_windows',
  text: `
    SELECT pg_advisory_xact_lock(${LOCK}, hash)
      FROM (SELECT hashtext(unnest(windows)) AS hash
              FROM notification.intents
             WHERE notification_id = $1
             ORDER BY hash) AS own`,
};

/** The time of delivery of an intent, ms. */
const ASKED_AT = (intent: string) => `coalesce((${intent}.entry ->> 'deliverAtMs')::bigint, 0)`;

/** The route that has closed a window with an intent in it. */
const CARRIER = (intent: string) => `
         SELECT route.notification_id
           FROM notification.routes AS route
          WHERE collapse IS NOT NULL AND collapse ->> 'window' = window_id
            AND (collapse ->> 'upTo')::bigint >= ${intent}.read_number
            AND (collapse ->> 'at')::bigint >= ${ASKED_AT(intent)}
          LIMIT 1`;

/**
 * An intent for later is in no window before its time, and one that has expired, or whose key another one has, in none at all.
 * $1 notification, $2 after which time intents of its type expire, ms, or null, $3 items and $4 bytes at most that they carry.
 */
const FIND_WINDOWS = {
  name: 'find_windows',
  text: `
    SELECT 'user:' || (own.entry -> 'recipientUserIds' ->> (position - 1)::int) AS recipient,
           carrier.notification_id AS carrier, closed, payloads, expires_at_ms
      FROM (SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS at) AS moment
      JOIN notification.intents AS own ON own.notification_id = $1 AND own.status = 'open'
     CROSS JOIN unnest(own.windows) WITH ORDINALITY AS one (window_id, position)
      LEFT JOIN LATERAL (${CARRIER('own')}) AS carrier ON true
      LEFT JOIN LATERAL (
           WITH member AS MATERIALIZED (
             SELECT notification_id, read_number, expires_at_ms
               FROM (SELECT *, coalesce((entry ->> 'expiresAtMs')::bigint,
                                        greatest((entry ->> 'occurredAtMs')::bigint, ${ASKED_AT('other')}) + $2::bigint)
                               AS expires_at_ms
                       FROM notification.intents AS other
                      WHERE status = 'open' AND windows IS NOT NULL AND windows @> ARRAY[window_id]
                      ORDER BY read_number DESC
                      LIMIT ${MOST_IN_WINDOW}) AS intent
              WHERE ${ASKED_AT('intent')} <= at AND coalesce(expires_at_ms > at, true)
                AND NOT EXISTS (${CARRIER('intent')})
                AND NOT EXISTS (${EARLIER})
                AND NOT EXISTS (
                    SELECT FROM notification.records AS owner
                     WHERE owner.producer = intent.producer
                       AND owner.idempotency_key IN (intent.idempotency_key, ${forgottenKeySql('intent.idempotency_key')}))
           ), total AS (
             SELECT count(*) AS count, max(read_number) AS up_to FROM member
           )
           SELECT json_build_object('window', window_id, 'upTo', min(up_to), 'at', at, 'count', min(count),
                                    'newest', (array_agg(notification_id ORDER BY read_number DESC))[1]) AS closed,
                  array_agg(payload ORDER BY read_number DESC) AS payloads,
                  CASE WHEN every(expires_at_ms IS NOT NULL) THEN max(expires_at_ms)::float8 END AS expires_at_ms
             FROM (SELECT member.*, entry ->> 'payloadJson' AS payload,
                          sum(octet_length(entry ->> 'payloadJson')) OVER (ORDER BY read_number DESC) AS size
                     FROM (SELECT * FROM member ORDER BY read_number DESC LIMIT $3::int) AS member
                     JOIN notification.intents USING (notification_id, read_number)) AS newest
            CROSS JOIN total
            WHERE read_number = up_to OR size <= $4::int
           HAVING count(*) > 0) AS found ON carrier.notification_id IS NULL`,
};
