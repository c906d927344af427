-- Up Migration

-- How far each inbound stream was read, and how it looked. Any of the stores may fall back to an earlier state without
-- knowing that it did: Redis and Temporal are held against this row, and this row against a number in Redis.
CREATE TABLE notification.inbound_streams (
    stream               text        PRIMARY KEY,
    -- Grows with each look; Redis remembers it too. A smaller one than there means that PostgreSQL fell back.
    beat                 bigint      NOT NULL,
    -- Where its reader was, or its consumer group.
    passed_id            text        NOT NULL,
    -- As the stream was seen; null before there was one.
    last_entry_id        text,
    max_deleted_entry_id text,
    entries_added        bigint,
    -- The newest notification that was started. A Temporal that does not know it has fallen back.
    started_id           text,
    started_at           timestamptz,
    seen_at              timestamptz NOT NULL,
    -- Where somebody wants the reader to read again from.
    rewind_to            text
);
