/**
 * Spans of calls to workflows and of activities, and the header that carries the trace from the call that starts a workflow to
 * its activities (workflows/trace-context.ts hands it on).
 */
import type { Attributes, Context } from '@opentelemetry/api';
import { SpanStatusCode, context, isSpanContextValid, propagation, trace } from '@opentelemetry/api';
import type { WorkflowClientInterceptor } from '@temporalio/client';
import type { Headers } from '@temporalio/common';
import { ApplicationFailure, ApplicationFailureCategory, defaultPayloadConverter } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';

/** As in workflows/trace-context.ts, which only the bundle loads. */
const TRACE_HEADER = '_tracer-data';

/** Spans of the calls that start a workflow or change it. */
export const CLIENT_TRACING: WorkflowClientInterceptor = {
  startWithDetails: (input, next) =>
    inSpan(`StartWorkflow:${input.workflowType}`, ofWorkflow(input.options), () =>
      next({ ...input, headers: withTrace(input.headers) }),
    ),
  signalWithStart: (input, next) =>
    inSpan(`SignalWithStartWorkflow:${input.workflowType}`, ofWorkflow(input.options), () =>
      next({ ...input, headers: withTrace(input.headers) }),
    ),
  startUpdateWithStart: (input, next) =>
    inSpan(`UpdateWithStartWorkflow:${input.updateName}`, ofWorkflow(input.workflowStartOptions), () =>
      next({ ...input, workflowStartHeaders: withTrace(input.workflowStartHeaders) }),
    ),
  signal: (input, next) =>
    inSpan(`SignalWorkflow:${input.signalName}`, ofWorkflow(input.workflowExecution), () => next(input)),
  startUpdate: (input, next) =>
    inSpan(`StartWorkflowUpdate:${input.updateName}`, ofWorkflow(input.workflowExecution), () => next(input)),
};

/** A span of each attempt, in the trace of its workflow, and the ids of the span in the log lines of the SDK. */
export const ACTIVITY_TRACING: ActivityInterceptorsFactory = ({ info }) => ({
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
  outbound: {
    getLogAttributes(input, next) {
      const span = trace.getActiveSpan()?.spanContext();
      if (!span || !isSpanContextValid(span)) return next(input);
      return next({ trace_id: span.traceId, span_id: span.spanId, ...input });
    },
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
