/**
 * Acceptance of an intent: resolve its recipients, then write record and routes in one transaction, or find that it is a
 * duplicate, a conflict, or addressed to somebody unknown.
 *
 * Each step may run twice. What was decided about a stream entry once (its record, or its row of duplicates or malformed
 * intents) is looked up first and stands, so a repeated attempt never decides otherwise.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { AdminNotificationType } from '../../api/intent/catalog.ts';
import { channelsOf } from '../../api/intent/catalog.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import type { Intent, MalformedCode, MalformedIntent } from '../../api/intent/entry.ts';
import { ACCEPTANCE_DEFERRED } from '../../workflows/failures.ts';
import type { Acceptance, NotificationInput, RouteToPublish } from '../../workflows/intent/contract.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { createAudienceResolver } from './audience.ts';
import type { Audience, ChannelBudgets } from './audience.ts';
import { findDecision, insertRecord, listRoutesToPublish, recordDuplicate } from './decisions.ts';
import type { Decision } from './decisions.ts';
import { logFieldsOf } from './metrics.ts';
import { recordMalformed, refusedIntent, reusedIntent } from './malformed.ts';
import type { IntentMetrics } from './metrics.ts';
import { isPostgresRefusal } from '../postgres.ts';
import { statusOf } from '../workflows.ts';
import type { UserService } from './user-service.ts';
import type { Trouble } from './waiting.ts';
import { forgetWaiting, noteWaiting } from './waiting.ts';

export interface IntentResources {
  db: Pool;
  workflows: WorkflowClient;
  userService: UserService;
  log: Logger;
  metrics: IntentMetrics;
  intent: {
    budgets: ChannelBudgets;
    /** How long at least an idempotency key stays reserved, ms. */
    idempotencyTtlMs: number;
    /** Length to which Redis trims the stream of push events. */
    gatewayMaxLen: number;
    /** Normalised, unique addresses by notification type. */
    adminEmails: Record<AdminNotificationType, readonly string[]>;
    /** See the audience's resolver. */
    maxLookups: number;
    unusableAfterAttempts: number;
  };
}

export type IntentActivities = ReturnType<typeof createIntentActivities>;

export function createIntentActivities(resources: IntentResources) {
  const { db, workflows, log, metrics, intent: settings } = resources;
  const resolveAudience = createAudienceResolver({ ...resources, ...settings });

  return {
    /**
     * Accepts an intent durably, or records durably why not.
     *
     * @throws ApplicationFailure `UserServiceUnavailable`, `AcceptanceDeferred`, or of PostgreSQL, all retried;
     * CancelledFailure. Then nothing is decided.
     */
    async acceptIntent(input: NotificationInput): Promise<Acceptance> {
      const intent = input as Intent;
      const { isLocal, attempt } = Context.current().info;
      const note = (trouble: Omit<Trouble, 'attempt'>) =>
        noteWaiting(db, intent, { ...trouble, attempt: isLocal ? 0 : attempt });
      // Who is here has failed before, or will take a while.
      if (!isLocal) await note({});

      const fingerprint = fingerprintOf(intent);
      const decided = await findDecision(db, intent, fingerprint);
      if (decided) {
        const acceptance = await unlessEarlier(decided, note);
        // A store that fell back may have brought its row back.
        if (acceptance.outcome === 'accepted') await forgetWaiting(db, intent.notificationId);
        return conclude(intent, acceptance);
      }

      const audience = await resolveAudience(intent, note);
      if (audience.kind === 'unknown_user') {
        const message = `User Service does not know the recipient ${audience.userId}`;
        await reject(intent, 'recipient_not_found', message);
        return conclude(intent, { outcome: 'recipient_not_found' });
      }

      Context.current().cancellationSignal.throwIfAborted();
      const { budgets, idempotencyTtlMs } = settings;
      try {
        const accepted = await insertRecord(db, intent, { fingerprint, audience, budgets, idempotencyTtlMs });
        if (accepted) {
          countOutcome(intent, 'accepted');
          reportUnusable(intent, audience);
          warnOfTrimming(intent, audience);
          return conclude(intent, accepted);
        }
      } catch (error) {
        if (!isPostgresRefusal(error)) throw error;
        await reject(intent, 'unstorable', error.message);
        return conclude(intent, { outcome: 'unstorable' });
      }
      // Another intent with this key was accepted, or began to wait, since the first look.
      const found = await findDecision(db, intent, fingerprint);
      if (!found)
        throw ApplicationFailure.retryable('the record that held the idempotency key has just expired');
      return conclude(intent, await unlessEarlier(found, note));
    },

    /** The routes to publish among those at [offset, offset + limit) of a notification, ordered by route id. */
    listRoutesToPublish: (notificationId: string, offset: number, limit: number): Promise<RouteToPublish[]> =>
      listRoutesToPublish(db, notificationId, offset, limit),
  };

  /**
   * Of two intents with one key the earlier is decided first, however long that takes.
   *
   * @throws ApplicationFailure `AcceptanceDeferred` while an earlier intent with the same key waits.
   */
  async function unlessEarlier(
    decision: Decision,
    note: (trouble: Omit<Trouble, 'attempt'>) => Promise<unknown>,
  ): Promise<Acceptance> {
    if (decision.outcome !== 'earlier_waits') return decision;
    const reason = `notification ${decision.notificationId} came earlier with the same idempotency key and waits itself`;
    const status = await statusOf(workflows, notificationWorkflowId(decision.notificationId));
    if (status === 'RUNNING') await note({ reason });
    // Somebody has terminated it, and nobody else would take its row away.
    else await forgetWaiting(db, decision.notificationId);
    throw ApplicationFailure.create({ type: ACCEPTANCE_DEFERRED, message: reason });
  }

  async function reject(
    intent: Intent,
    failureCode: MalformedCode,
    failureMessage: string,
    conflictsWith?: string,
  ): Promise<void> {
    const malformed = refusedIntent(intent, failureCode, failureMessage);
    return keepMalformed(intent, malformed, conflictsWith);
  }

  async function keepMalformed(
    intent: Intent,
    malformed: MalformedIntent,
    conflictsWith?: string,
  ): Promise<void> {
    const { recorded, isNew } = await recordMalformed(db, malformed, conflictsWith);
    // A repeated attempt finds its own row: counted then.
    if (!isNew) return;
    countOutcome(intent, 'rejected');
    metrics.intentMalformed({
      failure_code: recorded.failureCode,
      notification_type: intent.notificationType,
      producer: intent.producer,
    });
  }

  /** Redis cannot tell how far Gateway has read, so this is the only moment to say it. */
  function warnOfTrimming(intent: Intent, audience: Audience): void {
    if (!channelsOf(intent.notificationType, audience.kind).includes('push')) return;
    const pushes = audience.kind === 'user' ? audience.recipients.length : 0;
    if (pushes <= settings.gatewayMaxLen) return;
    log.warn(
      { ...logFieldsOf(intent), pushes, stream_max_len: settings.gatewayMaxLen },
      'more push events than their stream keeps; a Gateway that is behind loses some',
    );
  }

  function countOutcome(intent: Intent, outcome: 'accepted' | 'duplicate' | 'rejected'): void {
    metrics.intentOutcome({
      notification_type: intent.notificationType,
      producer: intent.producer,
      audience_kind: intent.audienceKind,
      outcome,
    });
  }

  function reportUnusable(intent: Intent, audience: Audience): void {
    if (audience.kind !== 'user') return;
    for (const recipient of audience.recipients) {
      if (!('problem' in recipient)) continue;
      metrics.unusableRecipient({ notification_type: intent.notificationType });
      log.warn(
        { ...logFieldsOf(intent), user_id: recipient.userId, reason: recipient.problem },
        'recipient without a usable address',
      );
    }
  }

  /** Says what was decided, where it is not said yet. */
  async function conclude(intent: Intent, acceptance: Acceptance): Promise<Acceptance> {
    const fields = logFieldsOf(intent);
    switch (acceptance.outcome) {
      case 'accepted':
        log.info({ ...fields, outcome: 'accepted', routes: acceptance.routeCount }, 'intent accepted');
        break;
      case 'duplicate':
        // A repeated attempt finds its own row: counted then.
        if (await recordDuplicate(db, intent.notificationId, acceptance.of))
          countOutcome(intent, 'duplicate');
        log.info({ ...fields, outcome: 'duplicate', duplicate_of: acceptance.of }, 'intent is a duplicate');
        break;
      case 'idempotency_conflict':
        await reject(
          intent,
          'idempotency_conflict',
          `idempotency_key was used for notification ${acceptance.with} with other content`,
          acceptance.with,
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
      case 'entry_id_reused':
        await keepMalformed(intent, reusedIntent(intent));
        log.warn({ ...fields, outcome: 'rejected', failure_code: acceptance.outcome }, 'intent rejected');
        break;
      case 'recipient_not_found':
      case 'unstorable':
        log.warn({ ...fields, outcome: 'rejected', failure_code: acceptance.outcome }, 'intent rejected');
    }
    if (acceptance.outcome !== 'accepted') await forgetWaiting(db, intent.notificationId);
    return acceptance;
  }
}
