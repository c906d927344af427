-- Up Migration

-- Durable state of the intent pipeline (seed "PostgreSQL durable state"). Every time is timestamptz in UTC.

-- One accepted intent. The row is the idempotency reservation: (producer, idempotency_key) is unique for as long
-- as the row exists, and retention keeps it at least until idempotency_expires_at.
CREATE TABLE notification.records (
    notification_id        text        PRIMARY KEY,
    notification_type      text        NOT NULL,
    producer               text        NOT NULL,
    audience_kind          text        NOT NULL CHECK (audience_kind IN ('user', 'admin_email')),
    recipient_user_ids     jsonb,
    payload_json           text        NOT NULL,
    idempotency_key        text        NOT NULL,
    request_fingerprint    text        NOT NULL,
    request_id             text,
    trace_id               text,
    occurred_at            timestamptz NOT NULL,
    accepted_at            timestamptz NOT NULL,
    updated_at             timestamptz NOT NULL,
    idempotency_expires_at timestamptz NOT NULL,
    CONSTRAINT records_producer_idempotency_key_key UNIQUE (producer, idempotency_key),
    CONSTRAINT records_recipients_of_users_only CHECK ((audience_kind = 'user') = (recipient_user_ids IS NOT NULL))
);

-- Retention walks records by age.
CREATE INDEX records_accepted_at_idx ON notification.records (accepted_at);

-- One (channel, recipient) of a record.
CREATE TABLE notification.routes (
    notification_id           text        NOT NULL REFERENCES notification.records ON DELETE CASCADE,
    route_id                  text        NOT NULL,
    channel                   text        NOT NULL CHECK (channel IN ('push', 'email')),
    recipient_ref             text        NOT NULL,
    status                    text        NOT NULL
        CHECK (status IN ('pending', 'published', 'failed', 'dead_letter', 'skipped')),
    attempt_count             integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    max_attempts              integer     NOT NULL CHECK (max_attempts > 0),
    next_attempt_at           timestamptz,
    resolved_email            text,
    resolved_locale           text,
    last_error_classification text,
    last_error_message        text,
    last_error_at             timestamptz,
    created_at                timestamptz NOT NULL,
    updated_at                timestamptz NOT NULL,
    published_at              timestamptz,
    dead_lettered_at          timestamptz,
    skipped_at                timestamptz,
    PRIMARY KEY (notification_id, route_id),
    CONSTRAINT routes_route_id_is_channel_and_recipient CHECK (route_id = channel || ':' || recipient_ref),
    -- A route has a next attempt exactly while it is a scheduling candidate.
    CONSTRAINT routes_next_attempt_while_open CHECK ((status IN ('pending', 'failed')) = (next_attempt_at IS NOT NULL)),
    CONSTRAINT routes_published_at CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CONSTRAINT routes_skipped_at CHECK ((status = 'skipped') = (skipped_at IS NOT NULL)),
    CONSTRAINT routes_dead_lettered_at CHECK ((status = 'dead_letter') <= (dead_lettered_at IS NOT NULL))
);

CREATE INDEX routes_due_idx ON notification.routes (next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- Routes whose id does not fit a workflow id are found by the hash that stands for them there (api/ids.ts).
CREATE INDEX routes_hashed_ref_idx ON notification.routes (notification_id, md5(route_id))
    WHERE route_id !~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$';

-- Audit of routes that exhausted their budget. A later replay leaves it as it is.
CREATE TABLE notification.dead_letters (
    notification_id        text        NOT NULL,
    route_id               text        NOT NULL,
    channel                text        NOT NULL,
    recipient_ref          text        NOT NULL,
    final_attempt_count    integer     NOT NULL,
    max_attempts           integer     NOT NULL,
    failure_classification text        NOT NULL,
    failure_message        text        NOT NULL,
    recovery_hint          text        NOT NULL,
    created_at             timestamptz NOT NULL,
    PRIMARY KEY (notification_id, route_id),
    FOREIGN KEY (notification_id, route_id) REFERENCES notification.routes ON DELETE CASCADE
);

CREATE INDEX dead_letters_created_at_idx ON notification.dead_letters (created_at);

-- Stream entries that could not become a record, one row an entry.
CREATE TABLE notification.malformed_intents (
    stream_entry_id   text        PRIMARY KEY,
    notification_type text,
    producer          text,
    idempotency_key   text,
    failure_code      text        NOT NULL,
    failure_message   text        NOT NULL,
    raw_fields        jsonb       NOT NULL,
    recorded_at       timestamptz NOT NULL
);

CREATE INDEX malformed_intents_recorded_at_idx ON notification.malformed_intents (recorded_at);
