/**
 * The audience of an intent, users as the User Service knows them and administrators as configured, and the routes that
 * follow from it.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { Catalog, Channel, NotificationType } from '../../api/intent/catalog.ts';
import { CHANNELS, channelsOf } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { Locale } from '../../api/intent/user-service.ts';
import type { SkipReason } from '../../api/intent/outcome.ts';
import { cutText } from '../../api/text.ts';
import { USER_SERVICE_UNAVAILABLE } from '../../workflows/failures.ts';
import { MAX_RECIPIENTS_ACCEPTED_LOCALLY } from '../../workflows/intent/contract.ts';
import { withHeartbeats } from '../attempt.ts';
import { reasonOf } from '../reason.ts';
import type { Trouble } from './entries.ts';
import type { IntentResources } from './resources.ts';
import type { Recipient } from './user-service.ts';
import { InvalidAddressError, LeftAloneError, UnusableUserError } from './user-service.ts';

/** Audiences above so many recipients are resolved a few at a time: what is found of them is in memory. */
const HUGE_AUDIENCE = 1_000;
const MOST_HUGE_AUDIENCES = 4;

/**
 * How long an answer about one user shows that the service itself is well, ms. Without any, nothing is found out about a
 * user: a service that answers all lookups wrongly must not empty every audience.
 */
const WELL_FOR_MS = 300_000;

/** Recipients that are kept of all intents together; the intents that were tried longest ago are forgotten first. */
const MOST_KEPT = 100_000;
/** Addresses change. */
const KEPT_FOR_MS = 3_600_000;

/** Recipients without a usable answer that a message names. */
const MOST_NAMED = 3;

/** A user whom the intent reaches, but not by e-mail, with what the User Service said in place of an answer; no personal data. */
export type UnusableRecipient = Pick<Recipient, 'userId'> & { problem: string };

/** Where routes can lead: resolved users, or the administrators configured for the type. */
export type Audience =
  | { kind: 'user'; recipients: readonly (Recipient | UnusableRecipient)[] }
  | { kind: 'admin_email'; emails: readonly string[] };

type AudienceResources = Pick<IntentResources, 'userService' | 'metrics' | 'intent'>;

/** One of the recipients does not exist; then the intent is not accepted for the others either. */
type UnknownUser = Pick<Recipient, 'userId'> & { kind: 'unknown_user' };

/**
 * Says that the intent waits, and why.
 *
 * @returns attempts so far that nothing spoilt but recipients without a usable answer.
 */
export type NoteTrouble = (trouble: Omit<Trouble, 'attempt'>) => Promise<number>;

/**
 * @returns resolves an intent's audience, inside an activity. It throws ApplicationFailure `UserServiceUnavailable`
 * when lookups fail (retried), or CancelledFailure. What was found is kept in this process for the next attempt. Lookups
 * that are not done when `patience` resolves have failed.
 */
export function createAudienceResolver({ userService, metrics, intent: settings }: AudienceResources) {
  const { adminEmails, maxLookups, unusableAfterAttempts } = settings;
  const inTurn = pLimit(maxLookups);
  // Lookups that hang for large audiences leave half of the turns to small ones.
  const inTurnOfLarge = pLimit(Math.ceil(maxLookups / 2));
  // In the order in which they were put back; of this process alone, since addresses of people stand in no history.
  const keptByIntent = new Map<string, Found>();
  const hugeAudience = pLimit(MOST_HUGE_AUDIENCES);
  let lastUsableAnswerAt = -Infinity;

  return async (
    intent: Intent,
    note: NoteTrouble,
    patience?: Promise<unknown>,
  ): Promise<Audience | UnknownUser> => {
    if (intent.audienceKind === 'admin_email') {
      return { kind: 'admin_email', emails: adminEmails.get(intent.notificationType) ?? [] };
    }
    const resolving = () => resolveUsers(intent, note, patience);
    const { info, cancelled } = Context.current();
    // A local activity has no heartbeat; it is too short to need one.
    if (info.isLocal) return resolving();
    if (intent.recipientUserIds.length <= HUGE_AUDIENCE) return withHeartbeats(resolving);
    return withHeartbeats(() => Promise.race([hugeAudience(resolving), cancelled]));
  };

  async function resolveUsers(
    intent: Intent,
    note: NoteTrouble,
    patience?: Promise<unknown>,
  ): Promise<Audience | UnknownUser> {
    const { notificationId, recipientUserIds } = intent;
    const kept = takeKept(notificationId);
    const found = kept.byUser;
    const lookups = await lookUp(intent, found, patience);
    if (lookups.unknownUser !== undefined) return { kind: 'unknown_user', userId: lookups.unknownUser };
    await refuseIncomplete(intent, lookups, note).catch((error: unknown) => {
      keepFound(notificationId, kept);
      throw error;
    });
    const recipients = recipientUserIds.map(
      (userId) => found.get(userId) ?? { userId, problem: lookups.unusable.get(userId) ?? 'not looked up' },
    );
    return { kind: 'user', recipients };
  }

  function takeKept(notificationId: string): Found {
    const kept = keptByIntent.get(notificationId);
    keptByIntent.delete(notificationId);
    return kept && isFresh(kept) ? kept : { byUser: new Map(), since: performance.now() };
  }

  function keepFound(notificationId: string, found: Found): void {
    keptByIntent.set(notificationId, found);
    let total = 0;
    for (const [id, others] of [...keptByIntent].reverse()) {
      // An intent without any counts, too.
      total += 1 + others.byUser.size;
      if (total > MOST_KEPT || !isFresh(others)) keptByIntent.delete(id);
    }
  }

  /** Looks up recipients that are not found yet, and adds them to the found ones. */
  async function lookUp(
    intent: Intent,
    found: Map<string, Recipient>,
    patience?: Promise<unknown>,
  ): Promise<Lookups> {
    const context = Context.current();
    const missing = intent.recipientUserIds.filter((userId) => !found.has(userId));
    const next = missing.values();
    const lookups: Lookups = { unusable: new Map(), mayChange: false, failed: 0 };
    let isOver = false;

    const lane = async () => {
      for (const userId of next) {
        if (isOver) return;
        try {
          const recipient = await ask(intent, userId);
          if (recipient) found.set(userId, recipient);
          else lookups.unknownUser = userId;
          isOver ||= !recipient;
        } catch (error) {
          if (error instanceof UnusableUserError) {
            lookups.unusable.set(userId, error.message);
            lookups.mayChange ||= !(error instanceof InvalidAddressError);
          } else {
            lookups.failed += 1;
            lookups.lastFailure = reasonOf(error);
            // Every further lookup would be refused too.
            isOver ||= error instanceof LeftAloneError;
          }
        }
      }
    };
    try {
      const lanes = Promise.all(Array.from({ length: Math.min(maxLookups, missing.length) }, lane));
      const isPatienceOver = await Promise.race([
        lanes.then(() => false),
        context.cancelled,
        ...(patience ? [patience.then(() => true)] : []),
      ]);
      if (isPatienceOver && lookups.unknownUser === undefined) {
        lookups.failed = missing.filter((id) => !found.has(id) && !lookups.unusable.has(id)).length;
        lookups.lastFailure ??= 'the User Service takes long to answer';
      }
    } finally {
      isOver = true;
    }
    return lookups;
  }

  /** @throws ApplicationFailure `UserServiceUnavailable` unless all are found who ever will be. */
  async function refuseIncomplete(
    { recipientUserIds }: Intent,
    { unusable, mayChange, failed, lastFailure = '' }: Lookups,
    note: NoteTrouble,
  ): Promise<void> {
    if (failed === 0 && unusable.size === 0) return;
    const isUnusableOnly = failed === 0;
    const isServiceWell = performance.now() - lastUsableAnswerAt < WELL_FOR_MS;
    if (isUnusableOnly && isServiceWell && !mayChange) return;
    const reason = isUnusableOnly ? unusableReason(unusable) : lastFailure;
    const attempts = await note({ reason, isUnusableOnly });
    if (isUnusableOnly && isServiceWell && attempts >= unusableAfterAttempts) return;
    const lookups = recipientUserIds.length;
    const share = lookups === 1 ? '' : ` (${failed + unusable.size} of ${lookups} lookups)`;
    throw ApplicationFailure.create({ type: USER_SERVICE_UNAVAILABLE, message: `${reason}${share}` });
  }

  async function ask({ notificationType, recipientUserIds }: Intent, userId: string) {
    const isLarge = recipientUserIds.length > MAX_RECIPIENTS_ACCEPTED_LOCALLY;
    const count = (result: 'found' | 'not_found' | 'unusable' | 'failed') =>
      metrics.userEnrichment({ notification_type: notificationType, result });
    try {
      const find = () => inTurn(() => userService.findRecipient(userId));
      const recipient = await (isLarge ? inTurnOfLarge(find) : find());
      lastUsableAnswerAt = performance.now();
      count(recipient ? 'found' : 'not_found');
      return recipient;
    } catch (error) {
      count(error instanceof UnusableUserError ? 'unusable' : 'failed');
      throw error;
    }
  }
}

/** What an attempt has found, for the next attempt of the same intent. */
interface Found {
  byUser: Map<string, Recipient>;
  /** When the first of them was looked up, by the monotonic clock, ms. */
  since: number;
}

const isFresh = ({ since }: Found) => performance.now() - since < KEPT_FOR_MS;

/** What came of the lookups of one attempt, beside those who were found. */
interface Lookups {
  unknownUser?: string;
  /** What the User Service said, by user. */
  unusable: Map<string, string>;
  /** Another answer about one of them is possible. */
  mayChange: boolean;
  failed: number;
  lastFailure?: string;
}

function unusableReason(unusable: ReadonlyMap<string, string>): string {
  const named = [...unusable]
    .slice(0, MOST_NAMED)
    .map(([userId, problem]) => `${problem} for the recipient ${JSON.stringify(cutText(userId, 100))}`);
  const more = unusable.size - named.length;
  return [...named, ...(more > 0 ? [`${more} more recipients are like that`] : [])].join('; ');
}

/** A row of `notification.routes` as acceptance creates it. */
export interface RouteSlot {
  routeId: string;
  channel: Channel;
  recipientRef: string;
  status: 'pending' | 'skipped';
  maxAttempts: number;
  email: string | null;
  locale: Locale | null;
  /** Why a slot of the type's channels is skipped, as a mark and for people. */
  mark?: SkipReason;
  problem?: string;
}

/**
 * Every recipient gets a slot on each channel; slots outside the type's channels are skipped, and so is the e-mail of a
 * recipient without a usable address. An empty list of administrators gets one skipped e-mail slot, so that the gap in the configuration stays visible.
 */
export function materializeRoutes(
  catalog: Catalog,
  type: NotificationType,
  audience: Audience,
  budgets: IntentResources['intent']['budgets'],
): RouteSlot[] {
  const slot = (channel: Channel, recipientRef: string, publish: boolean, contact?: Contact): RouteSlot => ({
    routeId: `${channel}:${recipientRef}`,
    channel,
    recipientRef,
    status: publish ? 'pending' : 'skipped',
    maxAttempts: budgets[channel],
    email: contact?.email ?? null,
    locale: contact?.locale ?? null,
  });
  const channels = channelsOf(catalog, type, audience.kind);
  const contacts = contactsOf(audience);
  if (contacts.length === 0) return [slot('email', `config:${type}`, false)];
  return contacts.flatMap((contact) =>
    CHANNELS.map((channel) => {
      const isWanted = channels.includes(channel);
      const { recipientRef, problem } = contact;
      if (!isWanted || channel === 'push' || problem === undefined)
        return slot(channel, recipientRef, isWanted, contact);
      return { ...slot(channel, recipientRef, false), mark: 'recipient_unusable', problem };
    }),
  );
}

type Contact = Pick<RouteSlot, 'recipientRef' | 'problem'> & Partial<Pick<Recipient, 'email' | 'locale'>>;

function contactsOf(audience: Audience): Contact[] {
  if (audience.kind === 'user')
    return audience.recipients.map(({ userId, ...contact }) => ({
      ...contact,
      recipientRef: `user:${userId}`,
    }));
  return audience.emails.map((email) => ({ recipientRef: `email:${email}`, email, locale: 'en' }));
}
