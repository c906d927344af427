/**
 * Carries the trace context with which a workflow was started on to its activities and children, so that a trace
 * reaches from the reader of the stream to each publication. The spans themselves are made outside, by clients and
 * activities: an OpenTelemetry SDK inside the sandbox would be loaded again for every workflow and cost a quarter of
 * the worker's time. Loaded into the bundle by workers/workflow-bundle.ts, before what executions share is frozen.
 */
import type { WorkflowInterceptorsFactory } from '@temporalio/workflow';
import { log } from '@temporalio/workflow';

/** The header that the interceptors of clients write and those of activities read (workers/telemetry.ts). */
const TRACE_HEADER = '_tracer-data';

// The SDK writes lines about the beginning and the end of executions at level debug: each takes all that is known of its execution
// out of the sandbox, and Temporal itself tells the same. Our workflows write none: their activities log what happens.
log.debug = () => undefined;

export const interceptors: WorkflowInterceptorsFactory = () => {
  let traceContext: object | undefined;

  function forward<Input extends { headers: Record<string, object> }>(input: Input): Input {
    if (traceContext === undefined) return input;
    return { ...input, headers: { ...input.headers, [TRACE_HEADER]: traceContext } };
  }

  return {
    inbound: [
      {
        execute(input, next) {
          traceContext = input.headers[TRACE_HEADER];
          return next(input);
        },
      },
    ],
    outbound: [
      {
        scheduleActivity: (input, next) => next(forward(input)),
        scheduleLocalActivity: (input, next) => next(forward(input)),
        startChildWorkflowExecution: (input, next) => next(forward(input)),
        continueAsNew: (input, next) => next(forward(input)),
      },
    ],
  };
};
