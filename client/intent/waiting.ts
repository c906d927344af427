/** Intents that were read and are not decided yet. */
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
  /** When its entry was read. */
  waitingSince: Date;
  /** Attempts so far, beside the first try. */
  attempt: number;
  /** What the last attempt that said anything met; null before the first one. */
  reason: string | null;
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

/** Why an open intent waits, as SQL. */
export const WHY_OPEN = `CASE WHEN due_at IS NULL THEN reason
              ELSE CASE WHEN windows IS NULL THEN 'it is to be delivered at ' ELSE 'its window ends by ' END || to_char(due_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END`;

const LIST_WAITING = `
  SELECT notification_id AS "notificationId", notification_type AS type, producer,
         idempotency_key AS "idempotencyKey", read_at AS "waitingSince", attempts AS attempt,
         ${WHY_OPEN} AS reason
    FROM notification.intents
   WHERE status = 'open'
   ORDER BY due_at IS NOT NULL, intents.reason IS NULL, read_at, notification_id
   LIMIT $1`;
