-- Up Migration

-- Intents that were cancelled before they were accepted: they are not begun again when a store forgets it. Key and
-- producer are those of the entry, since its id may come again with other content.
CREATE TABLE notification.cancelled_intents (
    notification_id text        NOT NULL,
    producer        text        NOT NULL,
    idempotency_key text        NOT NULL,
    cancelled_at    timestamptz NOT NULL,
    PRIMARY KEY (notification_id, producer, idempotency_key)
);

CREATE INDEX cancelled_intents_cancelled_at_idx ON notification.cancelled_intents (cancelled_at);
