-- Up Migration

-- From when on nothing of it is worth sending any more; null: never. The release before writes null, and sends it late.
ALTER TABLE notification.records ADD COLUMN expires_at timestamptz;
