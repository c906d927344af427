-- Up Migration

-- The slice that took the intent; null for one with a workflow of its own from the beginning.
ALTER TABLE notification.records ADD COLUMN slice_id text;
