/**
 * What producers are told about their intents: entries of a stream, one an event. outcomes-asyncapi.yaml is the contract
 * in full.
 */
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

interface About {
  /** The same whenever the event is repeated, and of no other event. */
  eventId: string;
  /** That of the entry in the intent stream. */
  notificationId: string;
  /** When it became true, epoch ms by PostgreSQL's clock. */
  occurredAtMs: number;
  /** What a malformed entry did not say is missing. */
  notificationType?: string;
  producer?: string;
  idempotencyKey?: string;
  requestId?: string;
  traceId?: string;
}

interface OfRoute {
  /** As in ids of workflows: `push:user:user-1`, or a hash where the route's own id is an address. */
  route: string;
  channel: Channel;
  /** 0 as accepted; each replay is the next one. */
  generation: number;
}

interface Totals {
  published: number;
  skipped: number;
  deadLettered: number;
}

/** An event, by its kind. */
export type Outcome = About &
  (
    | ({ kind: 'settled' | 'cancelled' | 'expired' } & Totals)
    /** The notification that has the idempotency key. */
    | { kind: 'duplicate'; duplicateOf: string }
    | { kind: 'conflict'; conflictsWith: string }
    /** `field` is the one that the refusal is about, if it is about one. */
    | { kind: 'malformed'; failureCode: string; field?: string }
    /** Skipped are those of channels that the type does not use, and of recipients without a usable address. */
    | { kind: 'accepted'; routes: number; skipped: number }
    | ({ kind: 'route_published' } & OfRoute)
    | ({
        kind: 'route_skipped';
        reason: SkipReason;
      } & OfRoute)
    | ({ kind: 'route_dead_lettered'; reason: string } & OfRoute)
    /** A dead-lettered route that was replayed, and is published. */
    | ({ kind: 'recovered' } & OfRoute)
  );

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

const NUMBERS = new Set(['occurredAtMs', 'generation', 'routes', 'published', 'skipped', 'deadLettered']);
const REQUIRED: Record<OutcomeKind, readonly string[]> = {
  settled: ['published', 'skipped', 'deadLettered'],
  cancelled: ['published', 'skipped', 'deadLettered'],
  expired: ['published', 'skipped', 'deadLettered'],
  duplicate: ['duplicateOf'],
  conflict: ['conflictsWith'],
  malformed: ['failureCode'],
  accepted: ['routes', 'skipped'],
  route_published: ['route', 'channel', 'generation'],
  route_skipped: ['route', 'channel', 'generation', 'reason'],
  route_dead_lettered: ['route', 'channel', 'generation', 'reason'],
  recovered: ['route', 'channel', 'generation'],
};

/**
 * Reads an entry of the stream of outcomes. Fields that it does not know are kept out: later releases may add some.
 *
 * @param fields of the entry, by name.
 * @throws OutcomeError that names what is missing or wrong.
 */
export function readOutcome(fields: Readonly<Record<string, string>>): Outcome {
  const { kind = '' } = fields;
  if (!(OUTCOME_KINDS as readonly string[]).includes(kind))
    throw new OutcomeError(`kind ${JSON.stringify(kind)} is unknown`);
  const required = ['eventId', 'notificationId', 'occurredAtMs', ...REQUIRED[kind as OutcomeKind]];
  const optional = ['notificationType', 'producer', 'idempotencyKey', 'requestId', 'traceId'];
  if (kind === 'malformed') optional.push('field');
  const outcome: Record<string, string | number> = { kind };
  for (const name of [...required, ...optional]) {
    const field = snakeCase(name);
    const text = fields[field];
    if (text === undefined) {
      if (required.includes(name)) throw new OutcomeError(`${field} is missing`);
      continue;
    }
    if (!NUMBERS.has(name)) outcome[name] = text;
    else if (/^\d{1,15}$/.test(text)) outcome[name] = Number(text);
    else throw new OutcomeError(`${field} must be a whole number`);
  }
  return outcome as unknown as Outcome;
}

const snakeCase = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
