-- Up Migration

-- The recipient's key did not open when the queue was to be deleted on its router; it is tried again by each sweep.
ALTER TABLE subscriptions.rcv_queues ADD COLUMN del_failed boolean NOT NULL DEFAULT false;

-- Queues that a client hands over with their private keys: they get from the client to the service here, sealed, and not
-- through a workflow. Gone when it is done.
CREATE TABLE subscriptions.queue_imports (
    request_id uuid        PRIMARY KEY,
    agent_id   text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    sealed     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
