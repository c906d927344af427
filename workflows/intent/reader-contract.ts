/** The workflow that keeps exactly one reader on an intent stream, and how operators find it. Pure. */

export const BRIDGE_WORKFLOW = 'streamBridge';

export const bridgeWorkflowId = (stream: string): string => `stream-bridge/${stream}`;

/** What the reader reports with each heartbeat, so that the Web UI shows it on the pending activity. */
export interface BridgeProgress {
  stream: string;
  /** Id of the last entry that has a row. */
  offset: string;
  /** Age of the oldest entry behind the offset, ms; 0 when the stream is drained, -1 when Redis did not say. */
  lagMs: number;
  /** Entries per second over the last reporting interval. */
  rate: number;
  /** Totals since this reader took over. */
  taken: number;
  malformed: number;
  /** Intents that were given a workflow, or delivered without one. */
  dispatched: number;
  /** What is wrong with the stream now, and what it lost since this reader took over; empty when all is well. */
  findings: StreamFinding[];
  /** What the last check saw; absent until a check has found the stream. */
  seen?: StreamState;
}

/** How far a stream had come when it was looked at. PostgreSQL remembers it, so that a Redis that falls back is noticed. */
export interface StreamState {
  lastGeneratedId: string;
  maxDeletedEntryId: string;
  entriesAdded: number;
}

/**
 * What a stream can suffer.
 * `entries_lost`: entries were deleted that had not been read. `stream_regressed`: its ids went backwards, so Redis
 * lost data. `stream_missing`: it does not exist although it was read before. `postgres_regressed`: PostgreSQL has
 * forgotten what it knew. After these, entries are read again. `eviction_enabled`: Redis may drop keys when its memory is full. `stream_ids_ahead`: a producer chose
 * an id that is more than a day ahead of the clock of Redis.
 */
export type StreamFindingKind =
  | 'entries_lost'
  | 'stream_regressed'
  | 'stream_missing'
  | 'postgres_regressed'
  | 'eviction_enabled'
  | 'stream_ids_ahead';

export interface StreamFinding {
  kind: StreamFindingKind;
  /** For an operator: what was seen, and what to do. */
  message: string;
  /** When it was first seen, epoch ms. */
  sinceMs: number;
}
