/** Heartbeats of an activity that waits for others. */
import { Context } from '@temporalio/activity';
import { noteHeartbeat } from './attempt.ts';

/** Often enough for every heartbeat time-out in workflows/policies.ts, ms. */
const HEARTBEAT_MS = 2_000;

/** Tells Temporal that the current attempt is alive. @param progress shown in the Web UI, and given to the next attempt. */
export function heartbeat(progress?: unknown): void {
  noteHeartbeat();
  Context.current().heartbeat(progress);
}

/**
 * Runs work with heartbeats: by them an activity hears that it is cancelled, and Temporal that its process lives.
 *
 * @param progress what people see of it.
 */
export async function withHeartbeats<T>(work: () => Promise<T>, progress?: () => unknown): Promise<T> {
  const beat = setInterval(() => heartbeat(progress?.()), HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(beat);
  }
}
