-- Up Migration

-- As which entry an event was relayed last, so that it can be told whether its stream still has it. Null before this
-- migration, and while it was not relayed.
ALTER TABLE subscriptions.events ADD COLUMN entry_id text;
