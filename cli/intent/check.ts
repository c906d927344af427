/** What can be wrong with intents: their reader, the three streams, the User Service, and routes that wait or died. */
import type { Redis } from 'ioredis';
import type { CallerCredentials } from '../../activities/http/caller.ts';
import { createHttpCaller, isTimeout, networkReasonOf, readText } from '../../activities/http/caller.ts';
import { loadOffset, oldestUnprocessedAgeMs } from '../../api/intent/stream.ts';
import { subjectNotFoundSchema, userPath } from '../../api/intent/user-service.ts';
import { jsonIn } from '../../api/text.ts';
import { bridgeOperations } from '../../client/intent/holds.ts';
import type { OperatorResources } from '../../client/resources.ts';
import type { Config } from '../../config/load.ts';
import type { Check, Diagnosis } from '../checks.ts';
import { error, findIdsAhead, ok, rowCheck, warn, warnIf } from '../checks.ts';
import { countOf, durationOf } from '../output.ts';

/** An entry that waits longer says that no process reads, ms. */
const LATE_MS = 60_000;

export const intentRowChecks = ({ db }: OperatorResources): Check[] => [
  rowCheck(db, 'overdue routes', OVERDUE, ([{ overdue, paused, oldest }]: [OverdueRow]) => {
    const waiting = paused > 0 ? `; ${countOf(paused, 'route')} wait for a paused channel or producer` : '';
    if (overdue === 0) return ok(`none${waiting}`);
    return warn(
      `${countOf(overdue, 'open route')}, the oldest for ${durationOf(Date.now() - oldest!.getTime())}${waiting}`,
      'they should have been tried: are workers running? Of a channel or producer that is draining they are released now; where a resume broke off, resume again',
    );
  }),
  rowCheck(db, 'dead letters', DEAD_LETTERS, ([{ routes }]: [{ routes: number }]) =>
    routes === 0
      ? ok('none in the last 24 hours')
      : warn(
          `${countOf(routes, 'route')} died in the last 24 hours`,
          'see dead-letters list --since 24h, or Dead letters of galaxy-notify views, then replay',
        ),
  ),
  rowCheck(db, 'channels', PAUSED, (rows: SinceRow[]) =>
    rows.length === 0
      ? ok('all open, and no producer is paused')
      : warn(`paused: ${namesOf(rows)}`, 'channels resume, or producers resume, when its reason is gone'),
  ),
  rowCheck(db, 'outbound losses', SUSPECTS, (rows: SinceRow[]) =>
    rows.length === 0
      ? ok('none that is not repaired')
      : warn(
          `looked for in ${namesOf(rows)}`,
          'what is gone is appended again by itself; for routes the pending activity of outbound-repair/<stream> says what it waits for',
        ),
  ),
  // This process cannot know whether other processes tell outcomes: rows say it.
  rowCheck(db, 'outcomes', WAITING_OUTCOMES, ([{ ageMs }]: [{ ageMs: number | null }]) =>
    ageMs === null || ageMs < LATE_MS
      ? ok('none waits to be relayed')
      : warn(
          `the oldest event for producers has waited for ${durationOf(ageMs)}`,
          'Redis does not take it, a loss is being repaired, or no process runs with NOTIFICATION_OUTCOMES: see its log',
        ),
  ),
];

interface OverdueRow {
  overdue: number;
  paused: number;
  oldest: Date | null;
}

interface SinceRow {
  name: string;
  since: Date;
  reason: string | null;
}

const namesOf = (rows: SinceRow[]): string =>
  rows
    .map(({ name, since, reason }) => `${name} since ${since.toISOString()}${reason ? ` (${reason})` : ''}`)
    .join('; ');

export const intentStreamChecks = ({ redis }: OperatorResources, values: Config['values']): Check[] => [
  ['intents stream', () => intents(redis, values.NOTIFICATION_INTENTS_STREAM)],
  ['gateway stream', () => outbound(redis, values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM)],
  ['mail stream', () => outbound(redis, values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM)],
];

export async function diagnoseReader(resources: OperatorResources): Promise<Diagnosis> {
  const status = await bridgeOperations(resources).status();
  const { state, pause, progress } = status;
  if (state === 'not running')
    return error(`${status.workflowId} does not run`, 'start the service: it starts the reader');
  if (status.isPaused) {
    return warn(
      `${state} by ${pause?.by ?? 'an unknown operator'}${pause?.since ? ` since ${pause.since.toISOString()}` : ''}: ${pause?.reason ?? ''}`,
      'intake is stopped until: bridge resume',
    );
  }
  const idle = state === 'reading' ? [] : [`${state}: ${status.lastFailure ?? 'no worker has it'}`];
  const findings = (progress?.findings ?? []).map(({ kind, message }) => `${kind}: ${message}`);
  // A reader that has stopped keeps its last findings, which may be old: its state comes first.
  if (findings.length > 0) return error([...idle, ...findings].join('; '), 'see bridge status');
  if (idle.length > 0) return warn(idle.join(), 'see bridge status; it should read within seconds');
  return ok(
    `reading on ${status.worker ?? 'a worker'}, lag ${durationOf(Math.max(0, progress?.lagMs ?? 0))}`,
  );
}

/** What Redis lost is a finding of the reader. */
async function intents(redis: Redis, stream: string): Promise<Diagnosis> {
  const [type, offset] = await Promise.all([redis.type(stream), loadOffset(redis, stream)]);
  if (type === 'none') return ok(`${stream} does not exist`);
  if (type !== 'stream')
    return error(`${stream} holds a ${type}`, 'rename that key: the reader needs a stream');
  const ahead = await findIdsAhead(redis, stream);
  if (ahead !== undefined) return ahead;
  const ageMs = await oldestUnprocessedAgeMs(redis, stream, offset, Date.now());
  const detail =
    ageMs === 0 ? `all read, offset ${offset}` : `behind by ${durationOf(ageMs)}, offset ${offset}`;
  return warnIf(ageMs > LATE_MS, detail, 'no process reads, or not fast enough: see bridge status');
}

async function outbound(redis: Redis, stream: string): Promise<Diagnosis> {
  const type = await redis.type(stream);
  return type === 'none' || type === 'stream'
    ? ok(type === 'none' ? `${stream} does not exist` : `${stream} takes entries`)
    : error(`${stream} holds a ${type}`, 'rename that key: every hand-off fails, and routes die');
}

const WAITING_OUTCOMES = `
  SELECT (extract(epoch FROM clock_timestamp() - written_at) * 1000)::float8 AS "ageMs"
    FROM (SELECT min(outcome_id) AS outcome_id FROM notification.outcomes WHERE relayed_at IS NULL) AS first
    LEFT JOIN notification.outcomes USING (outcome_id)`;

const SUSPECTS = `
  SELECT stream AS name, suspect_reason AS reason, suspect_since AS since
    FROM notification.outbound_streams
   WHERE suspect_since IS NOT NULL
   ORDER BY stream`;

const OVERDUE = `
  SELECT count(*) FILTER (WHERE NOT is_paused)::int AS overdue,
         count(*) FILTER (WHERE is_paused)::int AS paused,
         min(next_attempt_at) FILTER (WHERE NOT is_paused) AS oldest
    FROM notification.routes AS route
    JOIN notification.records USING (notification_id)
   CROSS JOIN LATERAL (
         SELECT EXISTS (SELECT
                          FROM notification.holds
                         WHERE is_paused
                           AND (kind, name) IN (('channel', route.channel), ('producer', producer))) AS is_paused) AS held
   WHERE next_attempt_at < now() - interval '1 minute'`;

const DEAD_LETTERS = `
  SELECT count(*)::int AS routes
    FROM notification.routes
   WHERE status = 'dead_letter' AND dead_lettered_at > now() - interval '24 hours'`;

const PAUSED = `
  SELECT CASE kind WHEN 'producer' THEN 'producer:' || name ELSE name END AS name, reason, changed_at AS since
    FROM notification.holds
   WHERE is_paused AND kind IN ('channel', 'producer')
   ORDER BY kind, name`;

/** No user has this id; asking for it shows whether the service answers as it should. */
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
    const isKnown = subjectNotFoundSchema.safeParse(jsonIn(text)).success;
    const found = isKnown ? detail : `${detail}, without subject_not_found`;
    return warnIf(!isKnown, found, 'something else answers there: is the base URL right?');
  }
  return status >= 500 ? error(detail, HINT) : ok(detail);
}
