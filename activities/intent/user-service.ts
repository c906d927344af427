/**
 * Client of the User Service's one internal call.
 *
 * Each process has a breaker in front of it: intents wait durably and try again for ever, and together they must not keep a
 * service down that is trying to come back.
 */
import type { Logger } from 'pino';
import type { Locale } from '../../api/intent/user-service.ts';
import { resolveLocale, subjectNotFoundSchema, userPath, userSchema } from '../../api/intent/user-service.ts';
import { jsonIn } from '../../api/text.ts';
import { ladderDelayMs } from '../../workflows/policies.ts';
import type { HttpCaller } from '../http/caller.ts';
import { isTimeout, networkReasonOf, readText } from '../http/caller.ts';
import { reasonOf } from '../reason.ts';

/** An answer larger than this is no user record; reading on would only cost memory. */
const MAX_BODY_BYTES = 64 * 1024;

/**
 * Users whose lookups fail one after the other and open the breaker: more than a restart's hiccup, fewer than one large
 * intent's lookups.
 */
const FAILURES_IN_A_ROW = 10;
/** Pauses double between these, ms. The longest is that of Temporal's retries of an acceptance. */
const SHORTEST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;

export interface Recipient {
  userId: string;
  email: string;
  locale: Locale;
}

/** The service did not give a usable answer: worth another try later. */
export class UserServiceError extends Error {
  override name = 'UserServiceError';
}

/** The service answered, and not in a way that its contract has for a user: asking for others may well succeed. */
export class UnusableUserError extends UserServiceError {
  override name = 'UnusableUserError';
}

/** The user's address is invalid. To ask again would bring the same. */
export class InvalidAddressError extends UnusableUserError {
  override name = 'InvalidAddressError';
}

/** The lookup was not sent: the service is left alone for a while. */
export class LeftAloneError extends UserServiceError {
  override name = 'LeftAloneError';
}

export interface UserService {
  /**
   * Looks one user up.
   *
   * @returns the recipient, or undefined when the service says `subject_not_found`.
   * @throws UnusableUserError when it says 400 or 422, or its 200 has no usable body; of these InvalidAddressError when the
   * address is an invalid text; UserServiceError on a time-out, a broken connection or another status; LeftAloneError immediately while the service is being left alone after such
   * failures, except for one lookup that finds out whether it is back. Lookups during that one wait for its result.
   */
  findRecipient(userId: string): Promise<Recipient | undefined>;
}

/** Statuses that speak of what was asked for: bad request, unprocessable content. */
const ABOUT_THE_USER: readonly number[] = [400, 422];

interface UserServiceOptions {
  baseUrl: string;
  /** For the whole exchange, connecting and reading included, ms. */
  timeoutMs: number;
  caller: HttpCaller;
  log: Pick<Logger, 'info' | 'warn'>;
}

export function createUserService({ baseUrl, timeoutMs, caller, log }: UserServiceOptions): UserService {
  const base = baseUrl.replace(/\/+$/, '');
  const unlessLeftAlone = createBreaker(log);

  /**
   * @throws UserServiceError when the service itself is in trouble: a time-out, a broken connection, 5xx or 429. Every other
   * answer says that it is up.
   */
  async function ask(path: string) {
    const signal = AbortSignal.timeout(timeoutMs);
    try {
      const headers = { accept: 'application/json', ...caller.headers() };
      const response = await caller.request(base + path, { method: 'GET', signal, headers });
      const { error, ...read } = await readText(response, MAX_BODY_BYTES);
      if (error) throw signal.aborted ? signal.reason : error;
      const status = response.statusCode!;
      if (status >= 500 || status === 429) throw new UserServiceError(statusMessage(status));
      return { status, ...read };
    } catch (error) {
      if (error instanceof UserServiceError) throw error;
      const reason = isTimeout(error) ? 'timed out' : networkReasonOf(error);
      throw new UserServiceError(`User Service did not answer: ${reason}`, { cause: error });
    }
  }

  return {
    async findRecipient(userId) {
      const path = userPath(userId);
      if (path === undefined) return undefined;
      const { status, text, isCut } = await unlessLeftAlone(userId, () => ask(path));
      if (isCut) {
        throw new (status === 200 ? UnusableUserError : UserServiceError)(
          `User Service gave an unusable answer: it is larger than ${MAX_BODY_BYTES} bytes`,
        );
      }
      const body = jsonIn(text);
      if (status === 404 && subjectNotFoundSchema.safeParse(body).success) {
        return undefined;
      }
      if (ABOUT_THE_USER.includes(status)) throw new UnusableUserError(statusMessage(status));
      if (status !== 200) throw new UserServiceError(statusMessage(status));
      const user = userSchema.safeParse(body);
      if (!user.success) {
        // Names of fields only: the body holds a person's data.
        const fields = user.error.issues.map((issue) => issue.path.join('.') || 'body').join(', ');
        const isAddress = typeof (body as { email?: unknown } | null)?.email === 'string';
        throw new (isAddress ? InvalidAddressError : UnusableUserError)(
          `User Service gave an unusable answer: ${fields}`,
        );
      }
      return { userId, email: user.data.email, locale: resolveLocale(user.data.preferred_language) };
    },
  };
}

type Breaker = <T>(userId: string, lookup: () => Promise<T>) => Promise<T>;

/**
 * @returns runs a lookup, or throws LeftAloneError without running it while the service is being left alone. Any answer,
 * however useless for its user, ends the count of failures. A user counts once: the service may fail for a single one
 * for ever, and be well.
 */
function createBreaker(log: UserServiceOptions['log']): Breaker {
  let failures = 0;
  const failedUsers = new Set<string>();
  /** By the monotonic clock, ms. */
  let leftAloneUntil = 0;
  let lastFailure = '';
  /** The lookup that finds out whether the service is back. It never rejects. */
  let probe: Promise<void> | undefined;
  const isLeftAlone = () => failures >= FAILURES_IN_A_ROW;

  return async (userId, lookup) => {
    while (probe) await probe;
    if (!isLeftAlone()) return counting(userId, lookup);
    const leftMs = Math.ceil(leftAloneUntil - performance.now());
    if (leftMs > 0) {
      throw new LeftAloneError(
        `User Service is being left alone for another ${leftMs} ms after repeated failures, the last: ${lastFailure}`,
      );
    }
    const finding = counting(userId, lookup, true);
    const end = () => (probe = undefined);
    probe = finding.then(end, end);
    return finding;
  };

  async function counting<T>(userId: string, lookup: () => Promise<T>, isProbe = false): Promise<T> {
    // What began before the service was left alone says nothing about it any more.
    const isCounted = () => isProbe || !isLeftAlone();
    try {
      const answer = await lookup();
      if (isCounted()) {
        if (isProbe) log.info('User Service answers again');
        failures = 0;
        failedUsers.clear();
      }
      return answer;
    } catch (error) {
      if (isCounted() && (isProbe || !failedUsers.has(userId))) noteFailure(userId, reasonOf(error));
      throw error;
    }
  }

  function noteFailure(userId: string, reason: string): void {
    failures += 1;
    failedUsers.add(userId);
    if (!isLeftAlone()) return;
    lastFailure = reason;
    const pauseMs = ladderDelayMs(failures - FAILURES_IN_A_ROW + 1, SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS);
    leftAloneUntil = performance.now() + pauseMs;
    log.warn({ pause_ms: pauseMs, reason }, 'User Service is failing and left alone for a while');
  }
}

const statusMessage = (status: number): string => `User Service answered with status ${status}`;
