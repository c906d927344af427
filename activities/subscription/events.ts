/**
 * What clients are told about an agent: rows of an outbox, written together with what they are about, and relayed to a
 * Redis stream after that. An event whose relay was cut off comes again, with the same `event_id`.
 */
import type { PoolClient } from 'pg';
import type { Logger } from 'pino';
import { oneLine } from '../reason.ts';
import { relayedTable } from '../relay.ts';
import { run } from '../postgres.ts';
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

interface EventResources {
  log: Logger;
  metrics: { subscriptionEvent(attributes: { kind: EventKind }): void };
}

/** Approximate length to which the stream is trimmed: a client that was away for longer misses events. */
export const EVENTS_STREAM_MAX_LEN = 10_000;

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
  { log, metrics }: EventResources,
  { agentId, kind, errors }: SubscriptionEvent,
): void {
  if (errors.length === 0) return;
  metrics.subscriptionEvent({ kind });
  log.warn(
    { agent_id: agentId, kind, errors: errors.slice(0, 20), count: errors.length },
    'subscription errors',
  );
}

const INSERT_EVENT = {
  name: 'insert_subscription_event',
  text: `
    INSERT INTO subscriptions.events (agent_id, kind, errors, offers_restart) VALUES ($1, $2, $3::jsonb, $4)`,
};

/** The outbox of events. */
export const EVENTS = relayedTable<EventRow>({
  name: 'subscription_events',
  table: 'subscriptions.events',
  key: 'event_id',
  columns: 'agent_id, kind, errors, offers_restart, created_at',
  size: '1',
  lock: 4207716001,
  entriesOf: (event) => [
    [
      ...['event_id', event.id],
      ...['agent_id', event.agent_id],
      ...['kind', event.kind],
      ...['errors_json', JSON.stringify(event.errors)],
      ...['offers_restart', String(event.offers_restart)],
      ...['occurred_at_ms', event.created_at.getTime()],
    ],
  ],
});

interface EventRow {
  agent_id: string;
  kind: EventKind;
  errors: SubscriptionEvent['errors'];
  offers_restart: boolean;
  created_at: Date;
}
