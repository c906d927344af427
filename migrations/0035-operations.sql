-- Up Migration

-- Operations of further kinds. A process of the release before takes no step of one: Temporal gives it to a later one.
ALTER TABLE notification.operations
    DROP CONSTRAINT operations_kind_check,
    ADD CONSTRAINT operations_kind_check CHECK (kind IN ('replay', 'cancel', 'republish', 'resend', 'recreate')),
    -- How it does things, such as the fields with which entries are mended.
    ADD COLUMN options jsonb;

-- What it was chosen to do: a route, a notification as a whole or a refused entry, a mobile push job, or a connection.
ALTER TABLE notification.operation_items
    ALTER COLUMN notification_id DROP NOT NULL,
    ADD COLUMN job_id  text,
    ADD COLUMN conn_id text,
    ADD CONSTRAINT operation_items_of_one CHECK (num_nonnulls(notification_id, job_id, conn_id) = 1);
