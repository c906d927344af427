/**
 * Whom an intent reaches, users as the User Service knows them and administrators as configured, and the routes that
 * follow from it.
 */
import { ApplicationFailure, Context } from '@temporalio/activity';
import pLimit from 'p-limit';
import type { AdminNotificationType, Channel, NotificationType } from '../../api/intent/catalog.ts';
import { CHANNELS, channelsOf } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { Locale } from '../../api/intent/mail-command.ts';
import { USER_SERVICE_UNAVAILABLE } from '../../workflows/failures.ts';
import type { IntentMetrics } from './metrics.ts';
import type { Recipient, UserService } from './user-service.ts';
import { reasonOf } from '../reason.ts';

/** Lookups of one intent that are under way concurrently: enough to hide latency, too few to burden the User Service. */
const PARALLEL_LOOKUPS = 32;

/** Where routes can lead: resolved users, or the administrators configured for the type. */
export type Audience =
  { kind: 'user'; recipients: readonly Recipient[] } | { kind: 'admin_email'; emails: readonly string[] };

interface AudienceSources {
  userService: UserService;
  metrics: IntentMetrics;
  /** Normalised, unique addresses by notification type. */
  adminEmails: Record<AdminNotificationType, readonly string[]>;
}

/** One of the recipients does not exist; then the intent is not accepted for the others either. */
interface UnknownUser {
  kind: 'unknown_user';
  userId: string;
}

/**
 * @returns resolves an intent's audience, inside an activity. It throws ApplicationFailure `UserServiceUnavailable`
 * (retried) when a lookup fails.
 */
export function createAudienceResolver({ userService, metrics, adminEmails }: AudienceSources) {
  return async (intent: Intent): Promise<Audience | UnknownUser> => {
    if (intent.audienceKind === 'admin_email') {
      const emails = adminEmails[intent.notificationType as AdminNotificationType];
      return { kind: 'admin_email', emails };
    }
    const context = Context.current();
    const limit = pLimit(PARALLEL_LOOKUPS);
    let unknownUser: string | undefined;
    const lookup = async (userId: string): Promise<Recipient | undefined> => {
      if (unknownUser !== undefined) return undefined;
      const recipient = await countedLookup(intent, userId);
      if (!recipient) unknownUser = userId;
      // A local activity has no heartbeat; it is too short to need one.
      if (!context.info.isLocal) context.heartbeat();
      return recipient;
    };
    const recipients = await limit.map(intent.recipientUserIds, lookup).catch((error: unknown) => {
      limit.clearQueue();
      throw ApplicationFailure.create({
        type: USER_SERVICE_UNAVAILABLE,
        message: reasonOf(error),
      });
    });
    if (unknownUser !== undefined) return { kind: 'unknown_user', userId: unknownUser };
    return { kind: 'user', recipients: recipients as Recipient[] };
  };

  async function countedLookup({ notificationType }: Intent, userId: string): Promise<Recipient | undefined> {
    const count = (result: 'found' | 'not_found' | 'failed') =>
      metrics.userEnrichment({ notification_type: notificationType, result });
    try {
      const recipient = await userService.findRecipient(userId);
      count(recipient ? 'found' : 'not_found');
      return recipient;
    } catch (error) {
      count('failed');
      throw error;
    }
  }
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
}

/** Attempts a channel may spend on a route. */
export type ChannelBudgets = Record<Channel, number>;

/**
 * Every recipient gets a slot on each channel; slots outside the type's channels are skipped. An empty list of
 * administrators gets one skipped e-mail slot, so that the gap in the configuration stays visible.
 */
export function materializeRoutes(
  type: NotificationType,
  audience: Audience,
  budgets: ChannelBudgets,
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
  const channels = channelsOf(type, audience.kind);
  const contacts = contactsOf(audience);
  if (contacts.length === 0) return [slot('email', `config:${type}`, false)];
  return contacts.flatMap((contact) =>
    CHANNELS.map((channel) => slot(channel, contact.recipientRef, channels.includes(channel), contact)),
  );
}

interface Contact {
  recipientRef: string;
  email: string;
  locale: Locale;
}

function contactsOf(audience: Audience): Contact[] {
  if (audience.kind === 'user') {
    return audience.recipients.map(({ userId, email, locale }) => ({
      recipientRef: `user:${userId}`,
      email,
      locale,
    }));
  }
  return audience.emails.map((email) => ({ recipientRef: `email:${email}`, email, locale: 'en' }));
}
