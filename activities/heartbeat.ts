/** Heartbeats of an activity that waits for others. */
import { Context } from '@temporalio/activity';

/** Often enough for every heartbeat time-out in workflows/policies.ts, ms. */
const HEARTBEAT_MS = 2_000;

/**
 * Runs work with heartbeats: by them an activity hears that it is cancelled, and Temporal that its process lives.
 *
 * @param progress what people see of it.
 */
export async function withHeartbeats<T>(work: () => Promise<T>, progress?: () => unknown): Promise<T> {
  const activity = Context.current();
  const beat = setInterval(() => activity.heartbeat(progress?.()), HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(beat);
  }
}
