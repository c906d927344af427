/** Client of the User Service's one internal call (seed "Recipient Enrichment And Locale Policy"). */
import { request } from 'undici';
import type { Locale } from '../api/mail-command.ts';
import { resolveLocale } from '../api/mail-command.ts';
import { subjectNotFoundSchema, userPath, userSchema } from '../api/user-service.ts';

/** An answer larger than this is no user record; reading on would only cost memory. */
const MAX_BODY_BYTES = 64 * 1024;

export interface Recipient {
  userId: string;
  email: string;
  locale: Locale;
}

/** The service did not give a usable answer: worth another try later. */
export class UserServiceError extends Error {
  override name = 'UserServiceError';
}

export interface UserService {
  /**
   * Looks one user up.
   *
   * @returns the recipient, or undefined when the service says `subject_not_found`.
   * @throws UserServiceError on a time-out, a broken connection, another status or an unusable body.
   */
  findRecipient(userId: string): Promise<Recipient | undefined>;
}

/** @param timeoutMs for the whole exchange, connecting and reading included. */
export function createUserService(options: { baseUrl: string; timeoutMs: number }): UserService {
  const base = options.baseUrl.replace(/\/+$/, '');

  async function exchange(path: string): Promise<{ status: number; body: unknown }> {
    const signal = AbortSignal.timeout(options.timeoutMs);
    const response = await request(base + path, { signal, headers: { accept: 'application/json' } });
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_BODY_BYTES) throw new Error(`answer is larger than ${MAX_BODY_BYTES} bytes`);
      chunks.push(chunk);
    }
    return { status: response.statusCode, body: parseJson(Buffer.concat(chunks).toString('utf8')) };
  }

  return {
    async findRecipient(userId) {
      const path = userPath(userId);
      if (path === undefined) return undefined;
      const { status, body } = await exchange(path).catch((error: unknown) => {
        throw new UserServiceError(`User Service did not answer: ${reasonOf(error)}`, { cause: error });
      });
      if (status === 404 && subjectNotFoundSchema.safeParse(body).success) return undefined;
      if (status !== 200) throw new UserServiceError(`User Service answered with status ${status}`);
      const user = userSchema.safeParse(body);
      if (!user.success) {
        // Names of fields only: the body holds a person's data.
        const fields = user.error.issues.map((issue) => issue.path.join('.') || 'body').join(', ');
        throw new UserServiceError(`User Service gave an unusable answer: ${fields}`);
      }
      return { userId, email: user.data.email, locale: resolveLocale(user.data.preferred_language) };
    },
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function reasonOf(error: unknown): string {
  // By name: time-outs of the platform are not instances of this realm's Error everywhere.
  const { name, message, code } = error as NodeJS.ErrnoException;
  return name === 'TimeoutError' ? 'timed out' : message || (code ?? name);
}
