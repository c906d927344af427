/**
 * Retention, reconciliation, and the recovery that makes good what a restored store has forgotten, as clients, schedules and
 * workers name them. Pure.
 */

export const RETENTION_WORKFLOW = 'retention';

/** @param taskQueue of the kind of work whose tables it is about. */
export const retentionScheduleId = (taskQueue: string): string => `${taskQueue}-retention`;

/** Rows that one run has deleted, by the name of their descriptor. */
export type DeletedRows = Record<string, number>;

export interface RetentionResult {
  deleted: DeletedRows;
  /** Old rows may be left, since the time of the activity was over. */
  isUnfinished: boolean;
}

export const RECONCILIATION_WORKFLOW = 'reconciliation';

/** @param taskQueue of the kind of work whose rows it looks at. */
export const reconciliationScheduleId = (taskQueue: string): string => `${taskQueue}-reconciliation`;

/** What a run has found and done, by the names that its kind of work gives. */
export type Counts = Record<string, number>;

export const RECOVERY_WORKFLOW = 'recovery';
/** One at a time: a second request follows the recovery that runs. */
export const RECOVERY_WORKFLOW_ID = 'recovery';
/** Query; the answer is a RecoveryProgress. */
export const RECOVERY_PROGRESS_QUERY = 'progress';

export interface RecoveryInput {
  /** The intent stream. */
  stream: string;
  /** The streams that routes leave by. */
  outbound: string[];
  /** To which moment the stores may have been put back, ms before now. */
  sinceMs: number;
  /** Other kinds of work that processes run for. */
  also: string[];
  requestedBy: string;
}

/** What one stream had lost. */
export interface RestoredStream {
  stream: string;
  /** Published routes whose entries were looked for. */
  checked: number;
  /** Those that were handed off again. */
  repaired: number;
}

export interface RecoveryProgress {
  step: 'reading again' | 'looking for entries' | 'taking work up' | 'done';
  /** Entries from `from` up to `upTo` are read again; absent when nothing was ever read. */
  readAgain?: { from: string; upTo: string };
  restored: RestoredStream[];
  takenUp: Counts;
  /** The other kinds of work: what was taken up, and the entry from which on its stream is read again, if it reads one. */
  also: Record<string, { takenUp: Counts; againFrom?: string }>;
}

/** The workflow that puts back what an outbound stream has lost. */
export const REPAIR_WORKFLOW = 'outboundRepair';

export const repairWorkflowId = (stream: string): string => `outbound-repair/${stream}`;

/** What a repair did, and its heartbeat while it goes on. */
export interface RepairProgress extends Omit<RestoredStream, 'stream'> {
  /** Where it has come to, from the newest to the oldest; for the next attempt. The time is to the microsecond. */
  before?: { publishedAt: string; notificationId: string; routeId: string };
}
