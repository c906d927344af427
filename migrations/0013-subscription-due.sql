-- Up Migration

-- What is due on a server is found without a walk over what is not: during a mass Create, most rows of a notification
-- router still wait for their key.
CREATE INDEX ntf_subscriptions_ntf_due_idx ON subscriptions.ntf_subscriptions
    (agent_id, ntf_host, ntf_port, action_ts, conn_id) WHERE ntf_action IS NOT NULL AND NOT ntf_failed;
CREATE INDEX ntf_subscriptions_smp_due_idx ON subscriptions.ntf_subscriptions
    (agent_id, smp_host, smp_port, action_ts, conn_id) WHERE smp_action IS NOT NULL AND NOT smp_failed;
CREATE INDEX rcv_queues_deleted_server_idx ON subscriptions.rcv_queues (agent_id, host, port, queue_id) WHERE is_deleted;
