/** Structured logs: pino, object first, with the ids of the active span when there is one. */
import { isSpanContextValid, trace } from '@opentelemetry/api';
import type { Logger } from 'pino';
import pino from 'pino';

/** Values that must never reach a log, wherever somebody puts them. */
const SECRETS = ['password', 'token', 'taskToken', 'authorization', 'email', 'dsn', 'resolved_email'];

export function createLogger(level: string, destination?: pino.DestinationStream): Logger {
  return pino(
    {
      level,
      base: { service: 'galaxy-notify' },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { error: pino.stdSerializers.err },
      redact: SECRETS.flatMap((name) => [name, `*.${name}`]),
      mixin: activeSpan,
    },
    destination ?? pino.destination(1),
  );
}

function activeSpan(): Record<string, string> {
  const span = trace.getActiveSpan()?.spanContext();
  if (!span || !isSpanContextValid(span)) return {};
  return { otel_trace_id: span.traceId, otel_span_id: span.spanId };
}
