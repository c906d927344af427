/**
 * Acceptance of intents: resolve their recipients, then write records and routes in one transaction, or find that one is a
 * duplicate, a conflict, or addressed to an unknown user. One intent is a list of one.
 *
 * Each step may run twice. The status of an intent's row is its decision: every statement that decides locks the row and
 * leaves it alone when it is not open any more.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import { channelsOf } from '../../api/intent/catalog.ts';
import { searchableKey } from '../../api/ids.ts';
import type { Intent, MalformedCode } from '../../api/intent/entry.ts';
import { ACCEPTANCE_DEFERRED } from '../../workflows/failures.ts';
import type { Acceptance, NotificationInput } from '../../workflows/intent/contract.ts';
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import { createAudienceResolver } from './audience.ts';
import type { Audience } from './audience.ts';
import type { AcceptedNow, ToInsert } from './decisions.ts';
import { conflictText, findIntents, insertRecords, insertedTogether } from './decisions.ts';
import { endIntents, giveUp, isGivenUp, noteTrouble } from './entries.ts';
import type { Trouble } from './entries.ts';
import { logFieldsOf } from './metrics.ts';
import { refuse, refusedIntent } from './malformed.ts';
import { saveIsolated } from '../postgres.ts';
import { statusOf } from '../workflows.ts';
import type { IntentResources } from './resources.ts';

/** Attempts that wait for a row that PostgreSQL has forgotten: some eight minutes, and a reader needs seconds. */
const ATTEMPTS_WITHOUT_ROW = 20;

type AcceptanceResources = Pick<
  IntentResources,
  'db' | 'redis' | 'workflows' | 'userService' | 'log' | 'metrics' | 'catalog' | 'intent' | 'route'
>;

/** How an intent was decided, or why that could not be done now. */
export type Decided = AcceptedNow | { acceptance: Acceptance } | { error: unknown };

export interface AcceptanceOptions {
  /** Of the activity; 0 for the first try within the workflow task. */
  attempt: number;
  /** Ends the lookups: recipients that are not found by then are left to the intent's workflow. */
  patience?: Promise<unknown>;
}

/** The way in which all intents of this process are accepted, one or many together. */
export type AcceptIntents = ReturnType<typeof createAcceptance>;

export function createAcceptance(resources: AcceptanceResources) {
  const { db, redis, workflows, log, metrics, catalog, intent: settings, route } = resources;
  const resolveAudience = createAudienceResolver(resources);

  /**
   * Accepts intents durably, or records durably why not: each for itself, and of two with one key the first before the
   * second.
   *
   * @returns how each ended, by notification id. An intent's own error is ApplicationFailure `UserServiceUnavailable` or
   * `AcceptanceDeferred`; nothing is decided about it then.
   * @throws ApplicationFailure of PostgreSQL, CancelledFailure: some may be decided then, and are found so by the next
   * attempt.
   */
  return async (
    notificationIds: readonly string[],
    options: AcceptanceOptions,
  ): Promise<Map<string, Decided>> => {
    const decided = new Map<string, Decided>();
    const open = await settleDecided(notificationIds, decided, options, new Set(notificationIds));
    const resolved = await Promise.all(open.map((intent) => resolveIntent(intent, options)));
    Context.current().cancellationSignal.throwIfAborted();
    await Promise.all(resolved.filter((item) => 'why' in item).map((item) => decline(item, decided)));
    const found = resolved.filter((item) => 'audience' in item);
    for (const group of insertedTogether(catalog, found)) await acceptTogether(group, decided);
    const left = notificationIds.filter((id) => !decided.has(id));
    for (const { notificationId } of await settleDecided(left, decided, options)) {
      const failure = 'the record that held the idempotency key has just expired';
      decided.set(notificationId, { error: ApplicationFailure.retryable(failure) });
    }
    return decided;
  };

  /**
   * Settles what is decided already.
   *
   * @param underWay earlier intents that are decided in the same breath: a later one does not wait for them.
   * @returns what is open.
   */
  async function settleDecided(
    notificationIds: readonly string[],
    decided: Map<string, Decided>,
    { attempt }: AcceptanceOptions,
    underWay: ReadonlySet<string> = new Set(),
  ): Promise<Intent[]> {
    const found = await findIntents(db, notificationIds);
    const open: Intent[] = [];
    const duplicates: Duplicate[] = [];
    for (const id of notificationIds) {
      const { intent, decision } = found.get(id) ?? {};
      if (!found.has(id)) {
        const isUnknown = attempt >= ATTEMPTS_WITHOUT_ROW;
        decided.set(id, isUnknown ? { acceptance: { outcome: 'unknown' } } : { error: forgotten(id) });
      } else if (decision?.outcome === 'earlier_waits') {
        if (underWay.has(decision.notificationId)) open.push(intent!);
        else decided.set(id, { error: await deferToEarlier(id, decision.notificationId, attempt) });
      } else if (decision) {
        if (intent && decision.outcome === 'duplicate') duplicates.push({ intent, of: decision.of });
        else if (intent && decision.outcome === 'idempotency_conflict') {
          const text = await conflictText(db, intent, decision.with);
          await reject(intent, decision.outcome, text, decision.with);
        }
        decided.set(id, { acceptance: decision });
      } else open.push(intent!);
    }
    await concludeDuplicates(duplicates);
    return open;
  }

  async function resolveIntent(
    intent: Intent,
    { attempt, patience }: AcceptanceOptions,
  ): Promise<ToInsert | Unresolved> {
    const note = (trouble: Omit<Trouble, 'attempt'>) =>
      noteTrouble(db, intent.notificationId, { ...trouble, attempt });
    // The catalog has lost the type since the entry was read.
    if (channelsOf(catalog, intent.notificationType, intent.audienceKind).length === 0) {
      const message = 'notification_type is not in the catalog any more';
      return { intent, why: { code: 'unknown_notification_type', message } };
    }
    try {
      const audience = await resolveAudience(intent, note, patience);
      if (audience.kind !== 'unknown_user') return { intent, audience };
      // By its position: only the fields of the entry hold the id, and they are where a user is forgotten.
      const position = intent.recipientUserIds.indexOf(audience.userId);
      const message = `recipient_user_ids_json names a user whom User Service does not know, at position ${position}`;
      return { intent, why: { code: 'recipient_not_found', message } };
    } catch (error) {
      return { intent, why: { error } };
    }
  }

  /** For good where a recipient does not exist; otherwise its next attempt may find all of them. */
  async function decline({ intent, why }: Unresolved, decided: Map<string, Decided>): Promise<void> {
    if ('error' in why) decided.set(intent.notificationId, why);
    else await reject(intent, why.code, why.message);
  }

  /** What is decided meanwhile stays as it is. */
  async function acceptTogether(items: readonly ToInsert[], decided: Map<string, Decided>): Promise<void> {
    const accepted = new Map<string, AcceptedNow>();
    const refused = await saveIsolated(items, async (some) => {
      const now = await insertRecords(db, some, { ...settings, catalog, redis });
      for (const [id, one] of now) accepted.set(id, one);
    });
    for (const { item, reason } of refused) await reject(item.intent, 'unstorable', reason);
    for (const { intent, audience } of items) {
      const now = accepted.get(intent.notificationId);
      if (!now) continue;
      decided.set(intent.notificationId, now);
      countOutcome(intent, 'accepted');
      if (audience.kind === 'user') reportRecipients(intent, audience.recipients);
      const type = { notification_type: intent.notificationType };
      for (const skipped of now.skipped) metrics.routeSkipped({ ...type, ...skipped });
      const routes = { routes: now.acceptance.routeCount, skipped: now.skipped.length || undefined };
      log.info({ ...logFieldsOf(intent), outcome: 'accepted', ...routes }, 'intent accepted');
    }
  }

  /**
   * Of two intents with one key the earlier is decided first, however long that takes.
   *
   * @returns ApplicationFailure `AcceptanceDeferred`.
   */
  async function deferToEarlier(id: string, earlierId: string, attempt: number): Promise<ApplicationFailure> {
    const failure = deferral(
      `notification ${earlierId} came earlier with the same idempotency key and waits itself`,
    );
    // No other process would decide it.
    if (isGivenUp(await statusOf(workflows, notificationWorkflowId(earlierId)))) await giveUp(db, earlierId);
    else await noteTrouble(db, id, { attempt, reason: failure.message });
    return failure;
  }

  /** Records why an intent is refused, unless it is decided. */
  async function reject(
    intent: Intent,
    failureCode: MalformedCode,
    failureMessage: string,
    conflictsWith?: string,
  ): Promise<void> {
    const refused = refusedIntent(intent, failureCode, failureMessage);
    // A repeated attempt finds its own row: counted then.
    if (await refuse(resources, refused, { intent, conflictsWith })) countOutcome(intent, 'rejected');
  }

  function reportRecipients(intent: Intent, recipients: Users): void {
    for (const recipient of recipients) {
      if (!('problem' in recipient)) continue;
      metrics.unusableRecipient({ notification_type: intent.notificationType });
      log.warn(
        { ...logFieldsOf(intent), user_id: searchableKey(recipient.userId), reason: recipient.problem },
        'recipient without a usable address',
      );
    }
    const isPushed = channelsOf(catalog, intent.notificationType, 'user').includes('push');
    if (!isPushed || recipients.length <= route.gatewayMaxLen) return;
    // Redis cannot tell how far Gateway has read, so this is the only moment to say it.
    log.warn(
      { ...logFieldsOf(intent), pushes: recipients.length, stream_max_len: route.gatewayMaxLen },
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

  /** Decides intents that are open as duplicates of those with their keys. */
  async function concludeDuplicates(duplicates: readonly Duplicate[]): Promise<void> {
    const ended = await endIntents(
      db,
      'duplicate',
      duplicates.map(({ intent: { notificationId }, of }) => ({ notificationId, of })),
    );
    for (const { intent, of } of duplicates) {
      if (ended.has(intent.notificationId)) countOutcome(intent, 'duplicate');
      log.info({ ...logFieldsOf(intent), outcome: 'duplicate', duplicate_of: of }, 'intent is a duplicate');
    }
  }
}

type Users = Extract<Audience, { kind: 'user' }>['recipients'];

interface Duplicate {
  intent: Intent;
  of: string;
}

/** An intent whose recipients could not all be found. */
interface Unresolved {
  intent: Intent;
  why: { code: MalformedCode; message: string } | { error: unknown };
}

const deferral = (message: string): ApplicationFailure =>
  ApplicationFailure.create({ type: ACCEPTANCE_DEFERRED, message });

/** PostgreSQL has fallen back to an earlier state, and the reader takes the entry again. */
const forgotten = (notificationId: string): ApplicationFailure =>
  deferral(`PostgreSQL has no row of notification ${notificationId}: its entry is to be read again`);

export type IntentActivities = ReturnType<typeof createIntentActivities>;

export function createIntentActivities({ db }: Pick<IntentResources, 'db'>, acceptIntents: AcceptIntents) {
  return {
    /**
     * Accepts an intent durably, or records durably why not.
     *
     * @throws ApplicationFailure `UserServiceUnavailable`, `AcceptanceDeferred`, or of PostgreSQL, all retried;
     * CancelledFailure. Then nothing is decided.
     */
    async acceptIntent({ notificationId }: NotificationInput): Promise<Acceptance> {
      const { isLocal, attempt } = Context.current().info;
      const options = { attempt: isLocal ? 0 : attempt };
      // The first try has failed before this one, or the recipients are many.
      if (!isLocal) await noteTrouble(db, notificationId, options);
      const decided = (await acceptIntents([notificationId], options)).get(notificationId)!;
      if ('error' in decided) throw decided.error;
      return decided.acceptance;
    },
  };
}
