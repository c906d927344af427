-- Up Migration

ALTER TABLE notification.outbound_streams
    -- Entries below wanted_from that a consumer group was given and had not acknowledged.
    ADD COLUMN pending         text[]      NOT NULL DEFAULT '{}',
    -- The logical database of Redis: another one has another stream of this name.
    ADD COLUMN redis_db        integer     NOT NULL DEFAULT 0,
    -- When it was first seen, if it had no entry then: what was published earlier is in another stream.
    ADD COLUMN empty_at        timestamptz NOT NULL DEFAULT '-infinity',
    -- A suspected stream does not have what was seen of it, so that nothing tells what it has trimmed.
    ADD COLUMN has_fallen_back boolean     NOT NULL DEFAULT false;
