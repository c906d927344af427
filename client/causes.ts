/**
 * Why a recipient got something, or did not: each cause, and the states of rows that it explains. Every state of
 * deploy/STATES.md that is about a recipient has a cause here; a test holds the two against each other.
 */

/** Of each cause: the rows that it follows from, as the page of the states names them. */
export const CAUSES = {
  /** Intents. */
  published: ['records', 'routes.status published'],
  stream_in_doubt: ['outbound_streams.suspect_since', 'outbound_streams.has_fallen_back'],
  not_on_this_channel: ['routes.status skipped'],
  recipient_unusable: ['routes.status skipped'],
  expired: ['routes.status skipped'],
  cancelled: ['routes.status skipped'],
  cancelled_before_acceptance: ['intents.status cancelled'],
  waiting_for_attempt: ['routes.status pending'],
  replayed: ['routes.status pending', 'replays'],
  retrying: ['routes.status failed'],
  overdue: ['routes.status pending', 'routes.status failed'],
  channel_paused: ['channels.is_paused'],
  producer_paused: ['channels.is_paused'],
  dead: ['routes.status dead_letter', 'dead_letters'],
  waiting_for_acceptance: ['intents.status open'],
  refused: ['malformed_intents'],
  key_conflict: ['malformed_intents'],
  duplicate: ['intents.status duplicate'],
  unread: ['inbound_streams'],
  /** Mobile pushes. */
  push_sent: ['notification_log.status sent', 'notification_sends.status sent'],
  push_partly_sent: ['notification_log.status partial'],
  push_failed: [
    'notification_log.status failed',
    'notification_sends.status failed',
    'notification_sends.status removed',
  ],
  push_without_device: ['notification_log.status no_tokens'],
  push_refused: ['notification_log.status malformed'],
  push_given_up: ['notification_log.status max_retries'],
  push_waiting: ['notification_log.status pending', 'notification_sends.status pending'],
  /** Account callbacks. */
  callback_told: ['callback_snapshots.status delivered'],
  callback_waiting: ['callback_snapshots.status pending', 'callback_pauses.is_paused'],
  callback_retrying: ['callback_snapshots.status retrying', 'failed_callbacks'],
  callback_given_up: ['callback_snapshots.status dropped', 'callback_dead_letters'],
  account_untracked: ['callback_trackings'],
  account_behind: ['callback_trackings.is_waited_for', 'callback_settings.users_placed'],
  /** Of no row. */
  forgotten: [],
  never_seen: [],
} as const satisfies Record<string, readonly string[]>;

export type Cause = keyof typeof CAUSES;

/** Rows that say nothing about what somebody got, and why not. */
export const WITHOUT_CAUSE: Record<string, string> = {
  'intents.status accepted': 'its routes say what became of it',
  'intents.status refused': 'its row of malformed_intents says why',
  'intents.status conflict': 'the same',
  operations: 'what an operator asked for many; each route says what became of it',
  operation_items: 'the same',
  'operation_items.was_ordered': 'the same',
  outcomes: 'what a producer is told; the routes say it as well',
  outcome_tallies: 'the same',
  malformed_account_inputs: 'whose it was cannot be told from what is no input',
};

/** One sentence about one thing that somebody was to get. */
export interface Answer {
  kind: 'intent' | 'mobile-push' | 'account-callback';
  cause: Cause;
  /** When it became so; of what waits, since when. */
  at: Date;
  /** Of the notification, of the entry that was refused, or of the job. */
  id?: string;
  /** Notification type. */
  type?: string;
  channel?: string;
  sentence: string;
  /** Its workflow in the Web UI. */
  link?: string;
}

/** What is asked of each kind of work. */
export interface Question {
  /** A user's id; of administrators, the address. */
  recipient: string;
  since: Date;
  /** Answers at most, the newest. */
  limit: number;
  /** Notification type. */
  type?: string;
}

/** A time within a sentence. */
export const timeOf = (time: Date): string => time.toISOString().replace('.000Z', 'Z');

/** `1 device`, `2 devices`. */
export const countOf = (count: number, what: string): string => `${count} ${what}${count === 1 ? '' : 's'}`;
