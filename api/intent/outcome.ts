/**
 * What producers are told about their intents: entries of a stream, one an event. outcomes-asyncapi.yaml is the contract
 * in full.
 */
import { z } from 'zod';
import type { Channel } from './catalog.ts';

/** How an intent ends: exactly one of these for each entry of the intent stream. */
export const TERMINAL_OUTCOMES = [
  'settled',
  'cancelled',
  'expired',
  'duplicate',
  'conflict',
  'malformed',
] as const;
/** What may be told besides, before the end or after it. */
export const OTHER_OUTCOMES = [
  'accepted',
  'route_published',
  'route_skipped',
  'route_dead_lettered',
  'recovered',
] as const;
export const OUTCOME_KINDS = [...TERMINAL_OUTCOMES, ...OTHER_OUTCOMES] as const;

export type OutcomeKind = (typeof OUTCOME_KINDS)[number];

/**
 * Why a route was skipped, and how its row is marked then, but for `cancelled`. `recipient_unusable`: the User Service has no
 * usable answer about the user. `throttled`: beyond the throttle of the type. `collapsed`: the route of another intent has
 * closed its window.
 */
export type SkipReason = 'cancelled' | 'expired' | 'recipient_unusable' | 'throttled' | 'collapsed';
/** In statements. */
export const ROUTE_EXPIRED = 'expired' satisfies SkipReason;
export const ROUTE_THROTTLED = 'throttled' satisfies SkipReason;

export const OUTCOMES_STREAM = 'notification:outcomes';

const text = z.string();
/** As entries have numbers. */
const count = text.regex(/^\d{1,15}$/, 'must be a whole number').transform(Number);

const about = {
  /** The same whenever the event is repeated, and of no other event. */
  eventId: text,
  /** That of the entry in the intent stream. */
  notificationId: text,
  /** When it became true, epoch ms by PostgreSQL's clock. */
  occurredAtMs: count,
  /** What a malformed entry did not say is missing. */
  notificationType: text.optional(),
  producer: text.optional(),
  idempotencyKey: text.optional(),
  requestId: text.optional(),
  traceId: text.optional(),
};

const aboutRoute = {
  ...about,
  /** As in ids of workflows: `push:user:user-1`, or a hash where the route's own id is an address. */
  route: text,
  channel: z.custom<Channel>((value) => typeof value === 'string'),
  /** 0 as accepted; each replay is the next one. */
  generation: count,
};

const outcomeSchema = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal(['settled', 'cancelled', 'expired']),
    ...{ ...about, published: count, skipped: count, deadLettered: count },
  }),
  /** The notification that has the idempotency key. */
  z.object({ kind: z.literal('duplicate'), ...about, duplicateOf: text }),
  z.object({ kind: z.literal('conflict'), ...about, conflictsWith: text }),
  /** `field` is the one that the refusal is about, if it is about one. */
  z.object({ kind: z.literal('malformed'), ...about, failureCode: text, field: text.optional() }),
  /** Skipped are those of channels that the type does not use, and of recipients without a usable address. */
  z.object({ kind: z.literal('accepted'), ...about, routes: count, skipped: count }),
  z.object({
    kind: z.literal('route_skipped'),
    ...aboutRoute,
    reason: z.custom<SkipReason>((value) => typeof value === 'string'),
  }),
  z.object({ kind: z.literal('route_dead_lettered'), ...aboutRoute, reason: text }),
  /** `recovered`: a dead-lettered route that was replayed, and is published. */
  z.object({ kind: z.literal(['route_published', 'recovered']), ...aboutRoute }),
]);

/** An event, by its kind. */
export type Outcome = z.output<typeof outcomeSchema>;

export const isTerminal = ({ kind }: Outcome): boolean =>
  (TERMINAL_OUTCOMES as readonly string[]).includes(kind);

/** An event as its row has it: event id, kind, notification, type, producer, key, request, trace, details. */
export type OutcomeRow = [
  eventId: string,
  kind: OutcomeKind,
  notificationId: string,
  notificationType: string | null,
  producer: string | null,
  idempotencyKey: string | null,
  requestId: string | null,
  traceId: string | null,
  details: Record<string, string | number | null>,
];

/** The fields of an event's entry, names and values in turn. */
export function fieldsOfOutcome(row: OutcomeRow, occurredAtMs: number): string[] {
  const [eventId, kind, notificationId, notificationType, producer, idempotencyKey, requestId, traceId] = row;
  const fields = {
    event_id: eventId,
    kind,
    notification_id: notificationId,
    occurred_at_ms: occurredAtMs,
    notification_type: notificationType,
    producer,
    idempotency_key: idempotencyKey,
    request_id: requestId,
    trace_id: traceId,
    ...row[8],
  };
  return Object.entries(fields).flatMap(([name, value]) => (value === null ? [] : [name, String(value)]));
}

/** An entry is no event of this contract, or of a later one. */
export class OutcomeError extends Error {
  override name = 'OutcomeError';
}

/**
 * Reads an entry of the stream of outcomes. Fields that it does not know are kept out: later releases may add some.
 *
 * @param fields of the entry, by name.
 * @throws OutcomeError that names what is missing or wrong.
 */
export function readOutcome(fields: Readonly<Record<string, string>>): Outcome {
  const named = Object.entries(fields).map(([name, value]) => [camelCase(name), value]);
  const { data, error } = outcomeSchema.safeParse(Object.fromEntries(named));
  if (data) return data;
  const [{ path, message }] = error.issues as [z.core.$ZodIssue];
  const field = snakeCase(String(path[0]));
  if (field === 'kind') throw new OutcomeError(`kind ${JSON.stringify(fields['kind'] ?? '')} is unknown`);
  throw new OutcomeError(`${field} ${fields[field] === undefined ? 'is missing' : message}`);
}

const camelCase = (name: string): string =>
  name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
