-- Up Migration

-- `host` of a router has all its hosts, with commas between them.
ALTER TABLE subscriptions.smp_servers
    -- Sealed: the password of those who may make queues.
    ADD COLUMN basic_auth bytea;

-- Sealed: the secret by which the messages of a queue are read, agreed with its router. Without it messages are read by
-- whoever made the queue, or by nobody.
ALTER TABLE subscriptions.rcv_queues ADD COLUMN rcv_dh_secret bytea;
