/**
 * Keeps one reader on an intent stream. Temporal supplies what a reader needs from outside: that there is only one,
 * that another worker takes over when it dies, and that operators see its progress (heartbeat details of the pending
 * activity) and can pause it there.
 */
import { proxyActivities } from '@temporalio/workflow';
import type { BridgeActivities } from '../../activities/intent/reader.ts';
import { STREAM_READER } from '../policies.ts';

const reader = proxyActivities<BridgeActivities>(STREAM_READER);

/** @param stream name of the Redis Stream, e.g. `notification:intents`. Runs until it is cancelled or terminated. */
export async function streamBridge(stream: string): Promise<void> {
  for (;;) await reader.bridgeStream(stream);
}
