-- Up Migration

-- What all kinds of work share, and what operators do.

-- How far each inbound stream was read, and how it looked. Any of the stores may fall back to an earlier state without
-- knowing that it did: Redis and Temporal are held against this row, and this row against a number in Redis.
CREATE TABLE notification.inbound_streams (
    stream               text        PRIMARY KEY,
    -- Grows with each look; Redis remembers it too. A smaller one than there means that PostgreSQL fell back.
    beat                 bigint      NOT NULL,
    -- Where its reader is, or its consumer group was. The reader of intents moves it in the statement that writes their rows.
    passed_id            text        NOT NULL,
    -- How many entries were ever added up to there; null when they were not counted.
    entries_passed       bigint,
    -- As the stream was seen; null before there was one.
    last_entry_id        text,
    max_deleted_entry_id text,
    entries_added        bigint,
    seen_at              timestamptz NOT NULL,
    -- Entry from which an operator asked the reader to read again.
    rewind_to            text
);

-- How each outbound stream was when it was last seen whole. A store that falls back does not know that it did: this says
-- it, from another store.
CREATE TABLE notification.outbound_streams (
    stream          text        PRIMARY KEY,
    -- Redis' run id: another one means a restart, or another server, either of which may have lost the newest entries.
    server_run_id   text        NOT NULL,
    last_entry_id   text        NOT NULL,
    entries_added   bigint,
    -- Entries below were gone, or read by every consumer group.
    wanted_from     text        NOT NULL,
    seen_at         timestamptz NOT NULL,
    -- Since when a repair is wanted, and why.
    suspect_since   timestamptz,
    suspect_reason  text,
    -- Entries below wanted_from that a consumer group was given and had not acknowledged.
    pending         text[]      NOT NULL DEFAULT '{}',
    -- The logical database of Redis: another one has another stream of this name.
    redis_db        integer     NOT NULL DEFAULT 0,
    -- When it was first seen, if it had no entry then: what was published earlier is in another stream.
    empty_at        timestamptz NOT NULL DEFAULT '-infinity',
    -- A suspected stream does not have what was seen of it, so that nothing tells what it has trimmed.
    has_fallen_back boolean     NOT NULL DEFAULT false,
    CONSTRAINT outbound_streams_suspect CHECK ((suspect_since IS NULL) = (suspect_reason IS NULL))
);

-- What is known of this installation as a whole: one row.
CREATE TABLE notification.installation (
    is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    -- Kinds of events that producers are told of their intents; none: nothing is told.
    outcomes    text[]  NOT NULL DEFAULT '{}'
);
INSERT INTO notification.installation DEFAULT VALUES;

-- What operators pause and resume: a channel or a producer publishes nothing while it is paused. A row says what was asked for last; what was never paused has none. Who asked before is in operator_actions.
CREATE TABLE notification.holds (
    kind       text        NOT NULL CHECK (kind IN ('channel', 'producer')),
    name       text        NOT NULL,
    is_paused  boolean     NOT NULL,
    reason     text,
    changed_by text        NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Operations on many items: the request chooses the items, and a workflow, operation/<id>, works them off.
CREATE TABLE notification.operations (
    operation_id text        PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('replay', 'cancel', 'republish', 'release', 'resend')),
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
    -- Options of the operation, such as the fields that correct its entries.
    options      jsonb,
    -- Who paused it, for as long as it is paused: Temporal may forget that it is, or the operation altogether.
    paused_by    text,
    CONSTRAINT operations_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

CREATE INDEX operations_created_at_idx ON notification.operations (created_at);
-- Few of all that are kept.
CREATE INDEX operations_open_idx ON notification.operations (created_at) WHERE ended_at IS NULL;

-- What it was chosen to do: a route, a notification as a whole or a refused entry, or a mobile push job.
CREATE TABLE notification.operation_items (
    operation_id    text    NOT NULL REFERENCES notification.operations ON DELETE CASCADE,
    position        integer NOT NULL,
    notification_id text,
    route_id        text,
    -- Null: it is to be done. Otherwise whether there was something to do.
    was_ordered     boolean,
    job_id          text,
    PRIMARY KEY (operation_id, position),
    CONSTRAINT operation_items_of_one CHECK (num_nonnulls(notification_id, job_id) = 1)
);

CREATE INDEX operation_items_to_do_idx ON notification.operation_items (operation_id, position) WHERE was_ordered IS NULL;

-- Who asked for what: commands that change something of which no other row says who wanted it. Only the owner of the table
-- changes what is written here. The role of the service adds rows in its own name, empties details that name a user who is to be
-- forgotten (a right on that column alone), and deletes rows of more than a day, which retention does.
CREATE TABLE notification.operator_actions (
    action_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The command, such as `producers weight`.
    action       text        NOT NULL,
    -- What it was done to, as the command names it; null: everything.
    target       text,
    requested_by text        NOT NULL,
    -- What else was asked for, for people.
    detail       text,
    acted_at     timestamptz NOT NULL DEFAULT now(),
    -- The role that has written it, whatever `requested_by` says.
    db_user      text        NOT NULL DEFAULT session_user
);

CREATE INDEX operator_actions_acted_at_idx ON notification.operator_actions (acted_at);
CREATE INDEX operator_actions_target_idx ON notification.operator_actions (target, acted_at);

ALTER TABLE notification.operator_actions ENABLE ROW LEVEL SECURITY;
CREATE POLICY operator_actions_read ON notification.operator_actions FOR SELECT USING (true);
CREATE POLICY operator_actions_add ON notification.operator_actions FOR INSERT
    WITH CHECK (db_user = session_user AND acted_at = now());
CREATE POLICY operator_actions_forget ON notification.operator_actions FOR UPDATE
    USING (true) WITH CHECK (detail IS NULL);
CREATE POLICY operator_actions_expire ON notification.operator_actions FOR DELETE
    USING (acted_at < now() - interval '1 day');

-- Requests to forget a user: who asked, and what was removed. The hash tells whether a given id was asked for, as after
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
