/** From an accepted intent to its route slots (seed "Route Model", materialization rules). Pure. */
import type { Channel, NotificationType } from '../../api/intent/catalog.ts';
import { CHANNELS, channelsOf } from '../../api/intent/catalog.ts';
import type { Intent } from '../../api/intent/entry.ts';
import type { Locale } from '../../api/intent/mail-command.ts';
import type { Recipient } from './user-service.ts';

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

/** Where routes can lead: resolved users, or the administrators configured for the type. */
export type Audience =
  { kind: 'user'; recipients: readonly Recipient[] } | { kind: 'admin_email'; emails: readonly string[] };

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

/** The fields by which log lines of intake and publication are found (seed "Observability"). */
export function logFieldsOf(
  intent: Omit<Intent, 'payloadJson' | 'recipientUserIds' | 'occurredAtMs'>,
): Record<string, string> {
  return {
    notification_id: intent.notificationId,
    notification_type: intent.notificationType,
    producer: intent.producer,
    audience_kind: intent.audienceKind,
    idempotency_key: intent.idempotencyKey,
    ...(intent.requestId === undefined ? {} : { request_id: intent.requestId }),
    ...(intent.traceId === undefined ? {} : { trace_id: intent.traceId }),
  };
}
