-- Up Migration

-- Extremes of account values, delivered to the portfolio service of each user once an hour and once a day. Values are
-- decimals in text and stay as the producer wrote them. Hours and days are those of UTC, in whatever zone a session is.

CREATE TABLE notification.callback_settings (
    is_only_row      boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    -- Shards that the users are spread over; set by the service at its start, while there are no users.
    shards           integer NOT NULL CHECK (shards BETWEEN 1 AND 1000)
);
INSERT INTO notification.callback_settings (shards) VALUES (4);

-- The shard of a user. md5 spreads, and stays the same with every version of PostgreSQL.
CREATE FUNCTION notification.callback_shard(user_id text) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
      SELECT mod(('x' || substr(md5(user_id), 1, 7))::bit(28)::integer, shards) FROM notification.callback_settings
    $$;

-- Orders ids of stream entries, `<ms>-<sequence>`: both are unsigned 64-bit integers.
CREATE FUNCTION notification.entry_order(entry_id text) RETURNS numeric[]
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT string_to_array(entry_id, '-')::numeric[] $$;

-- Who takes part, and how far that has come. The collation is that of keyset pagination.
CREATE TABLE notification.callback_trackings (
    user_id        text COLLATE "C" PRIMARY KEY CHECK (user_id <> ''),
    shard          integer          NOT NULL,
    -- The `track` or `untrack` that made it so; `0-0` where the portfolio service said that the user is gone.
    entry_id       text             NOT NULL,
    -- Periods that begin at or after it are not delivered; null: the user takes part.
    until_ms       bigint,
    -- Daily callbacks of the shard wait for it. Not for a user who was untracked, is gone, or was released.
    is_waited_for  boolean          NOT NULL,
    -- The last day of UTC to whose end it has caught up. Never goes back.
    caught_up_date date             NOT NULL,
    -- The last day that was delivered or given up. Never goes back.
    daily_date     date             NOT NULL,
    changed_at     timestamptz      NOT NULL
);
CREATE INDEX callback_trackings_catching_up_idx
    ON notification.callback_trackings (shard, caught_up_date, user_id) WHERE is_waited_for;
-- For retention.
CREATE INDEX callback_trackings_ended_idx
    ON notification.callback_trackings (changed_at) WHERE until_ms IS NOT NULL OR entry_id = '0-0';
CREATE INDEX callback_trackings_shard_idx ON notification.callback_trackings (shard, daily_date);

-- What is delivered about a period. It never changes once it was first sent: whatever is sent again is the same.
CREATE TABLE notification.callback_snapshots (
    kind            text             NOT NULL CHECK (kind IN ('hourly', 'daily')),
    user_id         text COLLATE "C" NOT NULL,
    period_start_ms bigint           NOT NULL,
    shard           integer          NOT NULL,
    -- The index that hourly emission goes by.
    position        bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- The stream entry that it comes from.
    entry_id        text             NOT NULL,
    peak_value      text             NOT NULL,
    peak_at_ms      bigint           NOT NULL,
    bottom_value    text             NOT NULL,
    bottom_at_ms    bigint           NOT NULL,
    closing_value   text             NOT NULL,
    -- retrying and dropped: in failed_callbacks.
    status          text             NOT NULL DEFAULT 'pending'
                                     CHECK (status IN ('pending', 'delivered', 'retrying', 'dropped')),
    created_at      timestamptz      NOT NULL,
    -- Since the first attempt began, no entry replaces it.
    emitted_at      timestamptz,
    settled_at      timestamptz,
    -- Entries that came later than that: how many, the newest of them, and its values.
    late_entries    integer          NOT NULL DEFAULT 0,
    late_entry_id   text,
    late_values     jsonb,
    PRIMARY KEY (kind, user_id, period_start_ms)
);
CREATE INDEX callback_snapshots_pending_idx
    ON notification.callback_snapshots (shard, kind, period_start_ms, position) WHERE status = 'pending';
CREATE INDEX callback_snapshots_pending_days_idx
    ON notification.callback_snapshots (shard, period_start_ms, user_id) WHERE status = 'pending' AND kind = 'daily';
-- For retention.
CREATE INDEX callback_snapshots_delivered_idx
    ON notification.callback_snapshots (kind, settled_at) WHERE status = 'delivered';
CREATE INDEX callback_snapshots_dropped_idx ON notification.callback_snapshots (settled_at) WHERE status = 'dropped';

-- Callbacks whose last attempt failed. Those that were given up are the dead letters.
CREATE TABLE notification.failed_callbacks (
    kind            text             NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    period_start_ms bigint           NOT NULL,
    shard           integer          NOT NULL,
    -- Failed attempts so far; 0 for one that is replayed.
    attempts        integer          NOT NULL,
    -- Null: it spent its retries, and waits for a replay.
    next_attempt_at timestamptz,
    last_error      text             NOT NULL,
    failed_at       timestamptz      NOT NULL,
    PRIMARY KEY (kind, user_id, period_start_ms),
    FOREIGN KEY (kind, user_id, period_start_ms) REFERENCES notification.callback_snapshots
);
-- Also with those that were given up: the status of each shard counts them.
CREATE INDEX failed_callbacks_due_idx ON notification.failed_callbacks (shard, next_attempt_at);
-- New daily callbacks leave out users who have one to be retried.
CREATE INDEX failed_callbacks_daily_idx
    ON notification.failed_callbacks (user_id) WHERE kind = 'daily' AND next_attempt_at IS NOT NULL;
CREATE INDEX failed_callbacks_dead_idx
    ON notification.failed_callbacks (failed_at DESC, kind, user_id, period_start_ms) WHERE next_attempt_at IS NULL;

-- Entries of the stream of extremes that break its contract: what was sent, for the producer that sends it again.
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
