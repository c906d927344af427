-- Up Migration

-- Durable state of mobile pushes (seed mobile-push, "Processing Flow"). Every time is timestamptz in UTC. The tokens
-- themselves, public.device_token, belong to another service; no token is copied here.

CREATE SCHEMA notifications;

-- One job: an entry of the stream of jobs.
CREATE TABLE notifications.notification_log (
    -- The id of the stream entry.
    job_id        text        PRIMARY KEY,
    -- Unknown of some malformed entries.
    user_id       text,
    channel       text,
    -- What is to be shown. Kept only while there may be a device left to show it to: it is personal.
    content       jsonb,
    -- Of a malformed entry: what it held.
    raw_fields    jsonb,
    status        text        NOT NULL DEFAULT 'pending' CHECK (status IN
        ('pending', 'sent', 'partial', 'failed', 'no_tokens', 'malformed', 'max_retries')),
    token_count   integer     NOT NULL DEFAULT 0,
    sent_count    integer     NOT NULL DEFAULT 0,
    removed_count integer     NOT NULL DEFAULT 0,
    failed_count  integer     NOT NULL DEFAULT 0,
    error_code    text,
    error_message text,
    -- The run that opened the job last: each one gives what failed before a fresh budget, once.
    opened_by     text,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Of the entry that the job is of: another may have the same id. Null in rows of which nothing is known; 32 bits, so
    -- that it tells entries apart, and not what they held.
    entry_hash    text,
    CONSTRAINT notification_log_counts CHECK (token_count = sent_count + removed_count + failed_count),
    CONSTRAINT notification_log_malformed CHECK ((status = 'malformed') = (raw_fields IS NOT NULL)),
    CONSTRAINT notification_log_content_while_open
        CHECK (status NOT IN ('pending', 'max_retries') OR (content IS NOT NULL AND user_id IS NOT NULL))
);

-- Lists for operators: by age, by status, of one user.
CREATE INDEX notification_log_created_at_idx ON notifications.notification_log (created_at);
CREATE INDEX notification_log_status_idx ON notifications.notification_log (status, created_at)
    WHERE status NOT IN ('sent', 'no_tokens');
CREATE INDEX notification_log_user_id_idx ON notifications.notification_log (user_id, created_at);

-- Jobs that retention deletes: malformed ones are kept for longer, and those under way until they end.
CREATE INDEX notification_log_ended_idx ON notifications.notification_log (created_at)
    WHERE status NOT IN ('pending', 'malformed');

-- One job's send to one device.
CREATE TABLE notifications.notification_sends (
    job_id          text        NOT NULL REFERENCES notifications.notification_log ON DELETE CASCADE,
    -- public.device_token.id as text, whatever its type is there.
    device_token_id text        NOT NULL,
    -- Goes with every attempt, so that a device can drop a repeat. The hash names, it does not protect.
    push_id         text        NOT NULL GENERATED ALWAYS AS (md5(job_id || '/' || device_token_id)) STORED,
    status          text        NOT NULL DEFAULT 'pending' CHECK (status IN
        ('pending', 'sent', 'removed', 'failed')),
    -- Sends that counted, since the job was opened last.
    attempts        integer     NOT NULL DEFAULT 0,
    last_code       text,
    -- FCM's name of the message.
    message_id      text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Of its next attempt, until it has ended; null: it was not tried yet.
    due_at          timestamptz,
    PRIMARY KEY (job_id, device_token_id),
    CONSTRAINT notification_sends_message_id CHECK ((status = 'sent') = (message_id IS NOT NULL))
);
