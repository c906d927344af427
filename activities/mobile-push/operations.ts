/** What operators do to many mobile push jobs: sends that failed are made again. A job carries an order out once. */
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import pLimit from 'p-limit';
import { searchableKey } from '../../api/ids.ts';
import { MOBILE_PUSH_WORKFLOW, mobileReplay } from '../../workflows/mobile-push/contract.ts';
import type { OperationKind } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { ORDER_OF_ITEM, PARALLEL_ITEMS, operationItems, workOf } from '../operations.ts';

export function mobileOperations(
  workflows: WorkflowClient,
): Partial<Record<OperationKind, OperationWork<OperationItem>>> {
  return {
    resend: workOf<JobItem>({
      list: LIST_JOBS,
      deal: (items) => pLimit(PARALLEL_ITEMS).map(items, resend),
    }),
  };

  /** @returns whether a device is left to send it to. */
  async function resend(item: JobItem): Promise<boolean> {
    if (item.was_resent) return true;
    if (!item.is_failed) return false;
    try {
      const request = { requestedBy: item.requested_by, orderId: orderIdOf(item.operation_id) };
      await workflows.signalWithStart(
        MOBILE_PUSH_WORKFLOW,
        mobileReplay(item.job_id, searchableKey(item.user_id ?? ''), request),
      );
      return true;
    } catch (error) {
      // Its last run completed: every device that could be reached has the push.
      if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
      throw error;
    }
  }
}

interface JobItem extends OperationItem {
  job_id: string;
  user_id: string | null;
  /** It failed before the operation began, and was not opened again since. */
  is_failed: boolean;
  /** By this operation, in a step that did not come to its end. */
  was_resent: boolean;
}

/** Jobs that were pending when the operation began are among those that failed: see client/mobile-push/jobs.ts. */
const LIST_JOBS = {
  name: 'list_operation_jobs',
  text: operationItems(
    `item.job_id, job.user_id,
           coalesce(job.content IS NOT NULL AND job.status IN ('partial', 'failed', 'max_retries', 'pending')
                    AND job.updated_at < operation.created_at, false) AS is_failed,
           coalesce(job.opened_by = ${ORDER_OF_ITEM}, false) AS was_resent`,
    'LEFT JOIN notifications.notification_log AS job ON job.job_id = item.job_id',
  ),
};
