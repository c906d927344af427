-- Up Migration

-- Who changed a symbol last; rows of before do not say.
ALTER TABLE notification.symbols ADD COLUMN changed_by text;

-- Since when pushes to a target fail; null: the last one succeeded, or there was none.
ALTER TABLE notification.symbol_targets ADD COLUMN failing_since timestamptz;
