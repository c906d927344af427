-- Up Migration

-- What operators do to routes and channels. Additive: the tables of 0001 stay as they are.

-- One replay of a dead-lettered route: the route's next generation, with a budget of its own. Generation 0 is the
-- route as it was accepted. Dead letters are left as they are.
CREATE TABLE notification.replays (
    notification_id text        NOT NULL,
    route_id        text        NOT NULL,
    generation      integer     NOT NULL CHECK (generation > 0),
    -- What asked for it, so that a repeated attempt does not count as another replay.
    replay_id       text        NOT NULL,
    requested_by    text        NOT NULL,
    reason          text,
    created_at      timestamptz NOT NULL,
    PRIMARY KEY (notification_id, route_id, generation),
    CONSTRAINT replays_replay_id_key UNIQUE (notification_id, route_id, replay_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES notification.routes ON DELETE CASCADE
);

CREATE INDEX replays_created_at_idx ON notification.replays (created_at);

-- Lists of dead-lettered routes by age, for operators and bulk replay.
CREATE INDEX routes_dead_lettered_idx ON notification.routes (dead_lettered_at, notification_id, route_id)
    WHERE status = 'dead_letter';

-- Whether a channel publishes. A channel without a row is open.
CREATE TABLE notification.channels (
    channel    text        PRIMARY KEY CHECK (channel IN ('push', 'email')),
    is_paused  boolean     NOT NULL,
    reason     text,
    changed_by text        NOT NULL,
    changed_at timestamptz NOT NULL
);
