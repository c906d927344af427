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
import { expiryOf, windowsOf } from '../../api/intent/entry.ts';
import { forgottenKeySql } from '../../api/intent/forgotten.ts';
import { query } from '../postgres.ts';
import type { ClosedWindow, RouteSlot } from './audience.ts';
import { EARLIER } from './entries.ts';

/** Intents of a window that are looked into, the newest. */
const MOST_IN_WINDOW = 10_000;

/** An intent whose windows are closed. */
export interface Closing {
  /** It expires when the last of what its routes carry does. */
  intent: Intent;
  contents: string[];
  slotOf(slot: RouteSlot): RouteSlot;
}

/**
 * Finds what is in the windows of an intent, within the transaction that accepts it. Until its end no other transaction closes
 * a window of the same type and key.
 *
 * @returns nothing for one without windows. @throws ApplicationFailure of PostgreSQL.
 */
export async function findWindows(
  client: Pool | PoolClient,
  catalog: Catalog,
  intent: Intent,
): Promise<WindowRow[]> {
  const windows = windowsOf(catalog, intent);
  if (!windows) return [];
  await query(client, LOCK_WINDOWS, [windows.group]);
  return query<WindowRow>(client, FIND_WINDOWS, [
    intent.notificationId,
    catalog.types.get(intent.notificationType)?.expiresAfterMs ?? null,
    windows.digest?.items ?? 1,
    windows.digest?.bytes ?? 0,
  ]);
}

interface WindowRow {
  position: number;
  /** The notification whose route has closed the window before. */
  carrier: string | null;
  at: number;
  up_to: number | null;
  count: number;
  window_id: string;
  /** The newest first. */
  items: Item[] | null;
}

interface Item {
  notificationId: string;
  payloadJson: string;
  expiresAtMs: number | null;
}

/** What a digest adds to the newest payload. */
export interface Digest {
  /** The oldest first. */
  items: object[];
  items_omitted: number;
}

/** @param items the newest first, of so many in the window. */
function digestOf(items: readonly Pick<Item, 'payloadJson'>[], count: number): string {
  const payloads = items.map(({ payloadJson }) => JSON.parse(payloadJson) as object);
  const digest: Digest = { items: payloads.toReversed(), items_omitted: count - payloads.length };
  return JSON.stringify({ ...payloads[0], ...digest });
}

/** @param rows its windows. */
export function closingOf(catalog: Catalog, intent: Intent, rows: readonly WindowRow[]): Closing {
  const digest = catalog.types.get(intent.notificationType)?.collapse?.digest;
  const contents: string[] = [];
  const expiries = new Map<number, number>();
  // Of a digest type each delivery has items, also without a window.
  const alone = digest ? carrying(digestOf([intent], 1)) : {};
  const slots = new Map(rows.map((row): [number, Partial<RouteSlot>] => [row.position, slotOfWindow(row)]));
  const refs = new Map(intent.recipientUserIds.map((id, index) => [`user:${id}`, index]));
  const slotOf = (slot: RouteSlot): RouteSlot =>
    slot.status === 'skipped' ? slot : { ...slot, ...(slots.get(refs.get(slot.recipientRef) ?? 0) ?? alone) };
  const { expiresAtMs: _, ...rest } = intent;
  const last = Math.max(
    ...expiries.values(),
    ...(expiries.size === 0 ? [expiryOf(catalog, intent) ?? Infinity] : []),
  );
  return { intent: last === Infinity ? rest : { ...rest, expiresAtMs: last }, contents, slotOf };

  function carrying(content: string, closed?: ClosedWindow): Partial<RouteSlot> {
    if (!contents.includes(content)) contents.push(content);
    return { collapse: { ...closed, content: contents.indexOf(content) } };
  }

  function slotOfWindow({ position, carrier, items, ...row }: WindowRow): Partial<RouteSlot> {
    if (carrier !== null)
      return {
        ...{ status: 'skipped', mark: 'collapsed' },
        problem: `notification ${carrier} carries the newest of its window`,
      };
    // It has expired, and nothing else is in the window.
    if (row.up_to === null || items === null) return alone;
    expiries.set(position, Math.max(...items.map(({ expiresAtMs }) => expiresAtMs ?? Infinity)));
    const [newest] = items as [Item];
    const closed = {
      ...{ window: row.window_id, upTo: row.up_to, at: row.at, count: row.count },
      newest: newest.notificationId,
    };
    if (digest) return carrying(digestOf(items, row.count), closed);
    return newest.notificationId === intent.notificationId
      ? { collapse: closed }
      : carrying(newest.payloadJson, closed);
  }
}

/** Of locks, beside the hash of type and key. */
const LOCK = 0x77_69_6e;

/** $1 type with key. */
const LOCK_WINDOWS = {
  name: 'lock_windows',
  text: `SELECT pg_advisory_xact_lock(${LOCK}, hashtext($1))`,
};

/** The time of delivery of an intent, ms. */
const ASKED_AT = (intent: string) => `coalesce((${intent}.entry ->> 'deliverAtMs')::bigint, 0)`;

/** The route that has closed a window with an intent in it. */
const CARRIER = (window: string, intent: string) => `
         SELECT route.notification_id
           FROM notification.routes AS route
          WHERE collapse IS NOT NULL AND collapse ->> 'window' = ${window}
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
    SELECT (position - 1)::int AS position, carrier.notification_id AS carrier, at, window_id,
           coalesce(count, 0)::int AS count, up_to::float8, items
      FROM (SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::float8 AS at) AS moment
      JOIN notification.intents AS own ON own.notification_id = $1 AND own.status = 'open'
     CROSS JOIN unnest(own.windows) WITH ORDINALITY AS one (window_id, position)
      LEFT JOIN LATERAL (${CARRIER('window_id', 'own')}) AS carrier ON true
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
                AND NOT EXISTS (${CARRIER('window_id', 'intent')})
                AND NOT EXISTS (${EARLIER})
                AND NOT EXISTS (
                    SELECT FROM notification.records AS owner
                     WHERE owner.producer = intent.producer
                       AND owner.idempotency_key IN (intent.idempotency_key, ${forgottenKeySql('intent.idempotency_key')}))
           )
           SELECT (SELECT count(*) FROM member) AS count, (SELECT max(read_number) FROM member) AS up_to,
                  (SELECT json_agg(json_build_object('notificationId', notification_id, 'payloadJson', payload,
                                                     'expiresAtMs', expires_at_ms) ORDER BY nth)
                     FROM (SELECT *, sum(octet_length(payload)) OVER (ORDER BY nth) AS size
                             FROM (SELECT notification_id, expires_at_ms, entry ->> 'payloadJson' AS payload,
                                          row_number() OVER (ORDER BY newest.read_number DESC) AS nth
                                     FROM (SELECT * FROM member ORDER BY read_number DESC LIMIT $3::int) AS newest
                                     JOIN notification.intents AS source USING (notification_id)) AS numbered) AS sized
                    WHERE nth = 1 OR size <= $4::int) AS items) AS member ON carrier.notification_id IS NULL`,
};
