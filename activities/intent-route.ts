/**
 * Publication of one route: lease, hand-off, and the route's durable transition. Owns the SQL of routes' life and of
 * dead letters.
 *
 * The order is load, hand off (Redis), settle (PostgreSQL); a crash may come between any two of them. The hand-off
 * script remembers per (route, generation) what it appended, so the attempt after a crash finds it and only settles.
 * Transitions compare `updated_at`, so an attempt that slept through its lease cannot overwrite a fresher row.
 */
import { randomUUID } from 'node:crypto';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { Redis } from 'ioredis';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { Channel, PushNotificationType } from '../api/catalog.ts';
import type { EntryField } from '../api/hand-off.ts';
import { channelOf, routeRefOf } from '../api/ids.ts';
import { mailEntryFields } from '../api/mail-command.ts';
import { encodePushPayload, gatewayEntryFields } from '../api/push-event.ts';
import type { PublicationFailure } from '../workflows/failures.ts';
import { ROUTE_DEFERRED } from '../workflows/failures.ts';
import type {
  DeferralReason,
  Publication,
  PublicationFailureDetails,
  PublishResult,
  ReplayOrder,
} from '../workflows/intent-contract.ts';
import { ladderDelayMs } from '../workflows/policies.ts';
import type { Metrics } from './metrics.ts';
import { isPostgresUnavailable, query } from './postgres.ts';
import { handOff, handOffKey, leaseKey } from './route-hand-off.ts';
import type { RouteRow } from './route-row.ts';
import { OPEN_ROUTE, keyOf, loadRoute, logFields } from './route-row.ts';
import { reasonOf } from './reason.ts';

/** Long enough to explain, short enough for a table cell in the Web UI. */
const MAX_MESSAGE_LENGTH = 500;

export interface RouteResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: Metrics;
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

export function createRouteActivities({ db, redis, log, metrics, route: settings }: RouteResources) {
  return {
    /**
     * Makes one attempt to publish a route.
     *
     * @returns how the route stands now; `paused` or `deferred` when nothing was tried or recorded, which spends no
     * budget.
     * @throws ApplicationFailure of the publication failure's type with `PublicationFailureDetails`, after the
     * failure was recorded, while the route has budget left.
     */
    publishRoute: publish,

    /**
     * The same for a retry policy without end: a deferral is thrown as `RouteDeferred`, so that Temporal makes the
     * attempt again and an operator sees what it waits for.
     */
    async publishRouteWhenPossible(publication: Publication): Promise<PublishResult> {
      const result = await publish(publication);
      if (result.status !== 'deferred') return result;
      throw ApplicationFailure.create({
        type: ROUTE_DEFERRED,
        message: `${result.reason}: nothing was spent`,
        ...(result.retryInMs === undefined ? {} : { nextRetryDelay: result.retryInMs }),
      });
    },
  };

  async function publish(publication: Publication): Promise<PublishResult> {
    try {
      return await attempt(await loadRoute(db, publication), orderOf(publication));
    } catch (error) {
      if (!isPostgresUnavailable(error)) throw error;
      return defer(channelOf(publication.routeRef), 'postgres_unavailable');
    }
  }

  function defer(channel: Channel, reason: DeferralReason, retryInMs?: number): PublishResult {
    metrics.routeDeferral({ channel, reason });
    return { status: 'deferred', reason, ...(retryInMs === undefined ? {} : { retryInMs }) };
  }

  /** Somebody else moved the row since it was loaded: look again at once, nothing was spent by this attempt. */
  function deferToFresherRow({ channel }: RouteRow): PublishResult {
    return defer(channel, 'leased', 50);
  }

  async function attempt(route: RouteRow, replay: ReplayOrder | undefined): Promise<PublishResult> {
    if (route.status === 'published' || route.status === 'skipped') return { status: route.status };
    if (route.status === 'dead_letter') return openAgain(route, replay);
    if (route.is_paused) {
      metrics.routeDeferral({ channel: route.channel, reason: 'paused' });
      return { status: 'paused' };
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
      handOff: handOffKey(route.notification_id, route.route_id, route.generation),
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
      return defer(route.channel, 'leased', retryInMs);
    }
    // Whoever closed it settles the row.
    if (handedOff.outcome === 'closed') return deferToFresherRow(route);

    const [published] = await query<{ attempt_count: number }>(db, MARK_PUBLISHED, keyOf(route));
    // Best effort: an unreleased lease expires by itself.
    void handOff.release(redis, keys, lease).catch(() => undefined);
    if (!published) return deferToFresherRow(route);
    metrics.publishAttempt({ ...metricOf(route), result: 'published' });
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

  /** Opens a dead-lettered route once per replay that was ordered; without an order it stays dead. */
  async function openAgain(route: RouteRow, replay: ReplayOrder | undefined): Promise<PublishResult> {
    if (replay === undefined || replay.replayId === route.replay_id) {
      return { status: 'dead_letter', classification: route.last_error_classification ?? 'unknown' };
    }
    // What killed it may have been an answer that did not come back: then it was delivered after all.
    const { notification_id: notificationId, route_id: routeId, generation } = route;
    let deliveredAs: string | undefined;
    try {
      deliveredAs = await handOff.entryOf(redis, handOffKey(notificationId, routeId, generation));
    } catch {
      return defer(route.channel, 'redis_unavailable');
    }
    if (deliveredAs === undefined) await openGeneration(route, replay);
    else {
      await query(db, MARK_FOUND_PUBLISHED, keyOf(route));
      log.warn(
        { ...logFields(route), result: 'published', entry_id: deliveredAs },
        'replay found the route published by its last attempt',
      );
    }
    // Goes on with the row as it is now; the order is carried out, so one that is dead all the same stays so.
    return attempt(await loadRoute(db, { notificationId, routeRef: routeRefOf(routeId) }), undefined);
  }

  /** Does nothing when this replay has opened a generation before, or somebody else moved the row. */
  async function openGeneration(route: RouteRow, replay: ReplayOrder): Promise<void> {
    const [opened] = await query<{ generation: number }>(db, OPEN_GENERATION, [
      ...keyOf(route),
      replay.replayId,
      replay.requestedBy,
      replay.reason ?? null,
    ]);
    if (!opened) return;
    metrics.routeReplay(metricOf(route));
    log.info(
      {
        ...logFields(route),
        result: 'replay',
        generation: opened.generation,
        requested_by: replay.requestedBy,
      },
      'dead-lettered route opened again',
    );
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
    const message = reasonOf(error).slice(0, MAX_MESSAGE_LENGTH);
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
    if (!recorded) return deferToFresherRow(route);

    const fields = {
      ...logFields(route),
      failure_classification: classification,
      attempt: attemptCount,
      max_attempts: route.max_attempts,
      reason: message,
    };
    const failure = { ...metricOf(route), failure_classification: classification };
    metrics.publishAttempt({ ...failure, result: 'failed' });
    if (isLast) {
      metrics.routeDeadLetter(failure);
      log.error({ ...fields, result: 'dead_letter' }, 'route dead-lettered');
      return { status: 'dead_letter', classification };
    }
    metrics.routeRetry(failure);
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

/** The replay that this attempt stands for, if any. */
function orderOf({ replay, originalRunId }: Publication): ReplayOrder | undefined {
  if (replay !== undefined || originalRunId === undefined) return replay;
  const runId = Context.current().info.workflowExecution?.runId;
  return runId === undefined || runId === originalRunId
    ? undefined
    : { replayId: `${runId}/reset`, requestedBy: 'reset' };
}

const metricOf = ({ notification_type, channel }: RouteRow) => ({ notification_type, channel });

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
    'Redis did not take the push event. Check Redis and the gateway stream, then replay the route, or publish a new intent with a new idempotency_key.',
  mail_stream_publish_failed:
    'Redis did not take the e-mail command. Check Redis and the mail stream, then replay the route, or publish a new intent with a new idempotency_key.',
};

// Each statement takes all its times from statement_timestamp(): one instant, so that the wait between a failure and the
// next attempt is exact.
const MARK_PUBLISHED = {
  name: 'mark_published',
  text: `
    UPDATE notification.routes
       SET status = 'published', attempt_count = attempt_count + 1, next_attempt_at = NULL,
           published_at = statement_timestamp(), updated_at = statement_timestamp()
    ${OPEN_ROUTE}
    RETURNING attempt_count`,
};

const MARK_FOUND_PUBLISHED = {
  name: 'mark_found_published',
  text: `
    UPDATE notification.routes
       SET status = 'published', dead_lettered_at = NULL, published_at = statement_timestamp(),
           updated_at = statement_timestamp()
     WHERE notification_id = $1 AND route_id = $2 AND updated_at = $3::timestamptz AND status = 'dead_letter'`,
};

const OPEN_GENERATION = {
  name: 'open_generation',
  text: `
    WITH opened AS (
      UPDATE notification.routes AS route
         SET status = 'pending', attempt_count = 0, next_attempt_at = statement_timestamp(), dead_lettered_at = NULL,
             updated_at = statement_timestamp()
       WHERE notification_id = $1 AND route_id = $2 AND updated_at = $3::timestamptz AND status = 'dead_letter'
         AND NOT EXISTS (
             SELECT 1
               FROM notification.replays
              WHERE replays.notification_id = $1 AND replays.route_id = $2 AND replay_id = $4)
      RETURNING notification_id, route_id
    )
    INSERT INTO notification.replays
      (notification_id, route_id, generation, replay_id, requested_by, reason, created_at)
    SELECT notification_id, route_id,
           1 + (SELECT count(*)
                  FROM notification.replays
                 WHERE replays.notification_id = $1 AND replays.route_id = $2),
           $4, $5, $6, statement_timestamp()
      FROM opened
    RETURNING generation`,
};

const RECORD_FAILURE = {
  name: 'record_failure',
  text: `
    WITH failed AS (
      UPDATE notification.routes
         SET status = CASE WHEN $4::boolean THEN 'dead_letter' ELSE 'failed' END,
             attempt_count = attempt_count + 1,
             next_attempt_at = CASE WHEN $4 THEN NULL ELSE statement_timestamp() + $5::int * interval '1 millisecond' END,
             dead_lettered_at = CASE WHEN $4 THEN statement_timestamp() END,
             last_error_classification = $6, last_error_message = $7, last_error_at = statement_timestamp(),
             updated_at = statement_timestamp()
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
