-- Up Migration

-- An application made the queue and goes on using it: its router is never asked to delete it.
ALTER TABLE subscriptions.rcv_queues ADD COLUMN is_imported boolean NOT NULL DEFAULT false;

-- The notifier of one agent would end that of another.
ALTER TABLE subscriptions.rcv_queues ADD CONSTRAINT rcv_queues_one_agent_key UNIQUE (rcv_id, host, port);
