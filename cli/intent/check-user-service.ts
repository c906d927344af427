/** Whether the User Service answers this service as it should, asked as the service asks. */
import type { CallerCredentials } from '../../activities/http/caller.ts';
import { createHttpCaller } from '../../activities/http/caller.ts';
import { isTimeout, networkReasonOf, readText } from '../../activities/http/delivery.ts';
import { subjectNotFoundSchema, userPath } from '../../api/intent/user-service.ts';
import type { Diagnosis } from '../checks.ts';
import { error, ok, warn } from '../checks.ts';

/** Nobody has this id; asking for it shows whether the service answers as it should. */
const PROBE_USER_ID = 'galaxy-notify-doctor';
/** Of the answer that says so. */
const MAX_BODY_BYTES = 64 * 1024;
/** Statuses of a service that does not know who asks, or does not let it. */
const REFUSALS: readonly number[] = [401, 403];
const HINT = 'until it answers, intents for users wait; nothing is lost (NOTIFICATION_USER_SERVICE_BASE_URL)';

/** @param timeoutMs for the whole exchange. Never throws for what the service does. */
export async function checkUserService(
  baseUrl: string | undefined,
  credentials: CallerCredentials,
  timeoutMs: number,
): Promise<Diagnosis> {
  if (baseUrl === undefined) {
    return warn(
      'not configured',
      'set NOTIFICATION_USER_SERVICE_BASE_URL as for the service, to have it checked',
    );
  }
  const began = performance.now();
  const caller = createHttpCaller(credentials);
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const answer = await caller.request(baseUrl.replace(/\/+$/, '') + userPath(PROBE_USER_ID)!, {
      ...{ method: 'GET', signal },
      headers: { accept: 'application/json', ...caller.headers() },
    });
    const { text, error: brokenOff } = await readText(answer, MAX_BODY_BYTES);
    if (brokenOff) throw signal.aborted ? signal.reason : brokenOff;
    const status = answer.statusCode!;
    return diagnosisOf(status, text, `status ${status} in ${Math.round(performance.now() - began)} ms`);
  } catch (failure) {
    return error(isTimeout(failure) ? `no answer within ${timeoutMs} ms` : networkReasonOf(failure), HINT);
  } finally {
    caller.close();
  }
}

function diagnosisOf(status: number, text: string, detail: string): Diagnosis {
  if (REFUSALS.includes(status)) {
    return error(
      `${detail}: it refuses who asks`,
      'until it lets this service in, intents for users wait: NOTIFICATION_USER_SERVICE_TOKEN, or NOTIFICATION_HTTP_CERT_FILE and …_KEY_FILE',
    );
  }
  if (status === 404) {
    return saysSubjectNotFound(text)
      ? ok(detail)
      : warn(`${detail}, without subject_not_found`, 'something else answers there: is the base URL right?');
  }
  return status >= 500 ? error(detail, HINT) : ok(detail);
}

function saysSubjectNotFound(text: string): boolean {
  try {
    return subjectNotFoundSchema.safeParse(JSON.parse(text)).success;
  } catch {
    return false;
  }
}
