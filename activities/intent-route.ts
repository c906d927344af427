/**
 * Publication of one route: lease, hand-off, and the route's durable transition. Owns the SQL of routes' life and of
 * dead letters.
 *
 * The order is load, hand off (Redis), settle (PostgreSQL); a crash may come between any two of them. The hand-off
 * script remembers per (route, generation) what it appended, so the attempt after a crash finds it and only settles.
 * Transitions compare `updated_at`, so an attempt that slept through its lease cannot overwrite a fresher row.
 */
import { randomUUID } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type {
  AudienceKind,
  Channel,
  NotificationType,
  Producer,
  PushNotificationType,
} from '../api/catalog.ts';
import type { EntryField } from '../api/hand-off.ts';
import { hashOfRouteRef, routeRefOf } from '../api/ids.ts';
import type { Locale } from '../api/mail-command.ts';
import { mailEntryFields } from '../api/mail-command.ts';
import { encodePushPayload, gatewayEntryFields } from '../api/push-event.ts';
import type { PublicationFailure } from '../workflows/failures.ts';
import type { PublicationFailureDetails, PublishResult, RouteInput } from '../workflows/intent-contract.ts';
import { ladderDelayMs } from '../workflows/policies.ts';
import { handOff, handOffKey, leaseKey } from './route-hand-off.ts';
import { logFieldsOf } from './intent-materialization.ts';
import { isPostgresUnavailable, query } from './postgres.ts';

/** Long enough to explain, short enough for a table cell in the Web UI. */
const MAX_MESSAGE_LENGTH = 500;

export interface RouteResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  route: {
    gatewayStream: string;
    /** Approximate length to which Redis trims the gateway stream. */
    gatewayMaxLen: number;
    mailStream: string;
    backoffMinMs: number;
    backoffMaxMs: number;
    leaseTtlMs: number;
  };
}

export type RouteActivities = ReturnType<typeof createRouteActivities>;

export function createRouteActivities({ db, redis, log, route: settings }: RouteResources) {
  return {
    /**
     * Makes one attempt to publish a route.
     *
     * @returns how the route stands now; `deferred` when nothing could be tried or recorded, which spends no budget.
     * @throws ApplicationFailure of the publication failure's type with `PublicationFailureDetails`, after the
     * failure was recorded, while the route has budget left.
     */
    async publishRoute(input: RouteInput): Promise<PublishResult> {
      try {
        return await attempt(input);
      } catch (error) {
        if (isPostgresUnavailable(error)) return { status: 'deferred', reason: 'postgres_unavailable' };
        throw error;
      }
    },
  };

  async function attempt(input: RouteInput): Promise<PublishResult> {
    const route = await loadRoute(db, input);
    if (route.status === 'published' || route.status === 'skipped') return { status: route.status };
    if (route.status === 'dead_letter') {
      return { status: 'dead_letter', classification: route.last_error_classification ?? 'unknown' };
    }

    let entry: OutboundEntry;
    try {
      entry = encode(route);
    } catch (error) {
      return recordFailure(route, 'payload_encoding_failed', error);
    }

    const lease = { token: randomUUID(), ttlMs: settings.leaseTtlMs };
    const keys = {
      lease: leaseKey(route.notification_id, route.route_id),
      handOff: handOffKey(route.notification_id, route.route_id, 0),
    };
    let handedOff;
    try {
      handedOff = await handOff.append(redis, keys, lease, entry);
    } catch (error) {
      return recordFailure(route, entry.failure, error);
    }
    if (handedOff.outcome === 'leased') {
      // Never longer than our own leases last, whatever somebody else has put there.
      const retryInMs = Math.min(settings.leaseTtlMs, Math.max(50, handedOff.expiresInMs));
      return { status: 'deferred', reason: 'leased', retryInMs };
    }

    const [published] = await query<{ attempt_count: number }>(db, MARK_PUBLISHED, keyOf(route));
    // Best effort: an unreleased lease expires by itself.
    void handOff.release(redis, keys, lease).catch(() => undefined);
    if (!published) return deferToFresherRow();
    log.info(
      {
        ...logFields(route),
        result: 'published',
        entry_id: handedOff.entryId,
        attempt: published.attempt_count,
      },
      'route published',
    );
    return { status: 'published' };
  }

  function encode(route: RouteRow): OutboundEntry {
    const handOffOf = {
      notificationId: route.notification_id,
      routeId: route.route_id,
      requestId: route.request_id,
      traceId: route.trace_id,
    };
    if (route.channel === 'push') {
      // The catalog has a table for each type with a push channel; acceptance skips the others.
      const type = route.notification_type as PushNotificationType;
      return {
        stream: settings.gatewayStream,
        maxLen: settings.gatewayMaxLen,
        failure: 'gateway_stream_publish_failed',
        fields: gatewayEntryFields({
          ...handOffOf,
          notificationType: type,
          recipientRef: route.recipient_ref,
          payloadBytes: encodePushPayload(type, JSON.parse(route.payload_json) as Record<string, unknown>),
        }),
      };
    }
    return {
      stream: settings.mailStream,
      failure: 'mail_stream_publish_failed',
      fields: mailEntryFields({
        ...handOffOf,
        notificationType: route.notification_type,
        email: route.resolved_email ?? '',
        locale: route.resolved_locale ?? 'en',
        acceptedAtMs: Number(route.accepted_at_ms),
        payloadJson: route.payload_json,
      }),
    };
  }

  /** Writes the failed attempt down; the route is dead-lettered when it was the last one of its budget. */
  async function recordFailure(
    route: RouteRow,
    classification: PublicationFailure,
    error: unknown,
  ): Promise<PublishResult> {
    const message = (error instanceof Error ? error.message : String(error)).slice(0, MAX_MESSAGE_LENGTH);
    const attemptCount = route.attempt_count + 1;
    const isLast = attemptCount >= route.max_attempts;
    const delayMs = ladderDelayMs(attemptCount, settings.backoffMinMs, settings.backoffMaxMs);
    const [recorded] = await query<{ next_attempt_at_ms: string | null }>(db, RECORD_FAILURE, [
      ...keyOf(route),
      isLast,
      delayMs,
      classification,
      message,
      RECOVERY_HINTS[classification],
    ]);
    if (!recorded) return deferToFresherRow();

    const fields = {
      ...logFields(route),
      failure_classification: classification,
      attempt: attemptCount,
      max_attempts: route.max_attempts,
      reason: message,
    };
    if (isLast) {
      log.error({ ...fields, result: 'dead_letter' }, 'route dead-lettered');
      return { status: 'dead_letter', classification };
    }
    log.warn(
      { ...fields, result: 'retry', retry_in_ms: delayMs },
      'route publication failed, retry scheduled',
    );
    const details: PublicationFailureDetails = {
      attemptCount,
      maxAttempts: route.max_attempts,
      nextAttemptAtMs: Number(recorded.next_attempt_at_ms),
      backoffMinMs: settings.backoffMinMs,
      backoffMaxMs: settings.backoffMaxMs,
    };
    throw ApplicationFailure.create({
      type: classification,
      message: `attempt ${attemptCount} of ${route.max_attempts}: ${message}`,
      details: [details],
      nextRetryDelay: delayMs,
    });
  }
}

/** Somebody else moved the row since it was loaded: look again at once, nothing was spent by this attempt. */
function deferToFresherRow(): PublishResult {
  return { status: 'deferred', reason: 'leased', retryInMs: 50 };
}

interface OutboundEntry {
  stream: string;
  maxLen?: number;
  fields: EntryField[];
  /** How a failure to append this entry is classified. */
  failure: PublicationFailure;
}

/** What an operator can do about a dead letter, by what killed it. */
const RECOVERY_HINTS: Record<PublicationFailure, string> = {
  payload_encoding_failed:
    'The stored payload does not fit the outbound contract. Correct the producer, then publish a new intent with a new idempotency_key.',
  gateway_stream_publish_failed:
    'Redis did not take the push event. Check Redis and the gateway stream, then publish a new intent with a new idempotency_key.',
  mail_stream_publish_failed:
    'Redis did not take the e-mail command. Check Redis and the mail stream, then publish a new intent with a new idempotency_key.',
};

interface RouteRow {
  notification_id: string;
  route_id: string;
  channel: Channel;
  recipient_ref: string;
  status: 'pending' | 'published' | 'failed' | 'dead_letter' | 'skipped';
  attempt_count: number;
  max_attempts: number;
  resolved_email: string | null;
  resolved_locale: Locale | null;
  last_error_classification: string | null;
  /** `updated_at` to the microsecond, for optimistic concurrency. */
  version: string;
  notification_type: NotificationType;
  producer: Producer;
  audience_kind: AudienceKind;
  idempotency_key: string;
  payload_json: string;
  request_id: string | null;
  trace_id: string | null;
  accepted_at_ms: string;
}

const keyOf = ({ notification_id, route_id, version }: RouteRow): string[] => [
  notification_id,
  route_id,
  version,
];

function logFields(route: RouteRow): Record<string, string> {
  return {
    ...logFieldsOf({
      notificationId: route.notification_id,
      notificationType: route.notification_type,
      producer: route.producer,
      audienceKind: route.audience_kind,
      idempotencyKey: route.idempotency_key,
      ...(route.request_id === null ? {} : { requestId: route.request_id }),
      ...(route.trace_id === null ? {} : { traceId: route.trace_id }),
    }),
    // As in workflow ids: the route id of an administrator is an address.
    route_id: routeRefOf(route.route_id),
    channel: route.channel,
  };
}

async function loadRoute(db: Pool, { notificationId, routeRef }: RouteInput): Promise<RouteRow> {
  const hash = hashOfRouteRef(routeRef);
  const [route] = await (hash === undefined
    ? query<RouteRow>(db, LOAD_ROUTE, [notificationId, routeRef])
    : query<RouteRow>(db, LOAD_HASHED_ROUTE, [notificationId, hash]));
  if (!route) {
    throw ApplicationFailure.nonRetryable(
      `notification ${notificationId} has no route ${routeRef}; retention may have removed it`,
      'RouteNotFound',
    );
  }
  return route;
}

const ROUTE_COLUMNS = `
    SELECT notification_id, route_id, channel, recipient_ref, status, attempt_count, max_attempts, resolved_email,
           resolved_locale, last_error_classification, route.updated_at::text AS version, notification_type, producer,
           audience_kind, idempotency_key, payload_json, request_id, trace_id,
           (extract(epoch FROM accepted_at) * 1000)::bigint AS accepted_at_ms
      FROM notification.routes AS route
      JOIN notification.records USING (notification_id)`;

const LOAD_ROUTE = {
  name: 'load_route',
  text: `${ROUTE_COLUMNS}
     WHERE notification_id = $1 AND route_id = $2`,
};

/** The second condition is the predicate of routes_hashed_ref_idx, so that the index serves. */
const LOAD_HASHED_ROUTE = {
  name: 'load_hashed_route',
  text: `${ROUTE_COLUMNS}
     WHERE notification_id = $1 AND md5(route_id) = $2 AND route_id !~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$'`,
};

const OPEN_ROUTE = `
     WHERE notification_id = $1 AND route_id = $2 AND updated_at = $3::timestamptz AND status IN ('pending', 'failed')`;

const MARK_PUBLISHED = {
  name: 'mark_published',
  text: `
    UPDATE notification.routes
       SET status = 'published', attempt_count = attempt_count + 1, next_attempt_at = NULL,
           published_at = clock_timestamp(), updated_at = clock_timestamp()
    ${OPEN_ROUTE}
    RETURNING attempt_count`,
};

const RECORD_FAILURE = {
  name: 'record_failure',
  text: `
    WITH failed AS (
      UPDATE notification.routes
         SET status = CASE WHEN $4::boolean THEN 'dead_letter' ELSE 'failed' END,
             attempt_count = attempt_count + 1,
             next_attempt_at = CASE WHEN $4 THEN NULL ELSE clock_timestamp() + $5::int * interval '1 millisecond' END,
             dead_lettered_at = CASE WHEN $4 THEN clock_timestamp() END,
             last_error_classification = $6, last_error_message = $7, last_error_at = clock_timestamp(),
             updated_at = clock_timestamp()
      ${OPEN_ROUTE}
      RETURNING *
    ), dead_letter AS (
      INSERT INTO notification.dead_letters
        (notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
         failure_message, recovery_hint, created_at)
      SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, last_error_classification,
             last_error_message, $8, dead_lettered_at
        FROM failed
       WHERE status = 'dead_letter'
      ON CONFLICT (notification_id, route_id) DO NOTHING
    )
    SELECT (extract(epoch FROM next_attempt_at) * 1000)::bigint AS next_attempt_at_ms FROM failed`,
};
