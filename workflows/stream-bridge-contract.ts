/** The workflow that keeps exactly one reader on an intent stream, and how operators find it. Pure. */

export const BRIDGE_WORKFLOW = 'streamBridge';

export const bridgeWorkflowId = (stream: string): string => `stream-bridge/${stream}`;

/** What the reader reports with each heartbeat, so that the Web UI shows it on the pending activity. */
export interface BridgeProgress {
  stream: string;
  /** Id of the last entry of the contiguous run that is durably started or recorded. */
  offset: string;
  /** Age of the oldest entry behind the offset, ms; 0 when the stream is drained, -1 when Redis did not say. */
  lagMs: number;
  /** Entries per second over the last reporting interval. */
  rate: number;
  /** Totals since this reader took over. */
  started: number;
  malformed: number;
}
