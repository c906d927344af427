/** The standard variables of OpenTelemetry: which are honoured, and which are read elsewhere. */
import { z } from 'zod';
import { readBy } from './values.ts';

/** A list of one: further exporters of the same signal are variables of our own. */
const exporter = z.enum(
  ['otlp', 'none'],
  'must be otlp or none; for standard output set NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED or …_METRICS_ENABLED',
);

/** `name=value`, comma-separated and percent-encoded, as the standard has it. */
const headers = readBy((text): Record<string, string> | undefined => {
  try {
    return Object.fromEntries(
      text.split(',').map((pair) => {
        const [, name, value] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*(.*?)\s*$/.exec(pair)!;
        return [name!.toLowerCase(), decodeURIComponent(value!)];
      }),
    );
  } catch {
    return undefined;
  }
}, 'must be name=value, comma-separated, with values percent-encoded');

export const OTEL_VARIABLES = {
  OTEL_TRACES_EXPORTER: exporter.prefault('otlp').describe('otlp, or none: no traces go to the collector.'),
  OTEL_METRICS_EXPORTER: exporter
    .prefault('otlp')
    .describe("otlp, or none: no metrics go to the collector, those of Temporal's SDK neither."),
  OTEL_EXPORTER_OTLP_HEADERS: headers
    .describe('Headers of every export: name=value, comma-separated.')
    .meta({ secret: true }),
};

/** Standard variables that may only say what is so: the service speaks OTLP by one protocol, logs go to
 * standard output, and exports are switched off by OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER. */
export const OTEL_FIXED: ReadonlyMap<string, string> = new Map([
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json'],
  ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json'],
  ['OTEL_EXPORTER_OTLP_METRICS_PROTOCOL', 'http/json'],
  ['OTEL_LOGS_EXPORTER', 'none'],
  ['OTEL_SDK_DISABLED', 'false'],
]);

const ofSignals = (name: string): string[] =>
  ['', 'TRACES_', 'METRICS_'].map((signal) => `OTEL_EXPORTER_OTLP_${signal}${name}`);

/** Read by OpenTelemetry's own packages, without this configuration. docs/reference/variables.md lists them. */
export const READ_BY_OTEL: readonly string[] = [
  'OTEL_SERVICE_NAME',
  'OTEL_RESOURCE_ATTRIBUTES',
  ...['TIMEOUT', 'COMPRESSION', 'CERTIFICATE', 'CLIENT_CERTIFICATE', 'CLIENT_KEY'].flatMap(ofSignals),
  'OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE',
  'OTEL_TRACES_SAMPLER',
  'OTEL_TRACES_SAMPLER_ARG',
  'OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT',
  'OTEL_ATTRIBUTE_COUNT_LIMIT',
  'OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT',
  'OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT',
  'OTEL_SPAN_EVENT_COUNT_LIMIT',
  'OTEL_SPAN_LINK_COUNT_LIMIT',
  'OTEL_SPAN_ATTRIBUTE_PER_EVENT_COUNT_LIMIT',
  'OTEL_SPAN_ATTRIBUTE_PER_LINK_COUNT_LIMIT',
  'OTEL_BSP_EXPORT_TIMEOUT',
  'OTEL_BSP_MAX_EXPORT_BATCH_SIZE',
  'OTEL_BSP_MAX_QUEUE_SIZE',
  'OTEL_BSP_SCHEDULE_DELAY',
];
