-- Up Migration

-- What producers are told about their intents: an outbox, written by the statement that makes it true. A row is what one
-- statement has to tell, of one intent or of hundreds, and is relayed as one entry for each event.
CREATE TABLE notification.outcomes (
    outcome_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Arrays of event id, kind, notification, type, producer, key, request, trace and details, in the order of the stream.
    events      json        NOT NULL,
    event_count integer     NOT NULL CHECK (event_count > 0),
    written_at  timestamptz NOT NULL,
    relayed_at  timestamptz,
    -- As which entry its last event was relayed.
    entry_id    text,
    CONSTRAINT outcomes_relayed_as_entry CHECK ((relayed_at IS NULL) = (entry_id IS NULL))
);

CREATE INDEX outcomes_waiting_idx ON notification.outcomes (outcome_id) WHERE relayed_at IS NULL;
CREATE INDEX outcomes_relayed_idx ON notification.outcomes (relayed_at, outcome_id) WHERE relayed_at IS NOT NULL;

-- Intents that were accepted and whose end is not told yet. Whoever closes the last open route tells it: the lock of this
-- row says who that is.
CREATE TABLE notification.outcome_tallies (
    notification_id text        PRIMARY KEY,
    -- Routes that are neither published, skipped nor dead. Below one: the end is told, and the row may go.
    open            integer     NOT NULL,
    routes          integer     NOT NULL,
    published       integer     NOT NULL,
    skipped         integer     NOT NULL,
    dead_lettered   integer     NOT NULL,
    -- The kind of event that the end will be.
    ending          text        NOT NULL,
    counted_at   timestamptz NOT NULL
) WITH (fillfactor = 50);
