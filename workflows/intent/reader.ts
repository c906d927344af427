/**
 * Keeps one reader on an intent stream. Temporal supplies what a reader needs from outside: that there is only one,
 * that another worker takes over when it dies, and that operators see its progress (heartbeat details of the pending
 * activity) and can pause it there.
 */
import {
  CancellationScope,
  condition,
  continueAsNew,
  proxyActivities,
  setCurrentDetails,
} from '@temporalio/workflow';
import type { BridgeActivities } from '../../activities/intent/reader.ts';
import { onRenewal } from '../long-lived.ts';
import { STREAM_READER } from '../policies.ts';

const reader = proxyActivities<BridgeActivities>(STREAM_READER);

/** @param stream name of the Redis Stream, e.g. `notification:intents`. Runs until it is cancelled or terminated. */
export async function streamBridge(stream: string): Promise<void> {
  setCurrentDetails(`Reads \`${stream}\`; the pending activity shows how far.`);
  const isRenewed = onRenewal();
  const reading = new CancellationScope();
  // It fails only when the workflow is cancelled, which ends the reader as well.
  condition(isRenewed).then(
    () => reading.cancel(),
    () => undefined,
  );
  while (!isRenewed()) {
    try {
      await reading.run(() => reader.bridgeStream(stream));
    } catch (error) {
      // A reader whose process has died ends by its time-out, and the next run begins another one.
      if (!isRenewed() || CancellationScope.current().consideredCancelled) throw error;
    }
  }
  await continueAsNew<typeof streamBridge>(stream);
}
