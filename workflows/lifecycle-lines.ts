/**
 * No log lines about the beginning and the end of executions, which the SDK writes at level debug: each takes all that is
 * known of its execution out of the sandbox, though hardly anybody reads it, and Temporal itself tells the same. Loaded
 * into the bundle by workers/workflow-bundle.ts, before what executions share is frozen.
 */
import { log } from '@temporalio/workflow';

// Our workflows write none themselves: what happens to a piece of work is logged by its activities.
log.debug = () => undefined;
