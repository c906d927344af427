/**
 * The contract of the intent workflows and the programs that start, signal or find them: task queue, workflow ids,
 * inputs, outcomes. Pure, so that clients and the workflow sandbox can both import it.
 */
import type { PublicationFailure } from '../failures.ts';

export const INTENT_TASK_QUEUE = 'intent';

/** Workflow type names as registered with Temporal. */
export const NOTIFICATION_WORKFLOW = 'notification';
export const ROUTE_WORKFLOW = 'notificationRoute';
export const DEAD_LETTER_WORKFLOW = 'notificationDeadLetter';

/**
 * Above this many routes a notification has no children: completions queue on a parent's lock. Activities make first attempts
 * of slices then, whatever the mode is, and start a workflow for each route in trouble.
 */
export const MAX_CHILDREN_PER_PARENT = 250;
/** Routes of one slice of a large notification. */
export const ROUTES_PER_SLICE = 200;
/** Recipients up to which acceptance is short enough for a local activity (each lookup may take a second). */
export const MAX_RECIPIENTS_ACCEPTED_LOCALLY = 32;

export const notificationWorkflowId = (notificationId: string): string => `notification/${notificationId}`;

/** `routeRef` is the route id as it may appear in a workflow id: see `routeRefOf` in api/ids.ts. */
export const routeWorkflowId = (notificationId: string, routeRef: string): string =>
  `${notificationWorkflowId(notificationId)}/${routeRef}`;

/** Not beneath that of the notification: it is no work of it, and stays open for as long as the route is dead. */
export const deadLetterWorkflowId = (notificationId: string, routeRef: string): string =>
  `dead-letter/${notificationId}/${routeRef}`;

/**
 * Signal to a route's workflow, argument `ReplayRequest` or none: a route that waits tries now; one that was
 * dead-lettered starts a new generation with a fresh budget. To reach ended ones, sent by signal-with-start with the
 * id reuse policy ALLOW_DUPLICATE_FAILED_ONLY, so that a published route cannot be started again.
 */
export const REPLAY_SIGNAL = 'replay';
/** Signal to a route's workflow, no argument: its channel publishes again. */
export const CHANNEL_RESUMED_SIGNAL = 'channelResumed';
/** Signal to a route's workflow, no argument: its row was settled from outside, there is nothing to wait for. */
export const SETTLED_SIGNAL = 'settled';

/** Signal to a dead letter's workflow, no argument: its row may have changed. */
export const LOOK_SIGNAL = 'look';

export interface ReplayRequest {
  /** Who asks, kept in `replays`; default `signal`. */
  requestedBy?: string;
  reason?: string;
  /** The same in each repetition of one order: a route that has carried it out does not do so again. */
  orderId?: string;
}

/** Which intent: its row has the content. */
export interface NotificationInput {
  /** The id of the stream entry. */
  notificationId: string;
  notificationType: string;
  /** Its recipients are more than a local activity looks up. */
  isLarge?: boolean;
  /** As configured when it was started; absent means `child`. */
  dispatch?: 'on_failure';
}

/**
 * Who makes first attempts. `child`: every route has its own workflow from the beginning, unless there are more than
 * MAX_CHILDREN_PER_PARENT. `on_failure`: activities of the notification make them, and a route gets a workflow when it needs
 * one. `direct`: the dispatcher makes those of many intents together, and only what needs one gets a workflow.
 */
export const DISPATCH_MODES = ['child', 'on_failure', 'direct'] as const;
export type DispatchMode = (typeof DISPATCH_MODES)[number];

/** What a route's workflow continues from. */
export type FirstAttempt =
  | FailedAttempt
  | { status: 'dead_letter'; classification: string }
  | Extract<PublishResult, { status: 'deferred' }>;

/** Routes at [offset, offset + limit) of a notification, ordered by route id. */
export interface RouteSlice {
  notificationId: string;
  offset: number;
  limit: number;
  /** The notification was reset: dead routes are to be replayed. */
  replay?: boolean;
}

/** How the routes of a slice stand after their first attempts. */
export interface SliceResult {
  published: number;
  skipped: number;
  /** Others, which have workflows. */
  open: number;
}

/** Of a row of `notification.intents`: how the intent was decided, or `open`. */
export type IntentStatus = 'open' | 'accepted' | 'duplicate' | 'conflict' | 'refused' | 'cancelled';

/** What acceptance found. */
export type Acceptance =
  | {
      outcome: 'accepted';
      /** References of the routes that are not published or skipped, unless there are more than MAX_CHILDREN_PER_PARENT. */
      routes?: string[];
      /** All routes of the record, skipped ones included. */
      routeCount: number;
      skipped: number;
    }
  | { outcome: 'duplicate'; of: string }
  | { outcome: 'idempotency_conflict'; with: string }
  | { outcome: 'recipient_not_found' }
  /** PostgreSQL does not take what the intent holds. */
  | { outcome: 'unstorable' }
  /** An operator cancelled it before it was accepted. */
  | { outcome: 'cancelled' }
  /** No row of it came back: PostgreSQL has fallen back, and its entry is gone from the stream. */
  | { outcome: 'unknown' };

/** Totals of the routes of a notification. */
export interface RouteTotals {
  published: number;
  skipped: number;
  deadLettered: number;
}

export type NotificationResult =
  ({ outcome: 'accepted' } & RouteTotals) | Exclude<Acceptance, { outcome: 'accepted' }>;

/** Which route: all that a replay from the `temporal` CLI must name. */
export interface RouteKey {
  notificationId: string;
  /** See `routeRefOf` in api/ids.ts. */
  routeRef: string;
}

/** Input of a route's workflow. An operator who starts one by hand or by a signal gives the key only. */
export interface RouteInput extends RouteKey {
  /** The notification was reset: a dead-lettered route of it is to be replayed. */
  replay?: boolean;
  first?: FirstAttempt;
}

/** The order to open a dead-lettered route again. */
export interface ReplayOrder {
  /** Unique per replay of the route, and the same in each attempt of it. */
  replayId: string;
  requestedBy: string;
  reason?: string;
}

/** Input of an attempt to publish. */
export interface Publication extends RouteKey {
  replay?: ReplayOrder;
  /** The run id that a reset leaves as it is: an attempt of another run belongs to a reset, which is an order too. */
  originalRunId?: string;
}

/** Where operators read what to do about a dead letter. */
export const DEAD_LETTER_RUNBOOK =
  'https://github.com/galaxy-notify/galaxy-notify/blob/main/docs/operate/runbook.md#notificationdeadletters';

/** What a route died of, for the details of its workflows. */
export interface Death {
  classification: string;
  /** The last error. */
  cause?: string;
  /** What to do about it. */
  hint?: string;
}

/** How one attempt to publish a route ended without a failure. */
export type PublishResult =
  | { status: 'published' | 'skipped' }
  | ({ status: 'dead_letter' } & Death)
  /** The channel is paused: nothing was tried, nothing spent. */
  | { status: 'paused' }
  /** Nothing was spent: the attempt could not be made or not be recorded, and is to be made again. */
  | { status: 'deferred'; reason: DeferralReason; retryInMs?: number };

/**
 * `leased`: another worker holds the route at this moment. `postgres_unavailable`, `postgres_unusable`: the attempt could
 * not be recorded, since PostgreSQL does not answer, or is not as it must be.
 * `redis_unavailable`: Redis answers that it is not the master or is loading, or whether an earlier generation was handed
 * off could not be found out. `replicas_behind`: it is handed off, and fewer replicas of Redis have that than must.
 * `attempt_not_finished`: a time-out, or a worker that died.
 */
export type DeferralReason =
  | 'leased'
  | 'postgres_unavailable'
  | 'postgres_unusable'
  | 'redis_unavailable'
  | 'replicas_behind'
  | 'attempt_not_finished';

/** An attempt that failed and was recorded; the route has budget left. */
export interface FailedAttempt {
  status: 'failed';
  classification: PublicationFailure;
  details: PublicationFailureDetails;
}

/** Details of a failed publication, carried by the failure from the activity to the workflow. */
export interface PublicationFailureDetails {
  /** Attempts spent so far, this one included. */
  attemptCount: number;
  maxAttempts: number;
  /** Epoch ms. */
  nextAttemptAtMs: number;
  /** How long that was from the failure on: a wait, since clocks differ. */
  retryInMs: number;
}

export interface RouteResult {
  status: 'published' | 'skipped';
}

/** Status of a route once nothing will happen to it by itself. */
export type SettledStatus = RouteResult['status'] | 'dead_letter';

// --- The reader of an intent stream: the workflow that keeps exactly one, and what it reports.

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
 * forgotten what it knew. After these, entries are read again. `eviction_enabled`: Redis may drop keys when its memory is
 * full. `stream_ids_ahead`: a producer chose an id that is more than a day ahead of the clock of Redis.
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
