/**
 * Forms of business ids that fit Temporal ids and search attributes: short, printable ASCII and free of personal
 * data. The full values stay in PostgreSQL.
 */
import { createHash } from 'node:crypto';
import type { Channel } from './intent/catalog.ts';

/** Route ids that may stand in a workflow id as they are. An address never matches: it has an `@`. */
const PLAIN_ROUTE_ID = /^(push|email):[A-Za-z0-9_.:-]{1,120}$/;
const MAX_SEARCHABLE_BYTES = 200;

/**
 * The route id as it appears in workflow ids and histories: itself, or `<channel>:~<md5>` when it is long, not
 * plain ASCII, or holds an e-mail address. `~` occurs in no plain id, so the two forms cannot collide; the database
 * finds the route by the same hash (routes_hashed_ref_idx). The hash names, it does not protect.
 */
export function routeRefOf(routeId: string): string {
  if (PLAIN_ROUTE_ID.test(routeId)) return routeId;
  return `${channelOf(routeId)}:~${createHash('md5').update(routeId).digest('hex')}`;
}

/** The channel of a route id or reference: what stands before its first colon. */
export function channelOf(routeRef: string): Channel {
  return routeRef.startsWith('push:') ? 'push' : 'email';
}

/** A reference's hash, or undefined when the reference is the route id itself. */
export function hashOfRouteRef(routeRef: string): string | undefined {
  return /^(?:push|email):~([0-9a-f]{32})$/.exec(routeRef)?.[1];
}

/**
 * An idempotency key or a user id as search attribute and in logs: itself when short printable ASCII that can be no e-mail
 * address, else `sha256:<hex>`. Keyword attributes are limited to 255 characters on SQL visibility stores, and a longer one
 * would fail the workflow's start. The hash names, it does not protect: a reader who guesses the value can compute it.
 */
export function searchableKey(key: string): string {
  if (key.length <= MAX_SEARCHABLE_BYTES && /^[\x20-\x3f\x41-\x7e]+$/.test(key)) return key;
  return `sha256:${createHash('sha256').update(key).digest('hex')}`;
}

/**
 * Whether a path can name this user: not by `.` and `..`, which every URL parser resolves away even when encoded, nor by lone
 * surrogates.
 */
export const isNameable = (userId: string): boolean =>
  userId !== '' && userId !== '.' && userId !== '..' && userId.isWellFormed();

const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/**
 * The span that a traceparent names. W3C trace context, `00-<trace id>-<span id>-<flags>`. It only observes: what is no
 * traceparent counts as absent, as the standard says.
 *
 * @returns undefined for anything but a traceparent of version 00.
 */
export function parseTraceparent(text: string) {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(text) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) };
}
