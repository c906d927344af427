/** Why a recipient got the push or e-mail of an intent, or did not. */
import { routeRefOf } from '../../api/ids.ts';
import { isUrgentType } from '../../api/intent/catalog.ts';
import type { SkipReason } from '../../api/intent/outcome.ts';
import { durationOf, shellWord, timeOf } from '../../api/text.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { Cause, FoundCause, Question } from '../places.ts';
import type { OperatorResources } from '../resources.ts';
import { WHY_OPEN } from './intents.ts';

/** A route that is overdue for so long has no worker: lost work is taken up within about two minutes. */
const OVERDUE_AFTER_MS = 120_000;
/** What is published so long after it could be is late. */
const LATE_AFTER_MS = 60_000;
/** Open intents that are read. */
const OPEN_LOOKED_INTO = 50_000;

/** @returns what rows say, newest first. */
export async function findIntentCauses(
  { db, catalog }: Pick<OperatorResources, 'db' | 'catalog'>,
  { recipient, since, type, limit }: Question,
): Promise<FoundCause[]> {
  const named = JSON.stringify([recipient]);
  const ask = async <Row extends object = IntentRow>(text: string, ...values: unknown[]) =>
    (await db.query<Row>(text, values)).rows;
  const [routes, waiting, refused, cancelled] = await Promise.all([
    ask<RouteRow>(FIND_ROUTES, [`user:${recipient}`, `email:${recipient}`], since, type ?? null, limit),
    ask(FIND_WAITING, named, type ?? null, limit),
    ask(FIND_REFUSED, named, since, type ?? null, limit),
    // The row of a cancelled intent has lost its type.
    type === undefined ? ask(FIND_CANCELLED, named, since, limit) : [],
  ]);
  const originals = [...new Set(routes.map(({ notification_id }) => notification_id))];
  const repeats = originals.length === 0 ? [] : await ask(FIND_REPEATS, originals, limit);
  return [
    ...routes.map((row) => causeOfRoute(row, isUrgentType(catalog, row.type))),
    ...waiting.map(({ id, at, type, reason }): FoundCause => ({
      ...{ cause: 'waiting_for_acceptance', at, id, type, workflowId: notificationWorkflowId(id) },
      sentence: `${type} has been waiting to be accepted since ${timeOf(at)}: ${reason ?? 'its turn has not come'}`,
    })),
    ...refused.map(({ id, at, type, key, other, reason }): FoundCause => ({
      ...{ cause: other === null ? 'refused' : 'key_conflict', at, id, type },
      sentence:
        other === null
          ? `${type ?? 'an entry that names no type'} was refused because of ${reason}`
          : `${type} was refused because its key ${key} is that of ${other}, with other content`,
    })),
    ...repeats.map(({ id, at, type, key, other }): FoundCause => ({
      ...{ cause: 'duplicate', at, id, type },
      sentence: `a second ${type} with the key ${key} came, is a duplicate of ${other}, and sends nothing more`,
    })),
    ...cancelled.map(({ id, at, key, other }): FoundCause => ({
      ...{ cause: 'cancelled_before_acceptance', at, id },
      sentence: `an operator cancelled the intent of ${other} with the key ${key} at ${timeOf(at)}, before it was accepted`,
    })),
  ];
}

function causeOfRoute(row: RouteRow, isUrgent: boolean): FoundCause {
  const { notification_id: id, type, channel } = row;
  const isOpen = row.status === 'pending' || row.status === 'failed';
  const [cause, what, at = row.settled_at!] = isOpen ? causeOfOpenRoute(row) : causeOfSettledRoute(row);
  const isReplayed = cause === 'dead' ? row.replayed_at !== null : row.died_at !== null;
  return {
    ...{ cause, at, id, type, channel },
    sentence: `the ${isUrgent ? 'urgent ' : ''}${channel === 'push' ? 'push' : 'e-mail'} of ${type} ${what}${isReplayed ? `; ${replayOf(row)}` : ''}`,
    // What acceptance skips has no workflow.
    workflowId:
      row.status === 'skipped' && row.settled_at!.getTime() === row.accepted_at.getTime()
        ? notificationWorkflowId(id)
        : routeWorkflowId(id, routeRefOf(row.route_id)),
  };
}

/** Without a time it is the one at which the route was settled. */
type CauseOfRoute = [cause: Cause, what: string, at?: Date];

function causeOfSettledRoute(row: RouteRow): CauseOfRoute {
  const { accepted_at: acceptedAt, classification, message } = row;
  const at = row.settled_at!;
  const time = timeOf(at);
  if (row.status === 'published') {
    const entry = row.entry_id === null ? '' : ` as entry ${row.entry_id}`;
    const lateMs = at.getTime() - acceptedAt.getTime();
    const late = lateMs < LATE_AFTER_MS ? '' : `, ${durationOf(lateMs)} late`;
    return ['published', `was published at ${time}${entry}, by attempt ${row.attempt_count}${late}`];
  }
  if (row.status === 'dead_letter') {
    const next = row.is_expired
      ? `it expired at ${timeOf(row.expires_at!)}, so a replay does not send it`
      : `galaxy-notify replay ${row.notification_id} ${shellWord(row.route_id)}`;
    return [
      'dead',
      `is dead since ${time}, after ${row.attempt_count} of ${row.max_attempts} attempts, because of ${failureOf(row)}; ${next}`,
    ];
  }
  if (classification === 'expired')
    return ['expired', `was skipped at ${time} because it came too late: ${message}`];
  if (at.getTime() !== acceptedAt.getTime())
    return ['cancelled', `was skipped because an operator cancelled it at ${time}`];
  return classification === null
    ? ['not_on_this_channel', 'was skipped because its type does not use this channel']
    : [classification as SkipReason, `was skipped: ${message}`];
}

/** A route that expires while it waits is skipped by its next attempt, however long that is away. */
function causeOfOpenRoute(row: RouteRow): CauseOfRoute {
  const [cause, what, at] = causeOfWaiting(row);
  if (row.expires_at === null) return [cause, what, at];
  const until = timeOf(row.expires_at);
  const end = row.is_expired ? `it expired at ${until}, and is skipped then` : `it expires at ${until}`;
  return [cause, `${what}; ${end}`, at];
}

function causeOfWaiting(row: RouteRow): Required<CauseOfRoute> {
  const { accepted_at: acceptedAt, paused_at: pausedAt, replayed_at: replayedAt } = row;
  const nextAt = row.next_attempt_at!;
  if (pausedAt !== null) {
    const reason = row.pause_reason === null ? '' : `: ${row.pause_reason}`;
    const paused = `${row.held!.replace('producer:', 'the producer ')} since ${timeOf(pausedAt)}${reason}`;
    const cause = row.held === row.channel ? 'channel_paused' : 'producer_paused';
    return [cause, `waits: ${row.paused_by} has paused ${paused}`, pausedAt];
  }
  if (row.overdue_ms > OVERDUE_AFTER_MS) {
    const what = `has been due since ${timeOf(nextAt)} and no worker publishes it; galaxy-notify doctor names what is away`;
    return ['overdue', what, nextAt];
  }
  if (row.status === 'failed') {
    const what = `has failed ${row.attempt_count} of ${row.max_attempts} times, the last time because of ${failureOf(row)}`;
    return ['retrying', `${what}, and is tried again at ${timeOf(nextAt)}`, acceptedAt];
  }
  return replayedAt === null
    ? ['waiting_for_attempt', `was accepted at ${timeOf(acceptedAt)} and waits for its attempt`, acceptedAt]
    : ['replayed', 'waits for the attempt of its replay', replayedAt];
}

/** That it died, and who replayed it in which of three ways: an operator, an operation on many, or Temporal's own tools. */
function replayOf({ died_at: diedAt, death, replays, replay_id: id, ...row }: RouteRow): string {
  const died = diedAt === null ? 'it died' : `it died at ${timeOf(diedAt)} because of ${death}`;
  if (row.replayed_at === null) return died;
  const way = id!.startsWith(orderIdOf(''))
    ? ` with the operation ${id!.slice(orderIdOf('').length)}`
    : /\/signal-\d+$/.test(id!)
      ? ''
      : " with Temporal's own tools";
  const often = replays > 1 ? `, the last of ${replays} replays` : '';
  return `${died}, and ${row.replayed_by} replayed it at ${timeOf(row.replayed_at)}${way}${often}`;
}

const failureOf = ({ classification, message }: RouteRow): string =>
  [classification, message].filter(Boolean).join(': ');

interface RouteRow {
  notification_id: string;
  route_id: string;
  type: string;
  channel: string;
  status: 'pending' | 'published' | 'failed' | 'dead_letter' | 'skipped';
  attempt_count: number;
  max_attempts: number;
  accepted_at: Date;
  /** Of an open route, when it died last. */
  settled_at: Date | null;
  next_attempt_at: Date | null;
  overdue_ms: number;
  entry_id: string | null;
  classification: string | null;
  message: string | null;
  expires_at: Date | null;
  is_expired: boolean;
  /** The channel, or the producer after `producer:`, that an operator has paused. */
  held: string | null;
  paused_at: Date | null;
  paused_by: string | null;
  pause_reason: string | null;
  /** Of its first death, with its failure. */
  died_at: Date | null;
  death: string | null;
  /** Of the last replay. */
  replay_id: string | null;
  replayed_at: Date | null;
  replayed_by: string | null;
  replays: number;
}

/** What all other statements select, each a part of it. */
interface IntentRow {
  /** Of the notification, or of the entry that was refused. */
  id: string;
  at: Date;
  type: string | null;
  key: string | null;
  /** What the sentence names besides: the original, the intent with the same key, or the producer. */
  other: string | null;
  reason: string | null;
}

/** $1 recipients as routes name them, $2 since, $3 type or null, $4 limit. */
const FIND_ROUTES = `
  SELECT route.notification_id, route_id, notification_type AS type, route.channel, status, attempt_count, route.max_attempts,
         route.created_at AS accepted_at, coalesce(published_at, skipped_at, dead_lettered_at) AS settled_at,
         next_attempt_at, coalesce(extract(epoch FROM now() - next_attempt_at) * 1000, 0)::float8 AS overdue_ms, entry_id,
         last_error_classification AS classification, last_error_message AS message, expires_at,
         coalesce(expires_at <= now(), false) AS is_expired, held, changed_at AS paused_at, changed_by AS paused_by,
         reason AS pause_reason, dead.created_at AS died_at, failure_classification || ': ' || failure_message AS death,
         replay_id, replay.created_at AS replayed_at, replay.requested_by AS replayed_by, coalesce(generation, 0) AS replays
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
         SELECT CASE kind WHEN 'producer' THEN 'producer:' || name ELSE name END AS held, changed_at, changed_by, reason
           FROM notification.holds
          WHERE is_paused AND (kind, name) IN (('channel', route.channel), ('producer', producer))
          ORDER BY kind
          LIMIT 1) AS pause ON true
    LEFT JOIN LATERAL (
         SELECT created_at, requested_by, replay_id, generation
           FROM notification.replays
          WHERE replays.notification_id = route.notification_id AND replays.route_id = route.route_id
          ORDER BY generation DESC
          LIMIT 1) AS replay ON true
    LEFT JOIN notification.dead_letters AS dead USING (notification_id, route_id)`;

/** Of a backlog, as many as take some tenths of a second. $1 a list of the one recipient, $2 type or null, $3 limit. */
const FIND_WAITING = `
  WITH open AS MATERIALIZED (
    SELECT * FROM notification.intents WHERE status = 'open' LIMIT ${OPEN_LOOKED_INTO}
  )
  SELECT notification_id AS id, notification_type AS type, read_at AS at, ${WHY_OPEN} AS reason
    FROM open
   WHERE entry -> 'recipientUserIds' @> $1::jsonb AND ($2::text IS NULL OR notification_type = $2)
   ORDER BY read_at DESC
   LIMIT $3`;

/** By the recipient first, whatever the time is. $1 as before, $2 since, $3 type or null, $4 limit. */
const FIND_REFUSED = `
  WITH named AS MATERIALIZED (
    SELECT * FROM notification.malformed_intents WHERE notification.named_users(raw_fields) @> $1::jsonb
  )
  SELECT stream_entry_id AS id, notification_type AS type, idempotency_key AS key,
         failure_code || ': ' || failure_message AS reason, recorded_at AS at, conflicts_with AS other
    FROM named
   WHERE recorded_at >= $2 AND ($3::text IS NULL OR notification_type = $3)
   ORDER BY recorded_at DESC
   LIMIT $4`;

/** $1 as before, $2 since, $3 limit. */
const FIND_CANCELLED = `
  WITH named AS MATERIALIZED (
    SELECT * FROM notification.intents WHERE status = 'cancelled' AND recipient_user_ids @> $1::jsonb
  )
  SELECT notification_id AS id, producer AS other, idempotency_key AS key, updated_at AS at
    FROM named
   WHERE updated_at >= $2
   ORDER BY updated_at DESC
   LIMIT $3`;

/** $1 notifications, $2 limit. */
const FIND_REPEATS = `
  SELECT notification_id AS id, other, notification_type AS type, idempotency_key AS key, updated_at AS at
    FROM notification.intents
   WHERE status = 'duplicate' AND other = ANY ($1::text[])
   ORDER BY updated_at DESC
   LIMIT $2`;

/** Of tests, which plan them. */
export const STATEMENTS = { FIND_ROUTES, FIND_WAITING, FIND_REFUSED, FIND_CANCELLED, FIND_REPEATS };
