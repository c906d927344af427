/**
 * What clients are told about an agent: rows of an outbox, written together with what they are about, and appended to a
 * Redis stream after that. An event whose relay was cut off comes again, with the same `event_id`.
 */
import type { Redis } from 'ioredis';
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import { reasonOf } from '../reason.ts';
import type { Outbox, OutboxRow } from '../relay.ts';
import { relay } from '../relay.ts';
import { run } from '../transactions.ts';
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
  eventsStream: string;
  /** Approximate length to which the stream is trimmed. */
  eventsStreamMaxLen: number;
}

const RELAYED_TOGETHER = 100;
/** A router may write an error of any length. */
const MAX_ERROR_LENGTH = 300;

/** An error as events, logs and results show it: `NTF AUTH`, or with what is known beyond that. */
export function errorText({ source, code, detail }: RouterError): string {
  const text = detail === undefined ? `${source} ${code}` : `${source} ${code}: ${detail}`;
  // PostgreSQL's jsonb takes no NUL.
  return text.replaceAll(/\p{Cc}+/gu, ' ').slice(0, MAX_ERROR_LENGTH);
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

/** Appends events that wait to the stream, oldest first. @returns how many. @throws as `relay` does. */
export const relayEvents = (resources: EventResources): Promise<number> =>
  relay(resources, outboxOfEvents(resources));

/** The outbox of events, and its stream. */
export const outboxOfEvents = ({
  eventsStream,
  eventsStreamMaxLen,
}: Pick<EventResources, 'eventsStream' | 'eventsStreamMaxLen'>): Outbox => ({
  stream: eventsStream,
  maxLen: eventsStreamMaxLen,
  what: 'subscription events',
  lock: LOCK_RELAY,
  load: LOAD_EVENTS,
  loadValues: [RELAYED_TOGETHER],
  entriesOf: (row) => [fieldsOf(row as EventRow)],
  mark: MARK_RELAYED,
  areLeft: ARE_EVENTS_LEFT,
  listRelayed: LIST_RELAYED,
  putBack: PUT_BACK,
  isOrdered: false,
});

/** As `relayEvents`, but only logs a failure; the sweep relays the events that stay behind. */
export async function relayEventsIfPossible(resources: EventResources): Promise<void> {
  try {
    await relayEvents(resources);
  } catch (error) {
    resources.log.warn({ reason: reasonOf(error) }, 'subscription events wait for the next sweep');
  }
}

const fieldsOf = (event: EventRow): string[] => [
  ...['event_id', event.id],
  ...['agent_id', event.agent_id],
  ...['kind', event.kind],
  ...['errors_json', JSON.stringify(event.errors)],
  ...['offers_restart', String(event.offers_restart)],
  ...['occurred_at_ms', String(event.created_at.getTime())],
];

interface EventRow extends OutboxRow {
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
    SELECT event_id::text AS id, agent_id, kind, errors, offers_restart, created_at
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

/**
 * The next older events that were relayed, back to a day before the stream was last seen whole. $1 and $2 the last one of
 * the page before, $3 when the stream was last seen whole, $4 rows at most.
 */
const LIST_RELAYED = {
  name: 'list_relayed_subscription_events',
  text: `
    SELECT event_id::text AS id, relayed_at::text, entry_id
      FROM subscriptions.events AS event
     WHERE relayed_at <= $1::timestamptz AND relayed_at >= $3::timestamptz - interval '1 day'
       AND (relayed_at, event_id) < ($1::timestamptz, $2::bigint)
     ORDER BY event.relayed_at DESC, event.event_id DESC
     LIMIT $4`,
};

/** $1 events, $2 the entries as which they were relayed. */
const PUT_BACK = {
  name: 'put_back_subscription_events',
  text: `
    UPDATE subscriptions.events AS event
       SET relayed_at = NULL, entry_id = NULL
      FROM unnest($1::bigint[], $2::text[]) AS lost (event_id, entry_id)
     WHERE event.event_id = lost.event_id AND event.entry_id = lost.entry_id
    RETURNING 1`,
};
