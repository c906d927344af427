/**
 * W3C trace context as an intent carries it: `00-<trace id>-<span id>-<flags>`, the span in which it was published. It
 * only observes, so an entry is never refused for it: what is no traceparent counts as absent, as the standard says.
 */

const TRACEPARENT = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The span that a traceparent names. */
export interface TraceParent {
  traceId: string;
  spanId: string;
  traceFlags: number;
}

/** @returns undefined for anything but a traceparent of version 00. */
export function parseTraceparent(text: string): TraceParent | undefined {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(text) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) };
}
