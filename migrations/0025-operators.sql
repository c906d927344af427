-- Up Migration

-- Whom an intent was for that was cancelled before it was accepted; null: nobody had looked yet, or a release of before
-- wrote the row.
ALTER TABLE notification.cancelled_intents ADD COLUMN recipient_user_ids jsonb;

-- Whom an entry names that was refused: all texts of its list, also of one that is no JSON. As jsonb, since an index keeps
-- only the hash of what is long there.
CREATE FUNCTION notification.named_users(raw_fields jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
      SELECT coalesce(jsonb_agg(found.text[1]), '[]'::jsonb)
        FROM regexp_matches(raw_fields ->> 'recipient_user_ids_json', '"([^"\\]+)"', 'g') AS found (text)
    $$;

-- What an operator does to many: chosen at once when it is asked for, and worked off by a workflow, operation/<id>.
CREATE TABLE notification.operations (
    operation_id text        PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('replay', 'cancel')),
    -- As it was asked for, for people.
    filter       jsonb       NOT NULL,
    total        integer     NOT NULL,
    rate         integer     NOT NULL CHECK (rate > 0),
    requested_by text        NOT NULL,
    reason       text,
    created_at   timestamptz NOT NULL,
    -- Of its items: those that were dealt with, and of them those where there was something to do.
    done         integer     NOT NULL DEFAULT 0,
    ordered      integer     NOT NULL DEFAULT 0,
    -- When its workflow ended, and how.
    ended_at     timestamptz,
    outcome      text,
    CONSTRAINT operations_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX operations_created_at_idx ON notification.operations (created_at);

-- What it was chosen to do; of a cancellation, notifications as a whole.
CREATE TABLE notification.operation_items (
    operation_id    text    NOT NULL REFERENCES notification.operations ON DELETE CASCADE,
    position        integer NOT NULL,
    notification_id text    NOT NULL,
    route_id        text,
    -- Null: it is to be done. Otherwise whether there was something to do.
    was_ordered     boolean,
    PRIMARY KEY (operation_id, position)
);
CREATE INDEX operation_items_to_do_idx ON notification.operation_items (operation_id, position) WHERE was_ordered IS NULL;
