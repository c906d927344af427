-- Up Migration

-- Since when a record lacks what it knew of somebody who is forgotten. Of one who was its only recipient it lacks the
-- payload, too, and its idempotency key stands as a hash (api/intent/forgotten.ts): the key stays reserved.
ALTER TABLE notification.records ADD COLUMN forgotten_at timestamptz;

-- Who asked for somebody to be forgotten, and what was removed. The hash tells whether a given id was asked for, as after
-- a backup was put back, which brings back what was forgotten since.
CREATE TABLE notification.forgotten_users (
    request_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_sha256  text        NOT NULL,
    requested_by text        NOT NULL,
    reason       text,
    begun_at     timestamptz NOT NULL,
    -- Null: it was cut off, and is to be repeated.
    ended_at     timestamptz,
    -- Rows and entries by the place that they were in.
    removed      jsonb,
    CONSTRAINT forgotten_users_removed CHECK ((ended_at IS NULL) = (removed IS NULL))
);

CREATE INDEX forgotten_users_begun_at_idx ON notification.forgotten_users (begun_at);
