-- Up Migration

-- Shards of account callbacks as operators have set them: one that is paused computes and tells nothing. A shard without a
-- row is open. Processes of the release before do not look here.
CREATE TABLE notification.callback_pauses (
    shard      integer     PRIMARY KEY CHECK (shard >= 0),
    is_paused  boolean     NOT NULL,
    reason     text,
    changed_by text        NOT NULL,
    changed_at timestamptz NOT NULL
);
