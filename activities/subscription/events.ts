/**
 * What clients are told about an agent: rows of an outbox, written together with what they are about, and appended to a
 * Redis stream after that. An event whose relay was cut off comes again, with the same `event_id`.
 */
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import { EVENTS_STREAM } from '../../api/stream-ids.ts';
import { query } from '../postgres.ts';
import { oneLine, reasonOf } from '../reason.ts';
import { inTransaction, run } from '../transactions.ts';
import type { RouterError } from './router/ports.ts';

/** `ERRS` is about items of a batch; the other two are about a worker or the supervisor. */
export type EventKind = 'ERRS' | 'ERR INTERNAL' | 'ERR CRITICAL';

export interface SubscriptionEvent {
  agentId: string;
  kind: EventKind;
  /** The connection id is empty where the error is about none. */
  errors: { connId: string; error: string }[];
  /** Of ERR CRITICAL: starting the worker again may help. */
  offersRestart?: boolean;
}

export interface EventResources {
  db: Pool;
  redis: Redis;
  log: Logger;
  metrics: { subscriptionEvent(attributes: { kind: EventKind }): void };
}

/** Approximate length to which the stream is trimmed: a client that was away for longer misses events. */
const EVENTS_STREAM_MAX_LEN = 10_000;

const RELAYED_TOGETHER = 100;
/** A router may write an error of any length. */
const MAX_ERROR_LENGTH = 300;

/** An error as events, logs and results show it: `NTF AUTH`, or with what is known beyond that. */
export function errorText({ source, code, detail }: RouterError): string {
  const text = detail === undefined ? `${source} ${code}` : `${source} ${code}: ${detail}`;
  return oneLine(text).slice(0, MAX_ERROR_LENGTH);
}

export async function writeEvent(client: PoolClient, event: SubscriptionEvent): Promise<void> {
  const { agentId, kind, errors, offersRestart = false } = event;
  if (errors.length === 0) return;
  await run(client, INSERT_EVENT, [agentId, kind, JSON.stringify(errors), offersRestart]);
}

/** Logs and counts an event; once its transaction has ended. */
export function announceEvent(
  { log, metrics }: Pick<EventResources, 'log' | 'metrics'>,
  { agentId, kind, errors }: SubscriptionEvent,
): void {
  if (errors.length === 0) return;
  metrics.subscriptionEvent({ kind });
  log.warn(
    { agent_id: agentId, kind, errors: errors.slice(0, 20), count: errors.length },
    'subscription errors',
  );
}

/**
 * Appends events that wait to the stream, oldest first. One process at a time does; any other returns immediately. The
 * one that does looks again after it has let go: whoever was turned away in the meantime relies on that.
 *
 * @returns how many. @throws when Redis or PostgreSQL do not answer.
 */
export async function relayEvents({ db, redis }: EventResources): Promise<number> {
  let relayed = 0;
  for (;;) {
    const batch = await inTransaction(db, async (client) => {
      const [lock] = await run<{ is_ours: boolean }>(client, LOCK_RELAY, []);
      if (!lock?.is_ours) return undefined;
      const events = await run<EventRow>(client, LOAD_EVENTS, [RELAYED_TOGETHER]);
      const entryIds: string[] = [];
      for (const event of events) {
        entryIds.push(await append(redis, event));
      }
      await run(client, MARK_RELAYED, [events.map(({ event_id }) => event_id), entryIds]);
      return events.length;
    });
    relayed += batch ?? 0;
    if (batch === undefined) return relayed;
    const [left] = await query<{ is_any: boolean }>(db, ARE_EVENTS_LEFT, []);
    if (!left?.is_any) return relayed;
  }
}

/** As `relayEvents`, but only logs a failure; the sweep relays the events that stay behind. */
export async function relayEventsIfPossible(resources: EventResources): Promise<void> {
  try {
    await relayEvents(resources);
  } catch (error) {
    resources.log.warn({ reason: reasonOf(error) }, 'subscription events wait for the next sweep');
  }
}

async function append(redis: Redis, event: EventRow): Promise<string> {
  const entryId = await redis.xadd(
    EVENTS_STREAM,
    'MAXLEN',
    '~',
    EVENTS_STREAM_MAX_LEN,
    '*',
    'event_id',
    event.event_id,
    'agent_id',
    event.agent_id,
    'kind',
    event.kind,
    'errors_json',
    JSON.stringify(event.errors),
    'offers_restart',
    String(event.offers_restart),
    'occurred_at_ms',
    String(event.created_at.getTime()),
  );
  // Null only for a command that may not make the stream.
  return entryId!;
}

interface EventRow {
  event_id: string;
  agent_id: string;
  kind: EventKind;
  errors: SubscriptionEvent['errors'];
  offers_restart: boolean;
  created_at: Date;
}

const INSERT_EVENT = {
  name: 'insert_subscription_event',
  text: `
    INSERT INTO subscriptions.events (agent_id, kind, errors, offers_restart) VALUES ($1, $2, $3::jsonb, $4)`,
};

/** No other lock has this number; the lock ends with the transaction. */
const LOCK_RELAY = {
  name: 'lock_subscription_relay',
  text: 'SELECT pg_try_advisory_xact_lock(4207716001) AS is_ours',
};

const LOAD_EVENTS = {
  name: 'load_subscription_events',
  text: `
    SELECT event_id::text, agent_id, kind, errors, offers_restart, created_at
      FROM subscriptions.events AS event
     WHERE relayed_at IS NULL
     ORDER BY event.event_id
     LIMIT $1`,
};

const ARE_EVENTS_LEFT = {
  name: 'are_subscription_events_left',
  text: 'SELECT min(event_id) IS NOT NULL AS is_any FROM subscriptions.events WHERE relayed_at IS NULL',
};

/** $1 events, $2 their entries. */
const MARK_RELAYED = {
  name: 'mark_subscription_events_relayed',
  text: `
    UPDATE subscriptions.events AS event
       SET relayed_at = clock_timestamp(), entry_id = relayed.entry_id
      FROM unnest($1::bigint[], $2::text[]) AS relayed (event_id, entry_id)
     WHERE event.event_id = relayed.event_id`,
};
