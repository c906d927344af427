-- Up Migration

-- What recurring statements look for has an index, so that each takes as long as what it finds, however much else there
-- is. test/platform/statements.service.test.ts holds them to that.

-- Routes that wait, of each channel: those of a paused one may be many. It takes the place of routes_due_idx.
CREATE INDEX routes_waiting_idx ON notification.routes (channel, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
DROP INDEX notification.routes_due_idx;

CREATE INDEX waiting_intents_updated_at_idx ON notification.waiting_intents (updated_at);

-- Jobs that retention deletes: malformed ones are kept for longer, and those under way until they end.
CREATE INDEX notification_log_ended_idx ON notifications.notification_log (created_at)
    WHERE status NOT IN ('pending', 'malformed');

-- What gauges count.
CREATE INDEX ntf_subscriptions_status_idx ON subscriptions.ntf_subscriptions (status);
CREATE INDEX ntf_subscriptions_ntf_due_at_idx ON subscriptions.ntf_subscriptions (action_ts)
    WHERE ntf_action IS NOT NULL AND NOT ntf_failed;
CREATE INDEX ntf_subscriptions_without_action_idx ON subscriptions.ntf_subscriptions (agent_id, conn_id)
    WHERE action_ts IS NULL;

-- What each sweep looks for.
CREATE INDEX ntf_subscriptions_failed_idx ON subscriptions.ntf_subscriptions (agent_id, conn_id)
    WHERE ntf_failed OR smp_failed;
CREATE INDEX rcv_queues_failed_idx ON subscriptions.rcv_queues (agent_id, queue_id) WHERE del_failed;
CREATE INDEX ntf_tokens_to_delete_failed_idx ON subscriptions.ntf_tokens_to_delete (agent_id, id) WHERE del_failed;
CREATE INDEX ntf_tokens_to_delete_created_at_idx ON subscriptions.ntf_tokens_to_delete (created_at);
CREATE INDEX token_requests_created_at_idx ON subscriptions.token_requests (created_at);
CREATE INDEX queue_imports_created_at_idx ON subscriptions.queue_imports (created_at);

-- Connections that go with their last queue.
CREATE INDEX connections_deleted_idx ON subscriptions.connections (agent_id, conn_id) WHERE is_deleted;
