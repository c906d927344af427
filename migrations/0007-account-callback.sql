-- Up Migration

-- Entries of the stream of account inputs that are neither prices nor positions: what was sent, for whoever sends it again.
CREATE TABLE notification.malformed_account_inputs (
    stream_entry_id text        PRIMARY KEY,
    failure_code    text        NOT NULL,
    failure_message text        NOT NULL,
    -- The fields of the entry, cut where they are long.
    raw_fields      jsonb       NOT NULL,
    recorded_at     timestamptz NOT NULL
);
CREATE INDEX malformed_account_inputs_recorded_at_idx
    ON notification.malformed_account_inputs (recorded_at DESC, stream_entry_id DESC);
