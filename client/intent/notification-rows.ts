/** The statements by which operators read notifications; columns are named as the result is. */
import type { Channel } from '../../api/intent/catalog.ts';
import type { IntentStatus } from '../../workflows/intent/contract.ts';
import type { Candidate, Conditions } from '../lists.ts';

/** `open`: a route will still be tried. `settled`: none will. `dead_letter`: at least one is dead. */
export const NOTIFICATION_STATUSES = ['open', 'settled', 'dead_letter'] as const;
export type NotificationStatus = (typeof NOTIFICATION_STATUSES)[number];

export interface NotificationSummary {
  notificationId: string;
  type: string;
  producer: string;
  audience: string;
  idempotencyKey: string;
  acceptedAt: Date;
  /** Routes by what will happen to them: `open` ones will be tried again. */
  open: number;
  published: number;
  skipped: number;
  deadLettered: number;
}

export interface NotificationRecord {
  type: string;
  producer: string;
  audience: string;
  /** Null for administrators. */
  recipientUserIds: string[] | null;
  idempotencyKey: string;
  payload: unknown;
  requestId: string | null;
  traceId: string | null;
  traceparent: string | null;
  /** From when on it is not worth sending any more; null: never. */
  expiresAt: Date | null;
  occurredAt: Date;
  acceptedAt: Date;
  /** Until then at least, the key is reserved. */
  idempotencyExpiresAt: Date;
}

export interface RouteRow {
  /** May hold an e-mail address: for the operator's eyes, not for logs. */
  routeId: string;
  channel: Channel;
  status: string;
  attempts: number;
  maxAttempts: number;
  nextAttemptAt: Date | null;
  /** When it was published, skipped or dead-lettered. */
  settledAt: Date | null;
  /** Id of the outbound stream's entry; null before a hand-off. */
  entryId: string | null;
  lastClassification: string | null;
  lastMessage: string | null;
  lastErrorAt: Date | null;
}

export interface ReplayRow {
  routeId: string;
  /** 1 for the first replay of the route. */
  generation: number;
  requestedBy: string;
  reason: string | null;
  createdAt: Date;
}

/** Each begins at another index: open and dead routes are few among many records. */
export const STATUS_CONDITIONS: Record<NotificationStatus, Candidate> = {
  open: [
    'notification_id IN (SELECT notification_id FROM notification.routes WHERE next_attempt_at IS NOT NULL)',
  ],
  settled: [
    'NOT EXISTS (SELECT FROM notification.routes WHERE routes.notification_id = record.notification_id AND next_attempt_at IS NOT NULL)',
  ],
  dead_letter: [
    "notification_id IN (SELECT notification_id FROM notification.routes WHERE status = 'dead_letter')",
  ],
};

/** Routes are counted for the rows of the page only. */
export const LIST_NOTIFICATIONS = ({ where, next }: Conditions) => `
  SELECT page.*, totals.*
    FROM (SELECT notification_id AS "notificationId", notification_type AS type, producer, audience_kind AS audience,
                 idempotency_key AS "idempotencyKey", accepted_at AS "acceptedAt"
            FROM notification.records AS record
           ${where}
           ORDER BY accepted_at DESC, notification_id DESC
           LIMIT ${next}) AS page
   CROSS JOIN LATERAL (
         SELECT count(*) FILTER (WHERE status IN ('pending', 'failed'))::int AS open,
                count(*) FILTER (WHERE status = 'published')::int AS published,
                count(*) FILTER (WHERE status = 'skipped')::int AS skipped,
                count(*) FILTER (WHERE status = 'dead_letter')::int AS "deadLettered"
           FROM notification.routes
          WHERE notification_id = page."notificationId") AS totals
   ORDER BY "acceptedAt" DESC, "notificationId" DESC`;

export const SHOW_RECORD = `
  SELECT notification_type AS type, producer, audience_kind AS audience, recipient_user_ids AS "recipientUserIds",
         idempotency_key AS "idempotencyKey", payload_json::json AS payload, request_id AS "requestId",
         trace_id AS "traceId", traceparent, occurred_at AS "occurredAt", expires_at AS "expiresAt", accepted_at AS "acceptedAt",
         idempotency_expires_at AS "idempotencyExpiresAt",
         (SELECT json_object_agg(status, routes)
            FROM (SELECT status, count(*) AS routes
                    FROM notification.routes
                   WHERE notification_id = $1
                   GROUP BY status) AS counts) AS totals
    FROM notification.records
   WHERE notification_id = $1`;

export interface IntentRow {
  status: IntentStatus;
  /** The notification that a duplicate or a conflict is about. */
  other: string | null;
  updatedAt: Date;
}

export const SHOW_INTENT = `
  SELECT status, other, updated_at AS "updatedAt"
    FROM notification.intents
   WHERE notification_id = $1`;

export const SHOW_ROUTES = `
  SELECT route_id AS "routeId", channel, status, attempt_count AS attempts, max_attempts AS "maxAttempts",
         next_attempt_at AS "nextAttemptAt",
         coalesce(published_at, skipped_at, dead_lettered_at) AS "settledAt", entry_id AS "entryId",
         last_error_classification AS "lastClassification", last_error_message AS "lastMessage",
         last_error_at AS "lastErrorAt"
    FROM notification.routes
   WHERE notification_id = $1
   ORDER BY array_position(ARRAY['dead_letter', 'failed', 'pending', 'published', 'skipped'], status), route_id
   LIMIT $2`;

export const SHOW_REPLAYS = `
  SELECT route_id AS "routeId", generation, requested_by AS "requestedBy", reason, created_at AS "createdAt"
    FROM notification.replays
   WHERE notification_id = $1
   ORDER BY created_at DESC, route_id, generation DESC
   LIMIT $2`;
