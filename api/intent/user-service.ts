/** The one call to User Service (user-service-openapi.yaml): where a user gets mail, and in which language. */
import { z } from 'zod';
import { isNameable } from '../ids.ts';

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

/** The part of a user that is read; further fields are ignored. */
export const userSchema = z.object({
  email: writtenEmailSchema,
  // Whatever it is, resolveLocale has an answer to it: a bad language must not keep a user from getting mail.
  preferred_language: z.unknown().optional(),
});

/** The code of the 404 that says: there is no such user. Any other 404 comes from something in between. */
const SUBJECT_NOT_FOUND = 'subject_not_found';

export const subjectNotFoundSchema = z.object({
  error: z.object({ code: z.literal(SUBJECT_NOT_FOUND), message: z.string().optional() }),
});

/** The path of a user below the service's base URL, or undefined for an id that no path can name, and so no user has. */
export const userPath = (userId: string): string | undefined =>
  isNameable(userId) ? `/api/v1/internal/users/${encodeURIComponent(userId)}` : undefined;
