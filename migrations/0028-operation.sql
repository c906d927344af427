-- Up Migration

-- What is known of this installation as a whole: one row. While histories may hold payloads in plain, or processes of a
-- release that cannot read payloads which are bound to their workflow may run, payloads in plain are accepted, unless
-- NOTIFICATION_PAYLOAD_PLAIN says otherwise. True from the beginning where the schema is older than this table; a process
-- that starts without keys of payloads makes it true.
CREATE TABLE notification.installation (
    is_only_row    boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    may_hold_plain boolean NOT NULL
);

-- All migrations of a new database are one transaction.
INSERT INTO notification.installation (may_hold_plain)
SELECT EXISTS (SELECT FROM notification.schema_migrations WHERE run_on < now());
