/**
 * OpenTelemetry tracing of clients, workflows and activities. The interceptors are always installed, since they are
 * part of what a workflow's history contains; spans leave the process only when an exporter is configured.
 */
import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import type { SpanProcessor } from '@opentelemetry/sdk-trace-base';
import { BasicTracerProvider, BatchSpanProcessor, ConsoleSpanExporter } from '@opentelemetry/sdk-trace-base';
import { OpenTelemetryPlugin } from '@temporalio/interceptors-opentelemetry-v2';
import type { Config } from './config.ts';

export interface Telemetry {
  /** For Temporal clients and workers. */
  plugin: OpenTelemetryPlugin;
  /** Sends what is still buffered. */
  shutdown(): Promise<void>;
}

export function startTelemetry({ values }: Config): Telemetry {
  const resource = resourceFromAttributes({ 'service.name': values.OTEL_SERVICE_NAME });
  const processors = spanProcessorsFor(values);
  const provider = new BasicTracerProvider({ resource, spanProcessors: processors });
  if (processors.length > 0) {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    trace.setGlobalTracerProvider(provider);
  }
  return {
    plugin: new OpenTelemetryPlugin({ resource, spanProcessor: allOf(processors) }),
    shutdown: () => provider.shutdown(),
  };
}

/** The plugin takes one processor for the spans of workflows. */
function allOf(processors: readonly SpanProcessor[]): SpanProcessor {
  return {
    onStart: (span, parent) => processors.forEach((processor) => processor.onStart(span, parent)),
    onEnd: (span) => processors.forEach((processor) => processor.onEnd(span)),
    forceFlush: async () => void (await Promise.all(processors.map((processor) => processor.forceFlush()))),
    shutdown: async () => void (await Promise.all(processors.map((processor) => processor.shutdown()))),
  };
}

function spanProcessorsFor(values: Config['values']): SpanProcessor[] {
  const processors: SpanProcessor[] = [];
  // The exporter reads the endpoint, headers and time-outs from the standard OTEL_* variables itself.
  if (values.OTEL_EXPORTER_OTLP_ENDPOINT) processors.push(new BatchSpanProcessor(new OTLPTraceExporter()));
  if (values.NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED) {
    processors.push(new BatchSpanProcessor(new ConsoleSpanExporter()));
  }
  return processors;
}
