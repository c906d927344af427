-- Up Migration

-- Which symbols there are, and which of them are enabled: changed by operators, pushed to collectors and alerts.

-- Receivers refuse a whole list with another name (api/symbol-config/push.ts): a program that writes one is refused here.
CREATE TABLE notification.symbols (
    symbol      text        PRIMARY KEY CHECK (symbol COLLATE "C" ~ '^[!-~]{1,64}$'),
    ticker      text        NOT NULL CHECK (ticker COLLATE "C" ~ '^[!-~]{1,64}$'),
    decimals    integer     NOT NULL CHECK (decimals BETWEEN 0 AND 30),
    -- Receivers read it as a JSON number.
    price_scale bigint      NOT NULL CHECK (price_scale BETWEEN 1 AND 9007199254740991),
    is_enabled  boolean     NOT NULL,
    updated_at  timestamptz NOT NULL,
    -- Who changed it last; null: a program that does not say.
    changed_by  text
);

-- The enabled symbols as they were at one time, with full metadata. A version never changes.
CREATE TABLE notification.symbol_snapshots (
    version    integer     PRIMARY KEY CHECK (version > 0),
    symbols    jsonb       NOT NULL CHECK (jsonb_array_length(symbols) > 0),
    created_at timestamptz NOT NULL
);

-- The targets of the configuration, and how far each has come.
CREATE TABLE notification.symbol_targets (
    target               text        PRIMARY KEY,
    kind                 text        NOT NULL CHECK (kind IN ('price_collector', 'price_alert')),
    geo                  text        NOT NULL,
    url                  text        NOT NULL,
    acknowledged_version integer,
    acknowledged_at      timestamptz,
    -- Of the last push that failed; kept after a success, as a trace.
    last_error           text,
    last_error_at        timestamptz,
    -- Pushes that failed since the last success; 0: the last one succeeded, or there was none.
    consecutive_failures integer     NOT NULL DEFAULT 0,
    -- Since when pushes to it fail; null: the last one succeeded, or there was none.
    failing_since        timestamptz,
    -- It answered 410 to the last push: it is asked again only with pushes to all.
    is_gone              boolean     NOT NULL DEFAULT false
);
