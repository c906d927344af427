-- Up Migration

-- Who asked for what: commands that change something of which no other row says who wanted it.
CREATE TABLE notification.operator_actions (
    action_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The command, such as `producers weight`.
    action       text        NOT NULL,
    -- What it was done to, as the command names it; null: everything.
    target       text,
    requested_by text        NOT NULL,
    -- What else was asked for, for people.
    detail       text,
    acted_at     timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX operator_actions_acted_at_idx ON notification.operator_actions (acted_at);
CREATE INDEX operator_actions_target_idx ON notification.operator_actions (target, acted_at);
