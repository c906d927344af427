/** Which subscriptions can be started over. */
import type { Choice } from '../choices.ts';
import { conditions } from '../lists.ts';

/** Of what was given up or could not be read; without any field all of it. */
export interface RetryFilter {
  connIds?: readonly string[];
  userId?: number;
}

export const chooseRetryable = (agentId: string, { connIds, userId }: RetryFilter): Choice => ({
  columns: ['conn_id'],
  from: `(SELECT connection.agent_id, conn_id, connection.user_id, subscription.updated_at
            FROM subscriptions.ntf_subscriptions AS subscription
            JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
           WHERE NOT connection.is_deleted AND (action_ts IS NULL OR ntf_failed OR smp_failed)) AS given_up`,
  at: 'updated_at',
  given: conditions([
    ['agent_id = ?', agentId],
    ['user_id = ?', userId],
    ['conn_id = ANY (?)', connIds],
  ]),
});
