/** What can be wrong with intents: their reader, the three streams, what is held or lost, and the User Service. */
import type { Redis } from 'ioredis';
import type { CallerCredentials } from '../../activities/http/caller.ts';
import { createHttpCaller } from '../../activities/http/caller.ts';
import { createUserService } from '../../activities/intent/user-service.ts';
import { bridgeOperations } from '../../client/intent/holds.ts';
import type { OperatorResources } from '../../client/resources.ts';
import type { Config } from '../../config/load.ts';
import type { Check, Diagnosis } from '../checks.ts';
import { error, findIdsAhead, ok, rowCheck, warn } from '../checks.ts';
import { durationOf } from '../output.ts';

export const intentRowChecks = ({ db }: OperatorResources): Check[] => [
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
];

interface SinceRow {
  name: string;
  since: Date;
  reason: string | null;
}

const namesOf = (rows: SinceRow[]): string =>
  rows
    .map(({ name, since, reason }) => `${name} since ${since.toISOString()}${reason ? ` (${reason})` : ''}`)
    .join('; ');

const OUTBOUND_FAILS = 'every hand-off fails, and routes die';

export const intentStreamChecks = ({ redis }: OperatorResources, values: Config['values']): Check[] => [
  ['intents stream', () => intents(redis, values.NOTIFICATION_INTENTS_STREAM)],
  ['gateway stream', () => streamAt(redis, values.NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM, OUTBOUND_FAILS)],
  ['mail stream', () => streamAt(redis, values.NOTIFICATION_MAIL_DELIVERY_COMMANDS_STREAM, OUTBOUND_FAILS)],
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

/** @param fails what does while the key holds something else. */
async function streamAt(redis: Redis, stream: string, fails: string): Promise<Diagnosis> {
  const type = await redis.type(stream);
  return type === 'none' || type === 'stream'
    ? ok(type === 'none' ? `${stream} does not exist` : `${stream} takes entries`)
    : error(`${stream} holds a ${type}`, `rename that key: ${fails}`);
}

async function intents(redis: Redis, stream: string): Promise<Diagnosis> {
  const found = await streamAt(redis, stream, 'the reader needs a stream');
  return found.status === 'ok' ? ((await findIdsAhead(redis, stream)) ?? found) : found;
}

const SUSPECTS = `
  SELECT stream AS name, suspect_reason AS reason, suspect_since AS since
    FROM notification.outbound_streams
   WHERE suspect_since IS NOT NULL
   ORDER BY stream`;

const PAUSED = `
  SELECT CASE kind WHEN 'producer' THEN 'producer:' || name ELSE name END AS name, reason, changed_at AS since
    FROM notification.holds
   WHERE is_paused AND kind IN ('channel', 'producer')
   ORDER BY kind, name`;

/** No user has this id; asking for it shows whether the service answers as it should. */
const PROBE_USER_ID = 'galaxy-notify-doctor';

/**
 * Asks as the service asks.
 *
 * @param timeoutMs for the whole exchange.
 */
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
  try {
    await createUserService({ baseUrl, timeoutMs, caller, log: SILENT }).findRecipient(PROBE_USER_ID);
    return ok(`answers in ${Math.round(performance.now() - began)} ms`);
  } catch (failure) {
    return error(
      (failure as Error).message,
      'until it answers, intents for users wait, and nothing is lost: NOTIFICATION_USER_SERVICE_BASE_URL; when it refuses who asks, NOTIFICATION_USER_SERVICE_TOKEN, or NOTIFICATION_HTTP_CERT_FILE and …_KEY_FILE',
    );
  } finally {
    caller.close();
  }
}

/** One lookup has nothing to log. */
const SILENT = { info: () => undefined, warn: () => undefined };
