/**
 * OpenTelemetry tracing: clients and activities make spans, workflows carry the context between them
 * (workflows/trace-context.ts). Spans leave the process only when an exporter is configured.
 */
import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import type { SpanProcessor } from '@opentelemetry/sdk-trace-base';
import { BasicTracerProvider, BatchSpanProcessor, ConsoleSpanExporter } from '@opentelemetry/sdk-trace-base';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import {
  OpenTelemetryActivityInboundInterceptor,
  OpenTelemetryActivityOutboundInterceptor,
  OpenTelemetryWorkflowClientInterceptor,
} from '@temporalio/interceptors-opentelemetry-v2';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import type { Metrics } from '../activities/metrics.ts';
import { createMetrics } from '../activities/metrics.ts';
import type { Config } from './config.ts';

export interface Telemetry {
  metrics: Metrics;
  clientInterceptors: WorkflowClientInterceptor[];
  activityInterceptors: ActivityInterceptorsFactory[];
  /** Sends what is still buffered. */
  shutdown(): Promise<void>;
}

export function startTelemetry({ values }: Config): Telemetry {
  const spanProcessors = spanProcessorsFor(values);
  const provider = new BasicTracerProvider({
    resource: resourceFromAttributes({ 'service.name': values.OTEL_SERVICE_NAME }),
    spanProcessors,
  });
  if (spanProcessors.length > 0) {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    trace.setGlobalTracerProvider(provider);
  }
  const meters = new MeterProvider();
  return {
    metrics: createMetrics(meters.getMeter('galaxy-notify')),
    clientInterceptors: [new OpenTelemetryWorkflowClientInterceptor()],
    activityInterceptors: [
      (activity) => ({
        inbound: new OpenTelemetryActivityInboundInterceptor(activity),
        outbound: new OpenTelemetryActivityOutboundInterceptor(activity),
      }),
    ],
    shutdown: () => provider.shutdown(),
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
