/**
 * What operators do to many subscriptions: those that were given up or could not be read are started over. Their agent's
 * supervisor looks at each when its turn comes, and leaves one alone that was started over already.
 */
import type { WorkflowClient } from '@temporalio/client';
import type { OperationKind } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { ConnectionList } from '../../workflows/subscription/contract.ts';
import { RETRY_CONNECTIONS_UPDATE, supervisorWorkflowId } from '../../workflows/subscription/contract.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { operationItems, workOf } from '../operations.ts';

export function subscriptionOperations(
  workflows: WorkflowClient,
): Partial<Record<OperationKind, OperationWork<OperationItem>>> {
  return {
    recreate: workOf<ConnectionItem>({
      list: LIST_CONNECTIONS,
      async deal(items) {
        const [first] = items.filter(({ is_to_do: isToDo }) => isToDo);
        if (first) {
          const connIds = items.flatMap(({ conn_id, is_to_do: isToDo }) => (isToDo ? [conn_id] : []));
          await workflows
            .getHandle(supervisorWorkflowId(first.agent_id))
            .executeUpdate<void, [ConnectionList]>(RETRY_CONNECTIONS_UPDATE, {
              // The same one, when the step is made again, for as long as the supervisor remembers.
              updateId: `${orderIdOf(first.operation_id)}/${first.position}/${connIds.length}`,
              args: [{ connIds }],
            });
        }
        return items.map(({ is_to_do, was_begun }) => is_to_do || was_begun);
      },
    }),
  };
}

interface ConnectionItem extends OperationItem {
  agent_id: string;
  conn_id: string;
  /** Given up or unreadable since before the operation began. */
  is_to_do: boolean;
  /** Since the operation began, as in a step that did not come to its end. */
  was_begun: boolean;
}

const LIST_CONNECTIONS = {
  name: 'list_operation_connections',
  text: operationItems(
    `item.conn_id, operation.options ->> 'agentId' AS agent_id,
           coalesce((record.action_ts IS NULL OR record.ntf_failed OR record.smp_failed)
                    AND record.updated_at < operation.created_at AND NOT connection.is_deleted, false) AS is_to_do,
           coalesce(record.action_ts IS NOT NULL AND record.updated_at >= operation.created_at, false) AS was_begun`,
    `LEFT JOIN subscriptions.connections AS connection
        ON connection.agent_id = operation.options ->> 'agentId' AND connection.conn_id = item.conn_id
      LEFT JOIN subscriptions.ntf_subscriptions AS record
        ON record.agent_id = connection.agent_id AND record.conn_id = connection.conn_id`,
  ),
};
