/**
 * Mail commands as Mail Service reads them from `mail:delivery_commands`,
 * and the locale rule that picks the template.
 */
import { z } from 'zod';
import { handOffId, tracingFields } from './push-event.ts';
import type { EntryField, HandOff } from './push-event.ts';
import { isJsonObject } from '../text.ts';

/** Locales that Mail Service has templates for. */
export const SUPPORTED_LOCALES = ['en'] as const;
export type Locale = (typeof SUPPORTED_LOCALES)[number];

/**
 * The supported locale that equals the preference exactly, else `en`.
 * `en-US` is not reduced to `en`: it falls back like any other unsupported value.
 */
export function resolveLocale(preferred: unknown): Locale {
  return SUPPORTED_LOCALES.find((locale) => locale === preferred) ?? 'en';
}

/**
 * One e-mail address. Deliberately loose (a stricter rule than the mailbox's own host would lock people out), but it
 * refuses characters that could turn one recipient into two, break out of a mail header, or stay invisible.
 */
export const emailAddressSchema = z
  .string()
  .max(320)
  .regex(/^[^\s\p{Cc}\p{Cf}@,;:<>()"]+@[^\s\p{Cc}\p{Cf}@,;:<>()"]+$/u, 'must be one e-mail address');

/** The same as people and programs write it: white space and invisible characters around it do not count. */
export const writtenEmailSchema = z
  .string()
  .max(1_000)
  .transform((text) => text.replace(/^[\s\p{Cf}]+|[\s\p{Cf}]+$/gu, ''))
  .pipe(emailAddressSchema);

const none = z.tuple([]);

/** What `payload_json` of a mail command holds. */
export const mailCommandPayloadSchema = z.object({
  to: z.tuple([emailAddressSchema]),
  cc: none,
  bcc: none,
  reply_to: none,
  attachments: none,
  template_id: z.string().min(1),
  locale: z.enum(SUPPORTED_LOCALES),
  // Not z.record, which would drop a key named __proto__: variables are the producer's and pass untouched.
  variables: z.custom<Record<string, unknown>>(isJsonObject, 'must be an object'),
});
export type MailCommandPayload = z.infer<typeof mailCommandPayloadSchema>;

/** An e-mail route that is ready to be handed off. */
export interface MailCommand extends HandOff {
  /** Of the type of the notification. */
  templateId: string;
  /** The one recipient. */
  email: string;
  locale: Locale;
  /** When the intent was accepted: milliseconds since the Unix epoch. */
  acceptedAtMs: number;
  /** Canonical JSON of the intent's payload; becomes the template's variables. */
  payloadJson: string;
}

/**
 * The entry of `mail:delivery_commands` for one route.
 *
 * @throws SyntaxError when `payloadJson` is not JSON
 * @throws z.ZodError when it is not an object, or another part does not make a command
 */
export function mailEntryFields(command: MailCommand): EntryField[] {
  const deliveryId = handOffId(command);
  const payload: MailCommandPayload = mailCommandPayloadSchema.parse({
    to: [command.email],
    cc: [],
    bcc: [],
    reply_to: [],
    attachments: [],
    template_id: command.templateId,
    locale: command.locale,
    variables: JSON.parse(command.payloadJson) as unknown,
  });
  return [
    ['delivery_id', deliveryId],
    ['source', 'notification'],
    ['payload_mode', 'template'],
    ['idempotency_key', `notification:${deliveryId}`],
    ['requested_at_ms', String(command.acceptedAtMs)],
    ['payload_json', JSON.stringify(payload)],
    ...tracingFields(command),
  ];
}
