-- Up Migration

-- Intents that are not decided yet although somebody has tried: one row from the first trouble to the decision. Operators
-- see by it what waits; a later intent with the same key waits for the earlier one.
CREATE TABLE notification.waiting_intents (
    notification_id   text        PRIMARY KEY,
    notification_type text        NOT NULL,
    producer          text        NOT NULL,
    idempotency_key   text        NOT NULL,
    waiting_since     timestamptz NOT NULL,
    attempt           integer     NOT NULL,
    -- Attempts that nothing spoilt but recipients for whom the User Service has no usable answer.
    unusable_attempts integer     NOT NULL,
    reason            text        NOT NULL,
    updated_at        timestamptz NOT NULL
);

CREATE INDEX waiting_intents_key_idx ON notification.waiting_intents (producer, idempotency_key);

-- Intents that were found to be repeats of accepted ones. The decision outlives the record that it was made by.
CREATE TABLE notification.duplicates (
    notification_id text        PRIMARY KEY,
    duplicate_of    text        NOT NULL,
    decided_at      timestamptz NOT NULL
);

CREATE INDEX duplicates_decided_at_idx ON notification.duplicates (decided_at);

-- Whose key it was, for idempotency_conflict.
ALTER TABLE notification.malformed_intents ADD COLUMN conflicts_with text;
