/** Rows and outbound entries of intents, as tests look at them and wait for them. */
import { insertRecords } from '../../activities/intent/decisions.ts';
import type { Intent } from '../../api/intent/entry.ts';
import { GALAXY } from '../../api/intent/galaxy.ts';
import type { Outcome } from '../../api/intent/outcome.ts';
import { OUTCOMES_STREAM, isTerminal, readOutcome } from '../../api/intent/outcome.ts';
import { fieldsOf } from '../../api/stream-ids.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import type { Operator } from '../../client/operator.ts';
import type { ReplayRequest } from '../../workflows/intent/contract.ts';
import type { Slot } from '../harness.ts';
import { eventually } from '../harness.ts';
import { GATEWAY, MAIL } from '../service-process.ts';
import { publishTurn } from './entries.ts';

/** Routes of an intent to `user-1`. */
export const PUSH = 'push:user:user-1';
export const EMAIL = 'email:user:user-1';

export interface RouteRow {
  route_id: string;
  status: string;
  attempt_count: number;
  max_attempts: number;
  next_attempt_at: Date | null;
  resolved_email: string | null;
  resolved_locale: string | null;
  entry_id: string | null;
  published_at: Date | null;
  skipped_at: Date | null;
  dead_lettered_at: Date | null;
  created_at: Date;
  last_error_classification: string | null;
  last_error_message: string | null;
  last_error_at: Date | null;
}

/** Ordered by their ids. */
export async function routesOf({ db }: Slot, notificationId: string): Promise<RouteRow[]> {
  const { rows } = await db.query<RouteRow>(
    'SELECT * FROM notification.routes WHERE notification_id = $1 ORDER BY route_id',
    [notificationId],
  );
  return rows;
}

/** Once none of them is open any more. */
export const settledRoutes = (slot: Slot, notificationId: string) =>
  eventually(`the routes of ${notificationId} to be settled`, async () => {
    const routes = await routesOf(slot, notificationId);
    const isOpen = routes.some(({ next_attempt_at: next }) => next !== null);
    return routes.length > 0 && !isOpen && routes;
  });

export const routeIn = (
  slot: Slot,
  notificationId: string,
  routeId: string,
  status: string,
  limitMs?: number,
) =>
  eventually(
    `${routeId} of ${notificationId} to be ${status}`,
    async () => {
      const row = (await routesOf(slot, notificationId)).find(({ route_id }) => route_id === routeId);
      return row?.status === status && row;
    },
    limitMs,
  );

/** Until a route's workflow waits, because its channel or producer is paused. */
export const untilPaused = ({ client }: Slot, notificationId: string, routeRef: string) =>
  eventually(`${routeRef} of ${notificationId} to be paused`, async () => {
    const handle = client.workflow.getHandle(routeWorkflowId(notificationId, routeRef));
    const metadata = await handle.query<{ currentDetails?: string }>('__temporal_workflow_metadata');
    return metadata.currentDetails?.startsWith('Paused');
  });

/** Each with its failure in the place of its status, if it has one; in the order of their ids. */
export const untilStatuses = (slot: Slot, notificationId: string, ...expected: string[]) =>
  eventually(`${notificationId} to be ${expected.join(', ')}`, async () => {
    const statuses = (await routesOf(slot, notificationId)).map(
      ({ status, last_error_classification: failure }) => failure ?? status,
    );
    return JSON.stringify(statuses) === JSON.stringify(expected);
  });

/** Until both routes of each are published, whatever other routes there are. */
export const bothPublished = ({ db }: Slot, notificationIds: readonly string[]) =>
  eventually(`${notificationIds.length} notifications to be published`, async () => {
    const { rows } = await db.query(
      "SELECT FROM notification.routes WHERE notification_id = ANY ($1) AND status = 'published'",
      [notificationIds],
    );
    return rows.length === 2 * notificationIds.length;
  });

/** How many rows of a table of intents meet a condition. */
export async function countOf({ db }: Slot, table: string, where = 'true', values: unknown[] = []) {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM notification.${table} WHERE ${where}`,
    values,
  );
  return rows[0]!.count;
}

/** Accepts intents that have rows, each of its users with an address, as an attempt that dies before it hands anything off. */
export const acceptRows = ({ db, redis }: Pick<Slot, 'db' | 'redis'>, intents: readonly Intent[]) => {
  const items = intents.map((intent) => {
    const recipients = intent.recipientUserIds.map((userId) => ({
      ...{ userId, email: `${userId}@example.com`, locale: 'en' as const },
    }));
    return { intent, audience: { kind: 'user' as const, recipients } };
  });
  const budgets = { push: 3, email: 7 };
  return insertRecords(db, items, { catalog: GALAXY, budgets, idempotencyTtlMs: 3_600_000, redis });
};

/** Writes records `<prefix>1` and so on, each with one open route to user-1. `age`, `reservedFor` and `overdue` are intervals of PostgreSQL. */
export const plantRecords = (
  { db }: Pick<Slot, 'db'>,
  prefix: string,
  count: number,
  {
    producer = 'game_master',
    channel = 'push',
    payload = '{}',
    age = '0',
    /** Its key. */
    reservedFor = '7 days',
    overdue = '0',
  } = {},
) =>
  db.query(
    `WITH record AS (
       INSERT INTO notification.records (notification_id, notification_type, producer, audience_kind, recipient_user_ids,
         payload_json, idempotency_key, request_fingerprint, occurred_at, accepted_at, updated_at, idempotency_expires_at)
       SELECT $1 || n, 'game.turn.ready', $3, 'user', '["user-1"]', $5, $1 || n, 'f', now(), now() - $6::interval, now(),
              now() + $7::interval
         FROM generate_series(1, $2::int) AS n
       RETURNING notification_id
     )
     INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts,
       created_at, updated_at, next_attempt_at)
     SELECT notification_id, $4 || ':user:user-1', $4, 'user:user-1', 'pending', 3, now(), now(), now() - $8::interval
       FROM record`,
    [prefix, count, producer, channel, payload, age, reservedFor, overdue],
  );

/** How the row of an intent stands; undefined while it is not read. */
export async function intentStatusOf({ db }: Slot, notificationId: string): Promise<string | undefined> {
  const { rows } = await db.query<{ status: string }>(
    'SELECT status FROM notification.intents WHERE notification_id = $1',
    [notificationId],
  );
  return rows[0]?.status;
}

export const untilIntent = (slot: Slot, notificationId: string, status: string) =>
  eventually(
    `${notificationId} to be ${status}`,
    async () => (await intentStatusOf(slot, notificationId)) === status,
  );

/** Lets the time of intents come. */
export const makeDue = ({ db }: Slot, ...notificationIds: string[]) =>
  db.query('UPDATE notification.intents SET due_at = now() WHERE notification_id = ANY ($1)', [
    notificationIds,
  ]);

/** The row of a refused entry, once there is one. */
export const refusalOf = ({ db }: Slot, entryId: string) =>
  eventually(`${entryId} to be refused`, async () => {
    const { rows } = await db.query<Record<string, unknown>>(
      'SELECT * FROM notification.malformed_intents WHERE stream_entry_id = $1',
      [entryId],
    );
    return rows[0];
  });

/** The request of `temporal workflow signal-with-start` in docs/operate/replay-and-cancel.md, to the letter. */
export const replayRoute = (
  { client }: Pick<Slot, 'client'>,
  notificationId: string,
  routeRef: string,
  request: ReplayRequest = {},
) =>
  client.workflow.signalWithStart('notificationRoute', {
    workflowId: `notification/${notificationId}/${routeRef}`,
    taskQueue: 'intent',
    args: [{ notificationId, routeRef }],
    workflowIdReusePolicy: 'ALLOW_DUPLICATE_FAILED_ONLY',
    signal: 'replay',
    signalArgs: [request],
  });

/** Publishes `game.turn.ready`, until its pushes are dead: the stream of pushes is something else from now on. */
export async function publishDead(slot: Slot, idempotencyKey: string, userIds = ['user-1']): Promise<string> {
  await slot.redis.set(GATEWAY, 'not a stream');
  const id = await publishTurn(slot.redis, idempotencyKey, userIds);
  const where = "notification_id = $1 AND status = 'dead_letter'";
  await eventually(
    `the pushes of ${id} to be dead`,
    async () => (await countOf(slot, 'routes', where, [id])) === userIds.length,
  );
  return id;
}

/** Until a service has logged a line with these fields. */
export const untilLogged = ({ logs }: Slot, fields: object) =>
  eventually(`a line with ${JSON.stringify(fields)}`, async () => {
    expect(logs).toContainEqual(expect.objectContaining(fields));
    return true;
  });

/** Cancels one notification. @returns how its routes stand once the operation has ended. */
export async function cancelOne({ operations }: Operator, notificationId: string, requestedBy = 'test') {
  const { operationId } = await operations.begin('cancel', { notificationId }, { requestedBy });
  await operations.follow(operationId, { limitMs: 60_000 });
  return operations.outcome(operationId);
}

/** What the workflow of a notification ends with, once it is started and has ended. */
export const resultOf = ({ client }: Slot, notificationId: string): Promise<unknown> =>
  eventually(`the result of ${notificationId}`, () =>
    client.workflow.getHandle(notificationWorkflowId(notificationId)).result(),
  );

/** Fields of the entries of an outbound stream, of all notifications or of one. */
export async function entriesOf(
  { redis }: Slot,
  stream: string,
  notificationId = '',
): Promise<Record<string, Buffer>[]> {
  const entries = await redis.xrangeBuffer(stream, '-', '+');
  return entries
    .map(([, flat]) => fieldsOf(flat))
    .filter((fields) => String(fields['event_id'] ?? fields['delivery_id']).startsWith(notificationId));
}

/** Until the watch has seen all that is in both outbound streams, and suspects none. */
export const outboundSeen = ({ db, redis }: Slot) =>
  eventually('the watch to see both streams', async () => {
    const { rows } = await db.query<{ last_entry_id: string }>(
      'SELECT last_entry_id FROM notification.outbound_streams WHERE suspect_since IS NULL AND stream IN ($1, $2)',
      [GATEWAY, MAIL],
    );
    const newest = await Promise.all(
      [GATEWAY, MAIL].map(async (stream) => (await redis.xrevrange(stream, '+', '-', 'COUNT', 1))[0]?.[0]),
    );
    const isSeen = newest.every((id) => id === undefined || rows.some((row) => row.last_entry_id === id));
    return rows.length === 2 && isSeen;
  });

/** What producers were told so far, of all intents or of one: each event once, since a relay repeats what is not answered. */
export async function toldOf({ redis }: Slot, notificationId?: string): Promise<Outcome[]> {
  const entries = await redis.xrange(OUTCOMES_STREAM, '-', '+');
  const outcomes = entries.map(([, list]) => readOutcome(fieldsOf(list)));
  const wanted = outcomes.filter((outcome) => [undefined, outcome.notificationId].includes(notificationId));
  return [...new Map(wanted.map((outcome) => [outcome.eventId, outcome])).values()];
}

/** What is told of an intent, once its end is. */
export const endOf = (slot: Slot, notificationId: string): Promise<Outcome[]> =>
  eventually(`the end of ${notificationId} to be told`, async () => {
    const outcomes = await toldOf(slot, notificationId);
    return outcomes.some(isTerminal) && outcomes;
  });

/** `user-1` and so on. */
export const usersUpTo = (count: number): string[] =>
  Array.from({ length: count }, (_, index) => `user-${index + 1}`);
