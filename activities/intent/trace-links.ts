/**
 * How traces of producers and of the service hang together. Each intent has a trace of its own in the service, which may
 * last for days; a link leads from it to the span in which it was published.
 */
import type { Link, Span } from '@opentelemetry/api';
import {
  INVALID_SPANID,
  INVALID_TRACEID,
  ROOT_CONTEXT,
  SpanKind,
  TraceFlags,
  context,
  trace,
} from '@opentelemetry/api';
import { parseTraceparent } from '../../api/intent/traceparent.ts';

/** What a producer says of its trace. */
interface Traced {
  notificationId: string;
  traceId?: string | null;
  traceparent?: string | null;
}

const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

/**
 * @returns a link to the span of an intent's `traceparent`, or else to the trace of its `trace_id` when that is one; with
 * its notification id in any case.
 */
function linkTo({ notificationId, traceId, traceparent }: Traced): Link {
  const parent = parseTraceparent(traceparent ?? '');
  return {
    context: parent
      ? { ...parent, isRemote: true }
      : {
          traceId: traceId && TRACE_ID.test(traceId) ? traceId : INVALID_TRACEID,
          spanId: INVALID_SPANID,
          traceFlags: TraceFlags.NONE,
        },
    attributes: { notification_id: notificationId },
  };
}

/**
 * Works in a span of its own, which begins a trace and leads to those that the intents came from. The reader's trace would
 * grow for as long as it reads.
 */
export async function inTraceOf<T>(intents: readonly Traced[], work: () => Promise<T>): Promise<T> {
  const options = { kind: SpanKind.CONSUMER, links: intents.map(linkTo) };
  const tracer = trace.getTracer('galaxy-notify');
  const run = async (span: Span): Promise<T> => {
    try {
      return await work();
    } finally {
      span.end();
    }
  };
  return context.with(ROOT_CONTEXT, () => tracer.startActiveSpan('process intent', options, run));
}
