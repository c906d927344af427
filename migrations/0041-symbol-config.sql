-- Up Migration

-- Receivers refuse a whole list with another name (api/symbol-config/push.ts): a program that writes one is refused here.
ALTER TABLE notification.symbols
    DROP CONSTRAINT symbols_symbol_check,
    DROP CONSTRAINT symbols_ticker_check,
    ADD CONSTRAINT symbols_symbol_check CHECK (symbol COLLATE "C" ~ '^[!-~]{1,64}$'),
    ADD CONSTRAINT symbols_ticker_check CHECK (ticker COLLATE "C" ~ '^[!-~]{1,64}$');

-- The target answered 410 to the last push: it is asked again only with pushes to all.
ALTER TABLE notification.symbol_targets ADD COLUMN is_gone boolean NOT NULL DEFAULT false;
