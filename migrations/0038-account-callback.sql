-- Up Migration

-- Shards of account callbacks as operators have set them: one that is paused computes and tells nothing. A shard without a
-- row is open.
CREATE TABLE notification.callback_pauses (
    shard      integer     PRIMARY KEY CHECK (shard >= 0),
    is_paused  boolean     NOT NULL,
    reason     text,
    changed_by text        NOT NULL,
    changed_at timestamptz NOT NULL
);

CREATE INDEX callback_set_aside_due_idx ON notification.callback_set_aside (next_try_at) WHERE next_try_at IS NOT NULL;
