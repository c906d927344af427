/**
 * The one call to User Service (user-service-openapi.yaml): where a
 * user gets mail, and in which language.
 */
import { z } from 'zod';
import { writtenEmailSchema } from './mail-command.ts';

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

/**
 * The path of a user below the service's base URL, or undefined for an id that no path can name (and so no user has):
 * `.` and `..`, which every URL parser resolves away even when encoded, and lone surrogates.
 */
export function userPath(userId: string): string | undefined {
  if (userId === '' || userId === '.' || userId === '..' || !userId.isWellFormed()) return undefined;
  return `/api/v1/internal/users/${encodeURIComponent(userId)}`;
}
