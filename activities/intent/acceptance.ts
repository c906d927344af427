/**
 * Acceptance of an intent: resolve its recipients, then write record and routes in one statement, or find that it
 * is a duplicate, a conflict, or addressed to somebody unknown. Owns the SQL of `records` and of routes' creation.
 *
 * Each step may run twice. What was decided about a stream entry once (its record, or its malformed row) is looked up
 * first and stands, so a repeated attempt never decides otherwise.
 */
import { ApplicationFailure } from '@temporalio/activity';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { AdminNotificationType, Channel } from '../../api/intent/catalog.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import { routeRefOf } from '../../api/ids.ts';
import type { Intent, MalformedCode } from '../../api/intent/entry.ts';
import { rawFieldsOf } from '../../api/intent/entry.ts';
import type { Acceptance, NotificationInput, RouteToPublish } from '../../workflows/intent/contract.ts';
import { MAX_CHILDREN_PER_PARENT } from '../../workflows/intent/contract.ts';
import { createAudienceResolver } from './audience.ts';
import type { ChannelBudgets, RouteSlot } from './audience.ts';
import { materializeRoutes } from './audience.ts';
import { logFieldsOf } from './metrics.ts';
import { recordMalformed } from './malformed.ts';
import type { IntentMetrics } from './metrics.ts';
import { isPostgresRefusal, query } from '../postgres.ts';
import type { UserService } from './user-service.ts';

export interface IntentResources {
  db: Pool;
  userService: UserService;
  log: Logger;
  metrics: IntentMetrics;
  intent: {
    budgets: ChannelBudgets;
    /** How long at least an idempotency key stays reserved, ms. */
    idempotencyTtlMs: number;
    /** Normalised, unique addresses by notification type. */
    adminEmails: Record<AdminNotificationType, readonly string[]>;
  };
}

export type IntentActivities = ReturnType<typeof createIntentActivities>;

export function createIntentActivities(resources: IntentResources) {
  const { db, log, metrics, intent: settings } = resources;
  const resolveAudience = createAudienceResolver({ ...resources, adminEmails: settings.adminEmails });

  return {
    /**
     * Accepts an intent durably, or records durably why not.
     *
     * @throws ApplicationFailure `UserServiceUnavailable`, or of PostgreSQL, all retried; nothing is written.
     */
    async acceptIntent(input: NotificationInput): Promise<Acceptance> {
      const intent = input as Intent;
      const fingerprint = fingerprintOf(intent);
      const decided = await findDecision(db, intent, fingerprint);
      if (decided) return report(intent, decided);

      const audience = await resolveAudience(intent);
      if (audience.kind === 'unknown_user') {
        const message = `User Service does not know the recipient ${audience.userId}`;
        await reject(intent, 'recipient_not_found', message);
        return report(intent, { outcome: 'recipient_not_found' });
      }

      const slots = materializeRoutes(intent.notificationType, audience, settings.budgets);
      try {
        if (await insertRecord(db, intent, fingerprint, slots, settings.idempotencyTtlMs)) {
          countOutcome(intent, 'accepted');
          return report(intent, acceptedWith(slots));
        }
      } catch (error) {
        if (!isPostgresRefusal(error)) throw error;
        await reject(intent, 'unstorable', error.message);
        return report(intent, { outcome: 'unstorable' });
      }
      // Another intent with this key was accepted since the first look.
      const found = await findDecision(db, intent, fingerprint);
      if (!found)
        throw ApplicationFailure.retryable('the record that held the idempotency key has just expired');
      return report(intent, found);
    },

    /** The routes to publish among those at [offset, offset + limit) of a notification, ordered by route id. */
    async listRoutesToPublish(
      notificationId: string,
      offset: number,
      limit: number,
    ): Promise<RouteToPublish[]> {
      const rows = await query<RouteRow>(db, LIST_ROUTES, [notificationId, offset, limit]);
      return routesToPublish(rows);
    },
  };

  async function reject(intent: Intent, failureCode: MalformedCode, failureMessage: string): Promise<void> {
    const { recorded, isNew } = await recordMalformed(db, {
      streamEntryId: intent.notificationId,
      notificationType: intent.notificationType,
      producer: intent.producer,
      idempotencyKey: intent.idempotencyKey,
      failureCode,
      failureMessage,
      rawFields: rawFieldsOf(intent),
    });
    // A repeated attempt finds its own row: counted then.
    if (!isNew) return;
    countOutcome(intent, 'rejected');
    metrics.intentMalformed({
      failure_code: recorded.failureCode,
      notification_type: intent.notificationType,
      producer: intent.producer,
    });
  }

  function countOutcome(intent: Intent, outcome: 'accepted' | 'duplicate' | 'rejected'): void {
    metrics.intentOutcome({
      notification_type: intent.notificationType,
      producer: intent.producer,
      audience_kind: intent.audienceKind,
      outcome,
    });
  }

  async function report(intent: Intent, acceptance: Acceptance): Promise<Acceptance> {
    const fields = logFieldsOf(intent);
    switch (acceptance.outcome) {
      case 'accepted':
        log.info({ ...fields, outcome: 'accepted', routes: acceptance.routeCount }, 'intent accepted');
        break;
      case 'duplicate':
        // It leaves no row, so a repeated attempt counts it again.
        countOutcome(intent, 'duplicate');
        log.info({ ...fields, outcome: 'duplicate', duplicate_of: acceptance.of }, 'intent is a duplicate');
        break;
      case 'idempotency_conflict':
        await reject(
          intent,
          'idempotency_conflict',
          `idempotency_key was used for notification ${acceptance.with} with other content`,
        );
        log.warn(
          {
            ...fields,
            outcome: 'rejected',
            failure_code: acceptance.outcome,
            conflicts_with: acceptance.with,
          },
          'intent rejected',
        );
        break;
      case 'recipient_not_found':
      case 'unstorable':
        log.warn({ ...fields, outcome: 'rejected', failure_code: acceptance.outcome }, 'intent rejected');
    }
    return acceptance;
  }
}

interface RouteRow {
  route_id: string;
  channel: Channel;
  skipped: boolean;
}

function routesToPublish(rows: RouteRow[]): RouteToPublish[] {
  return rows.flatMap(({ route_id, channel, skipped }) =>
    skipped ? [] : [{ routeRef: routeRefOf(route_id), channel }],
  );
}

function acceptedWith(slots: RouteSlot[]): Acceptance {
  return accepted(
    slots.map(({ routeId, channel, status }) => ({
      route_id: routeId,
      channel,
      skipped: status === 'skipped',
    })),
  );
}

/** Histories stay small: a large notification's routes are listed by its batches, not handed over here. */
function accepted(rows: RouteRow[]): Acceptance {
  const routes = routesToPublish(rows);
  return {
    outcome: 'accepted',
    routes: routes.length <= MAX_CHILDREN_PER_PARENT ? routes : [],
    routeCount: rows.length,
    skipped: rows.length - routes.length,
  };
}

/**
 * What was decided about this entry, or about an earlier entry with its idempotency key. An entry id that comes again
 * with other content (a stream that was deleted and filled by hand) is a conflict like any other.
 */
async function findDecision(db: Pool, intent: Intent, fingerprint: string): Promise<Acceptance | undefined> {
  const [found] = await query<{
    /** Both are null beside a failure code. */
    notification_id: string;
    request_fingerprint: string;
    failure_code: 'recipient_not_found' | 'unstorable' | null;
  }>(db, FIND_DECISION, [intent.producer, intent.idempotencyKey, intent.notificationId]);
  if (!found) return undefined;
  if (found.failure_code !== null) return { outcome: found.failure_code };
  if (found.notification_id === intent.notificationId && found.request_fingerprint === fingerprint) {
    return accepted(await query<RouteRow>(db, LIST_ROUTES, [intent.notificationId, 0, null]));
  }
  return found.request_fingerprint === fingerprint
    ? { outcome: 'duplicate', of: found.notification_id }
    : { outcome: 'idempotency_conflict', with: found.notification_id };
}

/** @returns false when the idempotency key is taken. */
async function insertRecord(
  db: Pool,
  intent: Intent,
  fingerprint: string,
  slots: RouteSlot[],
  idempotencyTtlMs: number,
): Promise<boolean> {
  const acceptedAt = Date.now();
  const rows = await query(db, INSERT_RECORD, [
    intent.notificationId,
    intent.notificationType,
    intent.producer,
    intent.audienceKind,
    intent.audienceKind === 'user' ? JSON.stringify(intent.recipientUserIds) : null,
    intent.payloadJson,
    intent.idempotencyKey,
    fingerprint,
    intent.requestId ?? null,
    intent.traceId ?? null,
    new Date(intent.occurredAtMs).toISOString(),
    new Date(acceptedAt).toISOString(),
    new Date(acceptedAt + idempotencyTtlMs).toISOString(),
    slots.map(({ routeId }) => routeId),
    slots.map(({ channel }) => channel),
    slots.map(({ recipientRef }) => recipientRef),
    slots.map(({ status }) => status),
    slots.map(({ maxAttempts }) => maxAttempts),
    slots.map(({ email }) => email),
    slots.map(({ locale }) => locale),
  ]);
  return rows.length === 1;
}

const FIND_DECISION = {
  name: 'find_decision',
  text: `
    SELECT notification_id, request_fingerprint, NULL AS failure_code
      FROM notification.records
     WHERE producer = $1 AND idempotency_key = $2
     UNION ALL
    SELECT notification_id, request_fingerprint, NULL
      FROM notification.records
     WHERE notification_id = $3
     UNION ALL
    SELECT NULL, NULL, failure_code
      FROM notification.malformed_intents
     WHERE stream_entry_id = $3 AND failure_code IN ('recipient_not_found', 'unstorable')
     LIMIT 1`,
};

const LIST_ROUTES = {
  name: 'list_routes',
  text: `
    SELECT route_id, channel, status = 'skipped' AS skipped
      FROM notification.routes
     WHERE notification_id = $1
     ORDER BY route_id
    OFFSET $2 LIMIT $3`,
};

/** One statement is one transaction and one round trip; a taken idempotency key inserts nothing at all. */
const INSERT_RECORD = {
  name: 'insert_record',
  text: `
    WITH record AS (
      INSERT INTO notification.records
        (notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json,
         idempotency_key, request_fingerprint, request_id, trace_id, occurred_at, accepted_at, updated_at,
         idempotency_expires_at)
      VALUES ($1, $2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10, $11, $12, $12, $13)
      ON CONFLICT DO NOTHING
      RETURNING notification_id, accepted_at
    ), slots AS (
      INSERT INTO notification.routes
        (notification_id, route_id, channel, recipient_ref, status, max_attempts, resolved_email, resolved_locale,
         created_at, updated_at, next_attempt_at, skipped_at)
      SELECT record.notification_id, slot.route_id, slot.channel, slot.recipient_ref, slot.status, slot.max_attempts,
             slot.email, slot.locale, record.accepted_at, record.accepted_at,
             CASE slot.status WHEN 'pending' THEN record.accepted_at END,
             CASE slot.status WHEN 'skipped' THEN record.accepted_at END
        FROM record,
             unnest($14::text[], $15::text[], $16::text[], $17::text[], $18::int[], $19::text[], $20::text[])
               AS slot (route_id, channel, recipient_ref, status, max_attempts, email, locale)
    )
    SELECT notification_id FROM record`,
};
