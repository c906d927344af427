/** What `why` asks of each kind of work, and what it says. */
import type { SkipReason } from '../api/intent/outcome.ts';

/** Why a recipient got something, or did not. */
export type Cause =
  // Intents.
  | 'published'
  | 'stream_in_doubt'
  | 'not_on_this_channel'
  | SkipReason
  | 'cancelled_before_acceptance'
  | 'waiting_for_attempt'
  | 'replayed'
  | 'retrying'
  | 'overdue'
  | 'channel_paused'
  | 'producer_paused'
  | 'dead'
  | 'waiting_for_acceptance'
  | 'refused'
  | 'key_conflict'
  | 'duplicate'
  // Mobile pushes.
  | 'push_sent'
  | 'push_partly_sent'
  | 'push_failed'
  | 'push_without_device'
  | 'push_refused'
  | 'push_given_up'
  | 'push_waiting'
  // Account callbacks.
  | 'callback_told'
  | 'callback_waiting'
  | 'callback_retrying'
  | 'callback_given_up'
  | 'account_untracked'
  | 'account_behind'
  // Of no row.
  | 'forgotten'
  | 'never_seen';

/** One sentence about one delivery to a user. */
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

/** What a kind of work found; the parts of an Answer that it does not have are null or absent. */
export interface FoundCause extends Pick<Answer, 'cause' | 'at' | 'sentence'> {
  id?: string | null;
  type?: string | null;
  channel?: string;
  workflowId?: string;
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

/** A duration in ms as a person says it: `350 ms`, `12 s`, `3 min`, `5 h`, `2 d`. */
export function durationOf(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1_000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** A text as one word for a shell: producers choose ids and values, and people paste commands. */
export const shellWord = (text: string): string =>
  /^[\w:@./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
