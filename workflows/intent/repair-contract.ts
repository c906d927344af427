/** The workflow that puts back what an outbound stream has lost. Pure. */

export const REPAIR_WORKFLOW = 'outboundRepair';

export const repairWorkflowId = (stream: string): string => `outbound-repair/${stream}`;

/** What a repair did, and its heartbeat while it goes on. */
export interface RepairProgress {
  /** Published routes whose entries were looked for. */
  checked: number;
  /** Those whose entry was gone, and which were handed off again under the same id. */
  repaired: number;
  /** Where it has come to, from the newest to the oldest; for the next attempt. */
  before?: RepairCursor;
}

export interface RepairCursor {
  /** To the microsecond. */
  publishedAt: string;
  notificationId: string;
  routeId: string;
}
