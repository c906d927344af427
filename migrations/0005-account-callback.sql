-- Up Migration

-- Extremes of account values, told to the portfolio service of each user once an hour and once a day. Times of ticks and
-- of periods are epoch ms, as they are told: hours and days of UTC are divisions of them, in whatever zone a session is.

-- How many shards the users are spread over; set by the service at its start.
CREATE TABLE notification.callback_settings (
    is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    shards      integer NOT NULL CHECK (shards BETWEEN 1 AND 1000)
);
INSERT INTO notification.callback_settings (shards) VALUES (4);

-- The shard of a user. md5 spreads, and stays the same with every version of PostgreSQL.
CREATE FUNCTION notification.callback_shard(user_id text) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
      SELECT mod(('x' || substr(md5(user_id), 1, 7))::bit(28)::integer, shards) FROM notification.callback_settings
    $$;

-- Who is told, and how far that has come. The collation is that of keyset pagination.
CREATE TABLE notification.callback_trackings (
    user_id         text COLLATE "C" PRIMARY KEY CHECK (user_id <> ''),
    shard           integer          NOT NULL,
    -- The last day of UTC that is settled: told, given up, or without anything to tell. Never goes back.
    daily_date      date             NOT NULL,
    -- The hours before it have their snapshots.
    caught_up_to_ms bigint           NOT NULL CHECK (caught_up_to_ms % 3600000 = 0),
    created_at      timestamptz      NOT NULL
);
CREATE INDEX callback_trackings_catching_up_idx
    ON notification.callback_trackings (shard, caught_up_to_ms, user_id);
CREATE INDEX callback_trackings_daily_idx
    ON notification.callback_trackings (shard, daily_date, user_id);

-- What a user holds from a time on: cash, and of each symbol so many, as decimals in text. Without coefficients the
-- account has no value.
CREATE TABLE notification.callback_positions (
    user_id      text COLLATE "C" NOT NULL,
    at_ms        bigint           NOT NULL,
    cash         numeric          NOT NULL,
    coefficients jsonb,
    PRIMARY KEY (user_id, at_ms)
);

CREATE TABLE notification.callback_prices (
    symbol text COLLATE "C" NOT NULL,
    at_ms  bigint           NOT NULL,
    price  numeric          NOT NULL,
    PRIMARY KEY (symbol, at_ms)
);

-- Every symbol that has ever had a price, and when the last one was: an hour is complete when all have gone past it.
CREATE TABLE notification.callback_symbols (
    symbol     text COLLATE "C" PRIMARY KEY,
    last_at_ms bigint           NOT NULL
);

-- What is told about a period. Written before it is first sent, and never changed: whatever is sent again is the same.
CREATE TABLE notification.callback_snapshots (
    kind            text             NOT NULL CHECK (kind IN ('hourly', 'daily')),
    user_id         text COLLATE "C" NOT NULL,
    period_start_ms bigint           NOT NULL,
    shard           integer          NOT NULL,
    -- The index that hourly emission goes by.
    position        bigint           NOT NULL GENERATED ALWAYS AS IDENTITY,
    peak_value      numeric          NOT NULL,
    peak_at_ms      bigint           NOT NULL,
    bottom_value    numeric          NOT NULL,
    bottom_at_ms    bigint           NOT NULL,
    closing_value   numeric          NOT NULL,
    -- retrying: in failed_callbacks. dropped: in callback_dead_letters.
    status          text             NOT NULL DEFAULT 'pending'
                                     CHECK (status IN ('pending', 'delivered', 'retrying', 'dropped')),
    created_at      timestamptz      NOT NULL,
    settled_at      timestamptz,
    PRIMARY KEY (kind, user_id, period_start_ms)
);
CREATE INDEX callback_snapshots_pending_idx
    ON notification.callback_snapshots (shard, kind, period_start_ms, position) WHERE status = 'pending';
CREATE INDEX callback_snapshots_cleanup_idx
    ON notification.callback_snapshots (kind, period_start_ms);

-- Callbacks whose last attempt failed and that will be tried again.
CREATE TABLE notification.failed_callbacks (
    kind            text             NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    period_start_ms bigint           NOT NULL,
    shard           integer          NOT NULL,
    -- Failed attempts so far; 0 for one that is replayed.
    attempts        integer          NOT NULL,
    next_attempt_at timestamptz      NOT NULL,
    last_error      text             NOT NULL,
    failed_at       timestamptz      NOT NULL,
    PRIMARY KEY (kind, user_id, period_start_ms),
    FOREIGN KEY (kind, user_id, period_start_ms) REFERENCES notification.callback_snapshots
);
CREATE INDEX failed_callbacks_due_idx ON notification.failed_callbacks (shard, next_attempt_at);
-- New daily callbacks leave out whoever has one here.
CREATE INDEX failed_callbacks_daily_idx ON notification.failed_callbacks (user_id) WHERE kind = 'daily';

-- Callbacks that spent their retries. One that is replayed and dropped again has the later failure.
CREATE TABLE notification.callback_dead_letters (
    kind            text             NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    period_start_ms bigint           NOT NULL,
    attempts        integer          NOT NULL,
    last_error      text             NOT NULL,
    dropped_at      timestamptz      NOT NULL,
    -- Since it was dropped; null: it has not been.
    replayed_at     timestamptz,
    replayed_by     text,
    PRIMARY KEY (kind, user_id, period_start_ms),
    FOREIGN KEY (kind, user_id, period_start_ms) REFERENCES notification.callback_snapshots
);
CREATE INDEX callback_dead_letters_list_idx
    ON notification.callback_dead_letters (dropped_at DESC, kind, user_id, period_start_ms);
