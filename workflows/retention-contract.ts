/** Retention as clients, schedules and workers name it. Pure. */

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
