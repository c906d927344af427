-- Up Migration

-- As which entry a route was handed off last, so that it can be told whether its stream still has it. Null before this
-- migration, and while nothing was handed off.
ALTER TABLE notification.routes ADD COLUMN entry_id text;

-- The intent itself: Temporal may lose who waits for it.
ALTER TABLE notification.waiting_intents ADD COLUMN intent jsonb;

-- What was handed off within a window.
CREATE INDEX routes_published_at_idx ON notification.routes (published_at) WHERE published_at IS NOT NULL;

-- How each outbound stream was when it was last seen whole. A store that falls back does not know that it did: this says
-- it, from another store.
CREATE TABLE notification.outbound_streams (
    stream         text        PRIMARY KEY,
    -- Redis' run id: another one means a restart, or another server, either of which may have lost the newest entries.
    server_run_id  text        NOT NULL,
    last_entry_id  text        NOT NULL,
    entries_added  bigint,
    -- Entries below were gone, or read by every consumer group.
    wanted_from    text        NOT NULL,
    seen_at        timestamptz NOT NULL,
    -- Since when a repair is wanted, and why.
    suspect_since  timestamptz,
    suspect_reason text,
    CONSTRAINT outbound_streams_suspect CHECK ((suspect_since IS NULL) = (suspect_reason IS NULL))
);
