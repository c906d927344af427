/** Structured logs: pino, object first, with the ids of the active span when there is one. */
import { isSpanContextValid, trace } from '@opentelemetry/api';
import type { Logger } from 'pino';
import pino from 'pino';

/** Values that must never reach a log, at any depth of a record. */
const SECRETS = new Set([
  ...['password', 'token', 'taskToken', 'authorization', 'email', 'dsn', 'resolved_email'],
  // Of an error of PostgreSQL: rows and parameters.
  ...['detail', 'where', 'parameters'],
  // Of an error of Redis: the command, with all that it was to write.
  'command',
]);
const REDACTED = '[Redacted]';
/** What is deeper is left out: an object may hold itself. */
const MOST_LEVELS = 8;

export function createLogger(level: string, destination?: pino.DestinationStream): Logger {
  return pino(
    {
      level,
      base: { service: 'galaxy-notify' },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: {
        level: (label) => ({ level: label }),
        log: (fields) => redacted(fields, 0) as Record<string, unknown>,
      },
      mixin: activeSpan,
    },
    destination ?? pino.destination(1),
  );
}

/**
 * Where log lines go: as they are, or, on a terminal, as a person reads them. In production they are always as they are,
 * and wherever what makes them readable is not installed.
 *
 * @param stream standard output or standard error.
 */
export async function logDestination(
  stream: NodeJS.WriteStream,
  isProduction: boolean,
): Promise<pino.DestinationStream | undefined> {
  if (isProduction || !stream.isTTY) return stream === process.stdout ? undefined : stream;
  try {
    // Loaded on demand: production images come without it.
    const { logLines } = await import('../dev/log-lines.ts');
    return logLines(stream);
  } catch {
    return stream;
  }
}

/** A copy without secrets; of an error what pino's own serializer shows, and its properties. */
function redacted(value: unknown, level: number): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (level > MOST_LEVELS) return REDACTED;
  if (Array.isArray(value)) return value.map((one) => redacted(one, level + 1));
  if (value instanceof Error) {
    const { raw: _, ...shown } = pino.stdSerializers.err(value);
    return redacted(shown, level + 1);
  }
  // A date or a URL, which says itself what it looks like.
  if ('toJSON' in value && typeof value.toJSON === 'function') return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [
      name,
      SECRETS.has(name) ? REDACTED : redacted(one, level + 1),
    ]),
  );
}

function activeSpan(): Record<string, string> {
  const span = trace.getActiveSpan()?.spanContext();
  if (!span || !isSpanContextValid(span)) return {};
  return { otel_trace_id: span.traceId, otel_span_id: span.spanId };
}
