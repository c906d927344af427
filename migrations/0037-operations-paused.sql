-- Up Migration

-- Who paused an operation, for as long as it is paused: Temporal may forget that it is, or the operation altogether. A
-- process of the release before does not look, and writes nothing here.
ALTER TABLE notification.operations ADD COLUMN paused_by text;

-- Few of all that are kept.
CREATE INDEX operations_open_idx ON notification.operations (created_at) WHERE ended_at IS NULL;
