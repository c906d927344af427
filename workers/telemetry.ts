/**
 * OpenTelemetry. Traces: clients and activities make spans, workflows carry the context between them
 * (workflows/trace-context.ts). Metrics: counters and gauges of each kind of work (activities/<kind>/metrics.ts), and those of
 * Temporal's SDK. All leave the process only when an exporter is configured; without one they cost nothing.
 */
import { randomUUID } from 'node:crypto';
import type { Attributes, Context } from '@opentelemetry/api';
import { DiagLogLevel, SpanStatusCode, context, diag, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator, setGlobalErrorHandler } from '@opentelemetry/core';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import type { Resource } from '@opentelemetry/resources';
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources';
import type { IMetricReader, PushMetricExporter } from '@opentelemetry/sdk-metrics';
import {
  AggregationTemporality,
  ConsoleMetricExporter,
  InstrumentType,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import type { SpanProcessor } from '@opentelemetry/sdk-trace-base';
import { BasicTracerProvider, BatchSpanProcessor, ConsoleSpanExporter } from '@opentelemetry/sdk-trace-base';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import type { Headers } from '@temporalio/common';
import { ApplicationFailure, ApplicationFailureCategory, defaultPayloadConverter } from '@temporalio/common';
import type { ActivityInterceptorsFactory, TelemetryOptions } from '@temporalio/worker';
import type { Logger } from 'pino';
import type { Config } from '../config/load.ts';
import { within } from '../api/within.ts';
import { reasonOf } from '../activities/reason.ts';

/** What the last export may take of a shutdown, ms: a collector that is away must not use the time of the others up. */
const LAST_EXPORT_MS = 1_500;
/** A collector that is away fails every export; one line in this time, ms, says as much as one for each. */
const QUIET_AFTER_PROBLEM_MS = 60_000;

export type Telemetry = ReturnType<typeof startTelemetry>;

export function startTelemetry({ values }: Config, log: Logger) {
  reportProblems(log);
  const resource = resourceOf();
  const spanProcessors = spanProcessorsFor(values);
  const isTracing = spanProcessors.length > 0;
  const tracers = new BasicTracerProvider({ resource, spanProcessors });
  if (isTracing) {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    trace.setGlobalTracerProvider(tracers);
  }
  const readers = metricReadersFor(values);
  const meters = new MeterProvider({ resource, readers });
  return {
    meter: meters.getMeter('galaxy-notify'),
    clientInterceptors: isTracing ? [CLIENT_TRACING] : [],
    activityInterceptors: isTracing ? [ACTIVITY_TRACING] : [],
    /** Sends what is still buffered, within LAST_EXPORT_MS; does not reject. */
    async shutdown(): Promise<void> {
      if (isTracing) for (const api of [trace, propagation, context]) api.disable();
      await within(LAST_EXPORT_MS, Promise.allSettled([tracers.shutdown(), meters.shutdown()])).catch(() =>
        log.warn({ limit_ms: LAST_EXPORT_MS }, 'the last traces and metrics were not exported in time'),
      );
    },
  };
}

/**
 * What the native part of Temporal's SDK reports about its workers and calls, `temporal_*`: sent by itself, to the same
 * place and as often. Undefined when metrics go nowhere.
 */
export function temporalMetrics({ values }: Config): TelemetryOptions['metrics'] {
  const destination = destinationOf(values, 'metrics');
  if (!destination) return undefined;
  return {
    otel: { ...destination, http: true, metricsExportInterval: values.OTEL_METRIC_EXPORT_INTERVAL },
    // In OTLP these are attributes of the resource, as resourceOf has them.
    globalTags: {
      'service.name': String(resourceOf().attributes['service.name']),
      'service.instance.id': INSTANCE_ID,
    },
  };
}

/** Processes of one service differ by the instance: collectors would take their counters for one otherwise. */
const INSTANCE_ID = randomUUID();

/** OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come before the names of our own. */
function resourceOf(): Resource {
  return defaultResource()
    .merge(resourceFromAttributes({ 'service.name': 'galaxy-notify', 'service.instance.id': INSTANCE_ID }))
    .merge(detectResources({ detectors: [envDetector] }));
}

function spanProcessorsFor(values: Config['values']): SpanProcessor[] {
  const processors: SpanProcessor[] = [];
  const destination = destinationOf(values, 'traces');
  if (destination) processors.push(new BatchSpanProcessor(new OTLPTraceExporter(destination)));
  if (values.NOTIFICATION_OTEL_STDOUT_TRACES_ENABLED) {
    processors.push(new BatchSpanProcessor(new ConsoleSpanExporter()));
  }
  return processors;
}

function metricReadersFor(values: Config['values']): IMetricReader[] {
  const exporters: PushMetricExporter[] = [];
  const destination = destinationOf(values, 'metrics');
  if (destination) exporters.push(new OTLPMetricExporter(destination));
  if (values.NOTIFICATION_OTEL_STDOUT_METRICS_ENABLED) exporters.push(new ConsoleMetricExporter());
  const exportIntervalMillis = values.OTEL_METRIC_EXPORT_INTERVAL;
  return exporters.map(
    (exporter) =>
      new PeriodicExportingMetricReader({ exporter: forgettingGauges(exporter), exportIntervalMillis }),
  );
}

/**
 * Where a signal goes; undefined when it goes nowhere. Time-outs and certificates of the exporters are read by them from
 * the standard OTEL_* variables.
 */
function destinationOf(values: Config['values'], signal: 'traces' | 'metrics') {
  const exporter = { traces: values.OTEL_TRACES_EXPORTER, metrics: values.OTEL_METRICS_EXPORTER }[signal];
  const base = values.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (exporter === 'none' || base === undefined) return undefined;
  const url = `${base.replace(/\/+$/, '')}/v1/${signal}`;
  return { url, headers: values.OTEL_EXPORTER_OTLP_HEADERS ?? {} };
}

/**
 * With cumulative temporality the SDK repeats a gauge's last value when none was observed, for as long as the process
 * lives; with delta temporality, which means nothing else for a gauge, it is absent.
 */
function forgettingGauges(exporter: PushMetricExporter): PushMetricExporter {
  const select = exporter.selectAggregationTemporality?.bind(exporter);
  exporter.selectAggregationTemporality = (type) =>
    type === InstrumentType.OBSERVABLE_GAUGE
      ? AggregationTemporality.DELTA
      : (select?.(type) ?? AggregationTemporality.CUMULATIVE);
  return exporter;
}

/** OpenTelemetry's own reports become log lines. It has one place for them per process: the latest service's log. */
function reportProblems(log: Logger): void {
  let quietUntil = 0;
  const report = (...parts: unknown[]): void => {
    if (Date.now() < quietUntil) return;
    quietUntil = Date.now() + QUIET_AFTER_PROBLEM_MS;
    log.warn({ reason: parts.map(reasonOf).join(' ') }, 'OpenTelemetry has a problem');
  };
  const ignore = () => undefined;
  setGlobalErrorHandler(report);
  diag.setLogger(
    { error: report, warn: report, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
}

// --- Traces: the header of the call that starts a workflow reaches its activities (workflows/trace-context.ts hands it on).

/** As in workflows/trace-context.ts, which only the bundle loads. */
const TRACE_HEADER = '_tracer-data';

/** Spans of the calls that start a workflow or signal it. */
const CLIENT_TRACING: WorkflowClientInterceptor = {
  startWithDetails: (input, next) =>
    inSpan(`StartWorkflow:${input.workflowType}`, ofWorkflow(input.options), () =>
      next({ ...input, headers: withTrace(input.headers) }),
    ),
  signalWithStart: (input, next) =>
    inSpan(`SignalWithStartWorkflow:${input.workflowType}`, ofWorkflow(input.options), () =>
      next({ ...input, headers: withTrace(input.headers) }),
    ),
  signal: (input, next) =>
    inSpan(`SignalWorkflow:${input.signalName}`, ofWorkflow(input.workflowExecution), () => next(input)),
};

/** A span of each attempt, in the trace of its workflow. */
const ACTIVITY_TRACING: ActivityInterceptorsFactory = ({ info }) => ({
  inbound: {
    execute: (input, next) =>
      inSpan(
        `RunActivity:${info.activityType}`,
        {
          temporalActivityId: info.activityId,
          ...(info.workflowExecution && {
            ...ofWorkflow(info.workflowExecution),
            run_id: info.workflowExecution.runId,
          }),
        },
        () => next(input),
        traceOf(input.headers),
      ),
  },
});

const ofWorkflow = ({ workflowId }: { workflowId: string }): Attributes => ({
  temporalWorkflowId: workflowId,
});

async function inSpan<Result>(
  name: string,
  attributes: Attributes,
  run: () => Promise<Result>,
  parent: Context = context.active(),
): Promise<Result> {
  const tracer = trace.getTracer('galaxy-notify/temporal');
  return tracer.startActiveSpan(name, { attributes }, parent, async (span) => {
    try {
      const result = await run();
      span.setStatus({ code: SpanStatusCode.OK });
      return result;
    } catch (error) {
      span.recordException(error as Error);
      if (!isExpected(error)) span.setStatus({ code: SpanStatusCode.ERROR, message: String(error) });
      throw error;
    } finally {
      span.end();
    }
  });
}

const isExpected = (error: unknown): boolean =>
  error instanceof ApplicationFailure && error.category === ApplicationFailureCategory.BENIGN;

function withTrace(headers: Headers): Headers {
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return { ...headers, [TRACE_HEADER]: defaultPayloadConverter.toPayload(carrier) };
}

function traceOf(headers: Headers): Context {
  const header = headers[TRACE_HEADER];
  if (header === undefined) return context.active();
  return propagation.extract(
    context.active(),
    defaultPayloadConverter.fromPayload<Record<string, string>>(header),
  );
}
