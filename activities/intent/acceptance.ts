/**
 * Acceptance of intents: resolve their recipients, then write records and routes in one transaction, or find that one is a
 * duplicate, a conflict, or addressed to somebody unknown. One intent is a list of one.
 *
 * Each step may run twice. What was decided about a stream entry once (its record, or its row of duplicates, of malformed
 * or of cancelled intents) stands, and a repeated attempt never decides otherwise: nothing is inserted where there is such a
 * row, and it is looked for before anything is refused.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool } from 'pg';
import type { Logger } from 'pino';
import type { AdminNotificationType } from '../../api/intent/catalog.ts';
import { channelsOf } from '../../api/intent/catalog.ts';
import { searchableKey } from '../../api/ids.ts';
import { fingerprintOf } from '../../api/intent/fingerprint.ts';
import type { Intent, MalformedCode, MalformedIntent } from '../../api/intent/entry.ts';
import { ACCEPTANCE_DEFERRED } from '../../workflows/failures.ts';
import type { Acceptance, NotificationInput, RouteToPublish } from '../../workflows/intent/contract.ts';
import { isListed } from '../../workflows/intent/contract.ts';
import type { FirstAttemptsOfMany } from './routes.ts';
import { createAudienceResolver } from './audience.ts';
import type { Audience, ChannelBudgets } from './audience.ts';
import type { AcceptedNow, Candidate, TakenIntent, ToInsert } from './decisions.ts';
import {
  conflictText,
  findDecisions,
  insertRecords,
  listRoutesToPublish,
  recordDuplicates,
} from './decisions.ts';
import { logFieldsOf } from './metrics.ts';
import type { InHand } from './in-hand.ts';
import { keyOf } from './key-order.ts';
import { recordMalformed, refusedIntent, reusedIntent } from './malformed.ts';
import type { IntentMetrics } from './metrics.ts';
import { isPostgresRefusal } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { Outcomes } from './outcomes.ts';
import { isGivenUp } from './owner.ts';
import type { UserService } from './user-service.ts';
import type { Trouble } from './waiting.ts';
import { forgetWaiting, noteWaiting } from './waiting.ts';

/** Attempts that wait for an earlier intent of which nothing is known: some eight minutes, and a reader needs seconds. */
const ATTEMPTS_BEHIND_UNKNOWN = 20;

/** Recipients whose lookups cost less than to look whether they are needed. */
const FEW_RECIPIENTS = 10;
/** After one that had been decided: a producer that sends again sends many again. */
const DOUBTS = 100;

export interface IntentResources {
  db: Pool;
  workflows: WorkflowClient;
  userService: UserService;
  log: Logger;
  metrics: IntentMetrics;
  outcomes: Outcomes;
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

/** How an intent was decided, or why that could not be done now. */
export type Decided = AcceptedNow | { acceptance: Acceptance } | { error: unknown };

export interface AcceptanceOptions {
  /** Of the activity; 0 for the first try within the workflow task. */
  attempt: number;
  /** Ends the lookups: who is not found by then is left to somebody else. */
  patience?: Promise<unknown>;
}

/** The way in which all intents of this process are accepted, one or many together. */
export type AcceptIntents = ReturnType<typeof createAcceptance>;

export function createAcceptance(resources: IntentResources) {
  const { db, workflows, log, metrics, outcomes, intent: settings } = resources;
  const resolveAudience = createAudienceResolver({ ...resources, ...settings });
  /** So many first tries look for earlier decisions, since one has just met its own. */
  let doubts = 0;

  /**
   * Accepts intents durably, or records durably why not: each for itself, and of two with one key the first before the
   * second. They are in the order of the stream.
   *
   * @returns how each ended, in the same order. An intent's own error is ApplicationFailure `UserServiceUnavailable` or
   * `AcceptanceDeferred`; nothing is decided about it then.
   * @throws ApplicationFailure of PostgreSQL, CancelledFailure: some may be decided then, and are found so by the next
   * attempt.
   */
  return async (intents: readonly TakenIntent[], options: AcceptanceOptions): Promise<Decided[]> => {
    const candidates = intents.map((intent) => candidateOf(intent, options));
    const decided = new Map<string, Decided>();
    const isOpen = ({ intent }: Candidate) => !decided.has(intent.notificationId);
    const ids = new Set(intents.map(({ notificationId }) => notificationId));
    const looksFirst = isDoubtful(intents, options);
    if (looksFirst) await settle(candidates, decided, options, ids);

    const resolved = await Promise.all(
      candidates.filter(isOpen).map((candidate) => resolve(candidate, options)),
    );
    Context.current().cancellationSignal.throwIfAborted();
    const unresolved = resolved.filter((item) => 'why' in item);
    if (!looksFirst) await settle(unresolved, decided, options, ids);
    await Promise.all(unresolved.filter(isOpen).map((item) => giveUp(item, decided)));
    // Who could not be resolved waits by a row, if PostgreSQL took it; later ones with the same key wait either way.
    const behind = behindUndecided(resolved, decided);
    const found = resolved.filter((item) => 'audience' in item);
    await insert(
      found.filter(({ intent }) => !behind.has(intent.notificationId)),
      decided,
    );
    const taken = found.filter(isOpen);
    if (taken.length > 0) doubts = DOUBTS;
    await settle(taken, decided, options);
    return intents.map(({ notificationId }) => {
      const earlierId = behind.get(notificationId);
      return decided.get(notificationId) ?? { error: earlierId ? deferral(earlierId) : expired() };
    });
  };

  /**
   * Whether some may be decided already. What is tried first is new but for a few, which the insertion leaves alone; where
   * those are many, or have many recipients, looking comes before the lookups.
   */
  function isDoubtful(intents: readonly TakenIntent[], { attempt }: AcceptanceOptions): boolean {
    if (attempt > 0) return true;
    const isInDoubt = doubts > 0;
    doubts = Math.max(0, doubts - intents.length);
    return isInDoubt || intents.some(({ recipientUserIds }) => recipientUserIds.length > FEW_RECIPIENTS);
  }

  /**
   * Settles what is decided already.
   *
   * @param underWay earlier intents that are decided in the same breath: a later one does not wait for them.
   */
  async function settle(
    candidates: readonly Candidate[],
    decided: Map<string, Decided>,
    options: AcceptanceOptions,
    underWay: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const found = await findDecisions(db, candidates);
    const concluded: Conclusion[] = [];
    for (const candidate of candidates) {
      const { intent } = candidate;
      const decision = found.get(intent.notificationId);
      if (decision?.outcome === 'earlier_waits') {
        if (underWay.has(decision.notificationId)) continue;
        decided.set(intent.notificationId, { error: await deferToEarlier(intent, decision, options) });
      } else if (decision?.outcome === 'earlier_unknown') {
        if (underWay.has(decision.notificationId)) continue;
        const { notificationId: earlierId } = decision;
        if (await isGivenUp(workflows, { notificationId: earlierId, slice: undefined }))
          candidate.intent = alone(intent);
        else decided.set(intent.notificationId, { error: await deferToUnknown(intent, earlierId, options) });
      } else if (decision) {
        concluded.push({ intent, acceptance: decision });
        decided.set(intent.notificationId, { acceptance: decision });
      }
    }
    await conclude(concluded);
    // A store that fell back may have brought its row back.
    await forgetWaiting(
      db,
      concluded.map(({ intent }) => intent.notificationId),
    );
  }

  async function resolve(
    candidate: Candidate,
    { attempt, patience }: AcceptanceOptions,
  ): Promise<ToInsert | Unresolved> {
    const { intent } = candidate;
    const note = (trouble: Omit<Trouble, 'attempt'>) => noteWaiting(db, intent, { ...trouble, attempt });
    try {
      const audience = await resolveAudience(intent, note, patience);
      if (audience.kind !== 'unknown_user') return { ...candidate, audience };
      return { ...candidate, why: { unknownUser: audience.userId } };
    } catch (error) {
      return { ...candidate, why: { error } };
    }
  }

  /** For good where a recipient does not exist; otherwise its next attempt may find all of them. */
  async function giveUp({ intent, why }: Unresolved, decided: Map<string, Decided>): Promise<void> {
    if ('error' in why) {
      decided.set(intent.notificationId, why);
      return;
    }
    try {
      // By its position: only the fields of the entry hold the id, and they are where a user is forgotten.
      const position = intent.recipientUserIds.indexOf(why.unknownUser);
      const message = `recipient_user_ids_json names a user whom User Service does not know, at position ${position}`;
      await refuse(intent, 'recipient_not_found', message, decided);
    } catch (error) {
      decided.set(intent.notificationId, { error });
    }
  }

  /** Those whose key is taken stay undecided. What PostgreSQL refuses of many it is given one by one. */
  async function insert(items: readonly ToInsert[], decided: Map<string, Decided>): Promise<void> {
    let accepted;
    try {
      accepted = await insertRecords(db, outcomes, items, settings);
    } catch (error) {
      if (!isPostgresRefusal(error)) throw error;
      if (items.length > 1) for (const item of items) await insert([item], decided);
      else await refuse(items[0]!.intent, 'unstorable', error.message, decided);
      return;
    }
    const concluded = items.flatMap(({ intent, audience }): Conclusion[] => {
      const now = accepted.get(intent.notificationId);
      if (!now) return [];
      decided.set(intent.notificationId, now);
      countOutcome(intent, 'accepted');
      reportUnusable(intent, audience);
      warnOfTrimming(intent, audience);
      return [{ intent, acceptance: now.acceptance }];
    });
    await conclude(concluded);
  }

  async function refuse(
    intent: TakenIntent,
    outcome: 'recipient_not_found' | 'unstorable',
    message: string,
    decided: Map<string, Decided>,
  ): Promise<void> {
    await reject(intent, outcome, message);
    await conclude([{ intent, acceptance: { outcome } }]);
    await forgetWaiting(db, [intent.notificationId]);
    decided.set(intent.notificationId, { acceptance: { outcome } });
  }

  /**
   * Of two intents with one key the earlier is decided first, however long that takes.
   *
   * @returns ApplicationFailure `AcceptanceDeferred`.
   */
  async function deferToEarlier(
    intent: TakenIntent,
    earlier: { notificationId: string; slice: string | null },
    { attempt }: AcceptanceOptions,
  ): Promise<ApplicationFailure> {
    const failure = deferral(earlier.notificationId);
    // Nobody else would take its row away.
    if (await isGivenUp(workflows, earlier)) await forgetWaiting(db, [earlier.notificationId]);
    else await noteWaiting(db, intent, { attempt, reason: failure.message });
    return failure;
  }

  /** It was decided, and PostgreSQL has fallen back since: it is read again, and decided as it was. */
  async function deferToUnknown(
    intent: TakenIntent,
    earlierId: string,
    { attempt }: AcceptanceOptions,
  ): Promise<ApplicationFailure> {
    const message = `notification ${earlierId} came earlier with the same idempotency key, and PostgreSQL does not know it any more`;
    await noteWaiting(db, intent, { attempt, reason: message });
    return ApplicationFailure.create({ type: ACCEPTANCE_DEFERRED, message });
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
    const { recorded, isNew } = await recordMalformed(db, outcomes, malformed, conflictsWith);
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
        { ...logFieldsOf(intent), user_id: searchableKey(recipient.userId), reason: recipient.problem },
        'recipient without a usable address',
      );
    }
  }

  /** Says what was decided, where it is not said yet. */
  async function conclude(concluded: readonly Conclusion[]): Promise<void> {
    const duplicates = concluded.flatMap(({ intent, acceptance }) =>
      acceptance.outcome === 'duplicate' ? [{ intent, of: acceptance.of }] : [],
    );
    const newDuplicates = await recordDuplicates(db, outcomes, duplicates);
    for (const { intent, acceptance } of concluded) {
      const fields = logFieldsOf(intent);
      switch (acceptance.outcome) {
        case 'accepted':
          log.info({ ...fields, outcome: 'accepted', routes: acceptance.routeCount }, 'intent accepted');
          break;
        case 'duplicate':
          // A repeated attempt finds its own row: counted then.
          if (newDuplicates.has(intent.notificationId)) countOutcome(intent, 'duplicate');
          log.info({ ...fields, outcome: 'duplicate', duplicate_of: acceptance.of }, 'intent is a duplicate');
          break;
        case 'idempotency_conflict':
          await reject(
            intent,
            'idempotency_conflict',
            await conflictText(db, intent, acceptance.with),
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
        case 'cancelled':
          log.info({ ...fields, outcome: 'cancelled' }, 'intent was cancelled before');
          break;
        case 'recipient_not_found':
        case 'unstorable':
          log.warn({ ...fields, outcome: 'rejected', failure_code: acceptance.outcome }, 'intent rejected');
      }
    }
  }
}

/** Retention may be why nothing is known of the earlier one. */
const candidateOf = (intent: TakenIntent, { attempt }: AcceptanceOptions): Candidate => ({
  intent: attempt < ATTEMPTS_BEHIND_UNKNOWN ? intent : alone(intent),
  fingerprint: fingerprintOf(intent),
});

/** With nobody before it. */
function alone(intent: TakenIntent): TakenIntent {
  const { earlier: _earlier, ...rest } = intent;
  return rest;
}

/** An intent whose recipients could not all be found. */
interface Unresolved extends Candidate {
  why: { unknownUser: string } | { error: unknown };
}

/** @returns those that come after one with their key that nothing is decided about, and which that is. */
function behindUndecided(
  resolved: readonly Candidate[],
  decided: ReadonlyMap<string, Decided>,
): Map<string, string> {
  const undecided = new Map<string, string>();
  const behind = new Map<string, string>();
  for (const { intent } of resolved) {
    const { notificationId } = intent;
    const key = keyOf(intent);
    const earlierId = undecided.get(key);
    const now = decided.get(notificationId);
    if (earlierId !== undefined) behind.set(notificationId, earlierId);
    else if (now && 'error' in now) undecided.set(key, notificationId);
  }
  return behind;
}

interface Conclusion {
  intent: TakenIntent;
  acceptance: Acceptance;
}

const deferral = (earlierId: string): ApplicationFailure =>
  ApplicationFailure.create({
    type: ACCEPTANCE_DEFERRED,
    message: `notification ${earlierId} came earlier with the same idempotency key and waits itself`,
  });

const expired = (): ApplicationFailure =>
  ApplicationFailure.retryable('the record that held the idempotency key has just expired');

/** Accepts an intent and makes the first attempts of its routes in one step. */
export type FirstTry = ReturnType<typeof createFirstTry>;

export function createFirstTry(
  { log }: Pick<IntentResources, 'log'>,
  acceptIntents: AcceptIntents,
  firstAttempts: FirstAttemptsOfMany,
) {
  /**
   * @param patience ends the lookups.
   * @returns how it was accepted, with its first attempts. Without them, when they could not be made: nothing is spent
   * then, and its workflow goes on from there.
   * @throws ApplicationFailure as `acceptIntent`.
   */
  return async (intent: TakenIntent, patience?: Promise<unknown>): Promise<Acceptance> => {
    const options = { attempt: 0, ...(patience ? { patience } : {}) };
    const begun = await firstAttempts.begin();
    const decided = await acceptOne(acceptIntents, intent, options);
    const { acceptance } = decided;
    if (acceptance.outcome !== 'accepted' || !isListed(acceptance)) return acceptance;
    const { notificationId } = intent;
    const { routeCount } = acceptance;
    try {
      const first =
        'fresh' in decided
          ? await firstAttempts.make(decided.fresh(), begun)
          : await firstAttempts.makeOfSlice({ notificationId, offset: 0, limit: routeCount });
      return { ...acceptance, routes: [], first };
    } catch (error) {
      Context.current().cancellationSignal.throwIfAborted();
      log.warn(
        { ...logFieldsOf(intent), reason: reasonOf(error) },
        'first attempts not made with acceptance',
      );
      return acceptance;
    }
  };
}

async function acceptOne(
  acceptIntents: AcceptIntents,
  intent: TakenIntent,
  options: AcceptanceOptions,
): Promise<Exclude<Decided, { error: unknown }>> {
  const [decided] = (await acceptIntents([intent], options)) as [Decided];
  if ('error' in decided) throw decided.error;
  return decided;
}

export type IntentActivities = ReturnType<typeof createIntentActivities>;

export function createIntentActivities(
  { db, inHand }: Pick<IntentResources, 'db'> & { inHand: InHand },
  acceptIntents: AcceptIntents,
  firstTry: FirstTry,
) {
  return {
    /**
     * Accepts an intent durably, or records durably why not. The first try of a notification that makes first attempts
     * itself makes them, too: each local activity more costs an activation of the workflow.
     *
     * @throws ApplicationFailure `UserServiceUnavailable`, `AcceptanceDeferred`, or of PostgreSQL, all retried;
     * CancelledFailure. Then nothing is decided.
     */
    async acceptIntent(input: NotificationInput): Promise<Acceptance> {
      const intent = input as TakenIntent;
      const { isLocal, attempt } = Context.current().info;
      try {
        if (isLocal && input.dispatch === 'on_failure') return await firstTry(intent);
        const options = { attempt: isLocal ? 0 : attempt };
        // Who is here has failed before, or will take a while.
        if (!isLocal) await noteWaiting(db, intent, options);
        const { acceptance } = await acceptOne(acceptIntents, intent, options);
        if (acceptance.outcome === 'accepted') inHand.add(intent.notificationId, acceptance.routes.length);
        return acceptance;
      } finally {
        inHand.done(intent.notificationId);
      }
    },

    /** The routes to publish among those at [offset, offset + limit) of a notification, ordered by route id. */
    listRoutesToPublish: (notificationId: string, offset: number, limit: number): Promise<RouteToPublish[]> =>
      listRoutesToPublish(db, notificationId, offset, limit),
  };
}
