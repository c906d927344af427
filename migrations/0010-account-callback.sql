-- Up Migration

-- Whether every tracking has the shard of its user for this number of shards: moving them is done in parts, and a process
-- may end in between. And how far step 5 has come, which stops after some seconds and goes on later; null: it begins.
ALTER TABLE notification.callback_settings
    ADD COLUMN users_placed     boolean NOT NULL DEFAULT false,
    ADD COLUMN cleanup_step     text,
    ADD COLUMN cleanup_after_ms bigint,
    ADD COLUMN cleanup_after_id text;

-- Accounts whose hour could not be computed. Their trackings have the shard -1, which nobody serves, so that the others
-- go on. The row is deleted with the first hour that is computed again.
CREATE TABLE notification.callback_set_aside (
    user_id       text COLLATE "C" PRIMARY KEY,
    hour_start_ms bigint           NOT NULL,
    -- In a row; each has a longer time until the next try.
    failures      integer          NOT NULL,
    reason        text             NOT NULL,
    set_aside_at  timestamptz      NOT NULL,
    -- Null: an operator says when.
    next_try_at   timestamptz
);

-- A symbol that an operator has forgotten: no hour waits for its next price. A price makes it known again.
ALTER TABLE notification.callback_symbols ADD COLUMN forgotten_at timestamptz;

-- Clean-up goes through what is settled by time and user, from where it stopped.
CREATE INDEX callback_snapshots_settled_idx
    ON notification.callback_snapshots (kind, period_start_ms, user_id) WHERE status IN ('delivered', 'dropped');
DROP INDEX notification.callback_snapshots_cleanup_idx;
