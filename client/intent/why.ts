/** Why a recipient got the push or e-mail of an intent, or did not. */
import { routeRefOf } from '../../api/ids.ts';
import { isUrgentType } from '../../api/intent/catalog.ts';
import { ROUTE_EXPIRED } from '../../api/intent/outcome.ts';
import { loadOffset } from '../../api/intent/stream.ts';
import { LAST_ENTRY_ID, timeOfEntry } from '../../api/stream-ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Answer, Cause, Question } from '../causes.ts';
import { timeOf } from '../causes.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { bridgeOperations } from './bridge.ts';

/** Overdue for so long, a route has nobody who works on it: work that is lost is taken up within about two minutes. */
const OVERDUE_AFTER_MS = 120_000;
/** Entries behind the reader that are looked into, the next ones. */
const UNREAD_LOOKED_INTO = 1_000;
/** Intents that are not decided and are looked into. */
const OPEN_LOOKED_INTO = 50_000;
/** How acceptance marks a route of a recipient for whom the User Service has no usable answer. */
const RECIPIENT_UNUSABLE = 'recipient_unusable';

type Queries = Pick<OperatorResources, 'db' | 'catalog' | 'uiUrl' | 'namespace'>;

/** What rows say, newest first. */
export async function intentAnswers(resources: Queries, question: Question): Promise<Answer[]> {
  const { recipient, since, type, limit } = question;
  const named = JSON.stringify([recipient]);
  const ask = async <Row extends object>(text: string, ...values: unknown[]) =>
    (await resources.db.query<Row>(text, values)).rows;
  const [routes, waiting, refused, cancelled, suspect] = await Promise.all([
    ask<RouteRow>(FIND_ROUTES, [`user:${recipient}`, `email:${recipient}`], since, type ?? null, limit),
    ask<WaitingRow>(FIND_WAITING, named, type ?? null, limit),
    ask<RefusedRow>(FIND_REFUSED, named, since, type ?? null, limit),
    // What type it was of is not known any more.
    type === undefined ? ask<CancelledRow>(FIND_CANCELLED, named, since, limit) : [],
    ask<SuspectRow>(FIND_SUSPECTS),
  ]);
  const originals = [...new Set(routes.map(({ notificationId }) => notificationId))];
  const repeats = originals.length === 0 ? [] : await ask<RepeatRow>(FIND_REPEATS, originals, limit);
  return [
    ...routes.map((row) => answerOfRoute(resources, row)),
    ...(routes.some(({ status }) => status === 'published') ? suspect.map(answerOfSuspect) : []),
    ...waiting.map((row): Answer => ({
      kind: 'intent',
      cause: 'waiting_for_acceptance',
      at: row.since,
      id: row.notificationId,
      type: row.type,
      sentence: `${row.type} has been waiting to be accepted since ${timeOf(row.since)}: ${row.reason ?? 'its turn has not come'}`,
      ...linkField(resources, notificationWorkflowId(row.notificationId)),
    })),
    ...refused.map(answerOfRefused),
    ...repeats.map((row): Answer => ({
      kind: 'intent',
      cause: 'duplicate',
      at: row.decidedAt,
      id: row.notificationId,
      type: row.type,
      sentence: `a second ${row.type} with the key ${row.key} came, is a duplicate of ${row.of}, and sends nothing more`,
    })),
    ...cancelled.map((row): Answer => ({
      kind: 'intent',
      cause: 'cancelled_before_acceptance',
      at: row.at,
      id: row.notificationId,
      sentence: `an operator cancelled the intent of ${row.producer} with the key ${row.key} at ${timeOf(row.at)}, before it was accepted`,
    })),
  ];
}

/** What the stream holds behind the reader, as far as it is looked into, and how much more there is. */
export async function unreadAnswers(
  resources: OperatorResources,
  { recipient, type }: Question,
): Promise<{ answers: Answer[]; notLookedInto: number }> {
  const { redis, intentsStream } = resources;
  const offset = await loadOffset(redis, intentsStream);
  const [looked, left, ...found] = (await redis.eval_ro(
    FIND_UNREAD,
    1,
    intentsStream,
    offset,
    String(UNREAD_LOOKED_INTO),
    JSON.stringify(recipient),
  )) as [number, number, ...(readonly [id: string, type: string])[]];
  const matching = found.filter(([, of]) => type === undefined || of === type);
  const reader = matching.length === 0 ? '' : await readerSays();
  return {
    answers: matching.map(([id, of]) => ({
      kind: 'intent',
      cause: 'unread',
      at: timeOfEntry(id),
      id,
      type: of,
      sentence: `${of} is in ${intentsStream} and has not been read yet${reader}`,
    })),
    notLookedInto: looked < UNREAD_LOOKED_INTO ? 0 : left,
  };

  async function readerSays(): Promise<string> {
    const bridge = await bridgeOperations(resources)
      .status()
      .catch(() => undefined);
    if (bridge?.pause === undefined) return bridge ? `; the reader is ${bridge.state}` : '';
    const { by, reason, since } = bridge.pause;
    return `; ${by} has paused the reader${since ? ` at ${timeOf(since)}` : ''}: ${reason}`;
  }
}

function answerOfRoute(resources: Queries, row: RouteRow): Answer {
  const [cause, at, what] = causeOfRoute(row);
  return {
    kind: 'intent',
    cause,
    at,
    id: row.notificationId,
    type: row.type,
    channel: row.channel,
    sentence: `the ${nameOf(resources, row)} of ${row.type} ${what}`,
    ...linkField(
      resources,
      cause === 'not_on_this_channel' || cause === 'recipient_unusable'
        ? notificationWorkflowId(row.notificationId)
        : routeWorkflowId(row.notificationId, routeRefOf(row.routeId)),
    ),
  };
}

const nameOf = ({ catalog }: Queries, { channel, type }: RouteRow): string =>
  `${isUrgentType(catalog, type) ? 'urgent ' : ''}${channel === 'push' ? 'push' : 'e-mail'}`;

function causeOfRoute(row: RouteRow): [Cause, at: Date, what: string] {
  const { acceptedAt, lastClassification, lastMessage } = row;
  const failure = [lastClassification, lastMessage].filter(Boolean).join(': ');
  switch (row.status) {
    case 'published':
      return [
        'published',
        row.settledAt!,
        `was published at ${timeOf(row.settledAt!)}${row.entryId === null ? '' : ` as entry ${row.entryId}`}, by attempt ${row.attempts}`,
      ];
    case 'skipped':
      if (lastClassification === ROUTE_EXPIRED) {
        return [
          'expired',
          row.settledAt!,
          `was skipped at ${timeOf(row.settledAt!)} because it came too late: ${lastMessage}`,
        ];
      }
      if (row.settledAt!.getTime() !== acceptedAt.getTime()) {
        return [
          'cancelled',
          row.settledAt!,
          `was skipped because an operator cancelled it at ${timeOf(row.settledAt!)}`,
        ];
      }
      return lastClassification === RECIPIENT_UNUSABLE
        ? [
            'recipient_unusable',
            acceptedAt,
            `was skipped because of what is known of the user: ${lastMessage}`,
          ]
        : ['not_on_this_channel', acceptedAt, 'was skipped because its type does not use this channel'];
    case 'dead_letter':
      return [
        'dead',
        row.settledAt!,
        `is dead since ${timeOf(row.settledAt!)}, after ${row.attempts} of ${row.maxAttempts} attempts, because of ${failure}; ${row.isExpired ? `it expired at ${timeOf(row.expiresAt!)}, so a replay does not send it` : `galaxy-notify replay ${row.notificationId} ${row.routeId}`}`,
      ];
    case 'pending':
    case 'failed':
      return withExpiry(row, causeOfOpenRoute(row, failure));
  }
}

/** What expires while it waits is skipped by its next attempt, however long that is away. */
function withExpiry(
  { expiresAt, isExpired }: RouteRow,
  [cause, at, what]: [Cause, Date, string],
): [Cause, Date, string] {
  if (expiresAt === null) return [cause, at, what];
  const until = timeOf(expiresAt);
  const more = isExpired ? `it expired at ${until}, and is skipped then` : `it expires at ${until}`;
  return [cause, at, `${what}; ${more}`];
}

function causeOfOpenRoute(row: RouteRow, failure: string): [Cause, at: Date, what: string] {
  const { acceptedAt, attempts, maxAttempts, pausedSince, replayedAt } = row;
  const nextAt = row.nextAttemptAt!;
  if (pausedSince !== null) {
    return [
      row.held === row.channel ? 'channel_paused' : 'producer_paused',
      pausedSince,
      `waits: ${row.pausedBy} has paused ${row.held!.replace('producer:', 'the producer ')} since ${timeOf(pausedSince)}${row.pauseReason === null ? '' : `: ${row.pauseReason}`}`,
    ];
  }
  if (row.overdueMs > OVERDUE_AFTER_MS) {
    return [
      'overdue',
      nextAt,
      `has been due since ${timeOf(nextAt)} and nobody publishes it; galaxy-notify doctor names what is away`,
    ];
  }
  if (row.status === 'failed') {
    return [
      'retrying',
      acceptedAt,
      `has failed ${attempts} of ${maxAttempts} times, the last time because of ${failure}, and is tried again at ${timeOf(nextAt)}`,
    ];
  }
  if (replayedAt !== null) {
    return [
      'replayed',
      replayedAt,
      `died, and ${row.replayedBy} replayed it at ${timeOf(replayedAt)}; it waits for its attempt`,
    ];
  }
  return [
    'waiting_for_attempt',
    acceptedAt,
    `was accepted at ${timeOf(acceptedAt)} and waits for its attempt`,
  ];
}

function answerOfRefused(row: RefusedRow): Answer {
  const isConflict = row.conflictsWith !== null;
  return {
    kind: 'intent',
    cause: isConflict ? 'key_conflict' : 'refused',
    at: row.at,
    id: row.entryId,
    ...(row.type === null ? {} : { type: row.type }),
    sentence: isConflict
      ? `${row.type} was refused because its key ${row.key} is that of ${row.conflictsWith}, with other content`
      : `${row.type ?? 'an entry that names no type'} was refused because of ${row.code}: ${row.message}`,
  };
}

const answerOfSuspect = ({ stream, since, reason }: SuspectRow): Answer => ({
  kind: 'intent',
  cause: 'stream_in_doubt',
  at: since,
  sentence: `${stream} may have lost entries (${reason}): what was published to it is checked since ${timeOf(since)}, and handed off again where it is gone`,
});

interface RouteRow {
  notificationId: string;
  routeId: string;
  type: string;
  channel: string;
  status: 'pending' | 'published' | 'failed' | 'dead_letter' | 'skipped';
  attempts: number;
  maxAttempts: number;
  acceptedAt: Date;
  settledAt: Date | null;
  nextAttemptAt: Date | null;
  overdueMs: number;
  entryId: string | null;
  lastClassification: string | null;
  lastMessage: string | null;
  expiresAt: Date | null;
  isExpired: boolean;
  /** The channel, or the producer after `producer:`, that operators have paused. */
  held: string | null;
  pausedSince: Date | null;
  pausedBy: string | null;
  pauseReason: string | null;
  replayedAt: Date | null;
  replayedBy: string | null;
}

interface WaitingRow {
  notificationId: string;
  type: string;
  since: Date;
  /** Null before the first attempt. */
  reason: string | null;
}

interface RefusedRow {
  entryId: string;
  type: string | null;
  key: string | null;
  code: string;
  message: string;
  at: Date;
  conflictsWith: string | null;
}

interface CancelledRow {
  notificationId: string;
  producer: string;
  key: string;
  at: Date;
}

interface RepeatRow {
  notificationId: string;
  of: string;
  type: string;
  key: string;
  decidedAt: Date;
}

interface SuspectRow {
  stream: string;
  since: Date;
  reason: string;
}

/** $1 recipients as routes name them, $2 since, $3 type or null, $4 limit. */
const FIND_ROUTES = `
  SELECT route.notification_id AS "notificationId", route_id AS "routeId", notification_type AS type, route.channel,
         status, attempt_count AS attempts, max_attempts AS "maxAttempts", route.created_at AS "acceptedAt",
         coalesce(published_at, skipped_at, dead_lettered_at) AS "settledAt", next_attempt_at AS "nextAttemptAt",
         coalesce(extract(epoch FROM now() - next_attempt_at) * 1000, 0)::float8 AS "overdueMs",
         entry_id AS "entryId", last_error_classification AS "lastClassification", last_error_message AS "lastMessage",
         expires_at AS "expiresAt", coalesce(expires_at <= now(), false) AS "isExpired", held, changed_at AS "pausedSince", changed_by AS "pausedBy", reason AS "pauseReason",
         replay.created_at AS "replayedAt", replay.requested_by AS "replayedBy"
    FROM unnest($1::text[]) AS wanted (recipient_ref)
   CROSS JOIN LATERAL (
         SELECT routes.*, notification_type, producer, expires_at
           FROM notification.routes
           JOIN notification.records USING (notification_id)
          WHERE routes.recipient_ref = wanted.recipient_ref AND routes.created_at >= $2
            AND ($3::text IS NULL OR notification_type = $3)
          ORDER BY routes.created_at DESC
          LIMIT $4) AS route
    LEFT JOIN LATERAL (
         SELECT channel AS held, changed_at, changed_by, reason
           FROM notification.channels
          WHERE is_paused AND channel IN (route.channel, 'producer:' || producer)
          ORDER BY channel = route.channel DESC
          LIMIT 1) AS pause ON true
    LEFT JOIN LATERAL (
         SELECT created_at, requested_by
           FROM notification.replays
          WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id
          ORDER BY generation DESC
          LIMIT 1) AS replay ON true`;

/** Of a backlog, as many as take some tenths of a second. $1 a list of the one recipient, $2 type or null, $3 limit. */
const FIND_WAITING = `
  WITH open AS MATERIALIZED (
    SELECT * FROM notification.intents WHERE status = 'open' LIMIT ${OPEN_LOOKED_INTO}
  )
  SELECT notification_id AS "notificationId", notification_type AS type, read_at AS since, reason
    FROM open
   WHERE entry -> 'recipientUserIds' @> $1::jsonb AND ($2::text IS NULL OR notification_type = $2)
   ORDER BY read_at DESC
   LIMIT $3`;

/** By the recipient first, whatever the time is. $1 as before, $2 since, $3 type or null, $4 limit. */
const FIND_REFUSED = `
  WITH named AS MATERIALIZED (
    SELECT * FROM notification.malformed_intents WHERE notification.named_users(raw_fields) @> $1::jsonb
  )
  SELECT stream_entry_id AS "entryId", notification_type AS type, idempotency_key AS key, failure_code AS code,
         failure_message AS message, recorded_at AS at, conflicts_with AS "conflictsWith"
    FROM named
   WHERE recorded_at >= $2 AND ($3::text IS NULL OR notification_type = $3)
   ORDER BY recorded_at DESC
   LIMIT $4`;

/** $1 as before, $2 since, $3 limit. */
const FIND_CANCELLED = `
  WITH named AS MATERIALIZED (
    SELECT * FROM notification.intents WHERE status = 'cancelled' AND recipient_user_ids @> $1::jsonb
  )
  SELECT notification_id AS "notificationId", producer, idempotency_key AS key, updated_at AS at
    FROM named
   WHERE updated_at >= $2
   ORDER BY updated_at DESC
   LIMIT $3`;

/** $1 notifications, $2 limit. */
const FIND_REPEATS = `
  SELECT notification_id AS "notificationId", other AS of, notification_type AS type, idempotency_key AS key,
         updated_at AS "decidedAt"
    FROM notification.intents
   WHERE status = 'duplicate' AND other = ANY ($1::text[])
   ORDER BY updated_at DESC
   LIMIT $2`;

const FIND_SUSPECTS = `
  SELECT stream, suspect_since AS since, suspect_reason AS reason
    FROM notification.outbound_streams
   WHERE suspect_since IS NOT NULL`;

/**
 * KEYS: stream. ARGV: offset, entries to look into, the recipient as JSON has it. What entries hold stays in Redis, since
 * one may have any size.
 *
 * @returns how many were looked into, how many more there may be, and of those that name the recipient id and type.
 */
const FIND_UNREAD = `
  local answer = {0, 0}
  local from = ARGV[1]
  for _ = 1, tonumber(ARGV[2]) do
    local entry = from ~= '${LAST_ENTRY_ID}' and redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', 1)[1]
    if not entry then break end
    from = entry[1]
    answer[1] = answer[1] + 1
    local users, type = '', ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'recipient_user_ids_json' then users = entry[2][i + 1] end
      if entry[2][i] == 'notification_type' then type = entry[2][i + 1] end
    end
    if string.find(users, ARGV[3], 1, true) then answer[#answer + 1] = {from, string.sub(type, 1, 100)} end
  end
  if answer[1] == tonumber(ARGV[2]) then answer[2] = redis.call('XLEN', KEYS[1]) - answer[1] end
  return answer`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_ROUTES, FIND_WAITING, FIND_REFUSED, FIND_CANCELLED, FIND_REPEATS };
