/** Intents that were tried and are not decided yet: their entries have passed the offset, and they have no record. */
import { notificationWorkflowId } from '../../workflows/intent/contract.ts';
import type { Page } from '../lists.ts';
import { DEFAULT_LIMIT, pageOf } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';

export interface WaitingIntent {
  notificationId: string;
  type: string;
  producer: string;
  idempotencyKey: string;
  /** Its first trouble. */
  waitingSince: Date;
  /** Attempts so far, beside the first try. */
  attempt: number;
  /** What the last attempt that said anything met. */
  reason: string;
  link?: string;
}

export function waitingOperations(resources: Pick<OperatorResources, 'db' | 'uiUrl' | 'namespace'>) {
  return {
    /** Intents that wait to be accepted or refused, longest first. */
    async waiting({ limit = DEFAULT_LIMIT }: { limit?: number } = {}): Promise<Page<WaitingIntent>> {
      const { rows } = await resources.db.query<Omit<WaitingIntent, 'link'>>(LIST_WAITING, [limit + 1]);
      return pageOf(rows, limit, (row) => ({
        ...row,
        ...linkField(resources, notificationWorkflowId(row.notificationId)),
      }));
    },
  };
}

const LIST_WAITING = `
  SELECT notification_id AS "notificationId", notification_type AS type, producer,
         idempotency_key AS "idempotencyKey", waiting_since AS "waitingSince", attempt, reason
    FROM notification.waiting_intents
   ORDER BY waiting_since, notification_id
   LIMIT $1`;
