-- Up Migration

-- Durable state of notification subscriptions on messaging (SMP) and notification (NTF) routers. Rows are the truth;
-- workflows only decide when they are looked at. Ids of routers are base64url text. Private keys, shared secrets, device
-- tokens and codes are sealed by the key box before they come here; public keys stand as they are. Every time is
-- timestamptz in UTC.

CREATE SCHEMA subscriptions;

-- One agent: the owner of connections, of one token and of the workers on its behalf.
CREATE TABLE subscriptions.agents (
    agent_id   text        PRIMARY KEY CHECK (agent_id ~ '^[A-Za-z0-9_.-]{1,64}$'),
    -- Grows whenever the agent is closed or opened: what was claimed under an older one is given up.
    epoch      integer     NOT NULL DEFAULT 0,
    is_open    boolean     NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE subscriptions.smp_servers (
    agent_id   text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    -- All hosts of the router, with commas between them.
    host       text        NOT NULL,
    port       integer     NOT NULL CHECK (port BETWEEN 1 AND 65535),
    -- Fingerprint of the router's certificate; not part of who it is.
    key_hash   text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent_id, host, port)
);

CREATE TABLE subscriptions.ntf_servers (
    agent_id   text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    host       text        NOT NULL,
    port       integer     NOT NULL CHECK (port BETWEEN 1 AND 65535),
    key_hash   text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent_id, host, port)
);

-- The device token of an agent, and what a notification router has made of it. At most one an agent.
CREATE TABLE subscriptions.ntf_tokens (
    agent_id         text        PRIMARY KEY REFERENCES subscriptions.agents ON DELETE CASCADE,
    provider         text        NOT NULL CHECK (provider IN ('AD', 'AP', 'AT', 'AN')),
    device_token     bytea       NOT NULL,
    host             text        NOT NULL,
    port             integer     NOT NULL,
    -- Assigned by the router.
    token_id         text,
    auth_public_key  text        NOT NULL,
    auth_private_key bytea       NOT NULL,
    dh_public_key    text        NOT NULL,
    dh_private_key   bytea       NOT NULL,
    dh_secret        bytea,
    status           text        NOT NULL CHECK (status IN
        ('NEW', 'REGISTERED', 'INVALID', 'INVALID,BAD', 'INVALID,TOPIC', 'INVALID,EXPIRED', 'INVALID,UNREGISTERED',
         'CONFIRMED', 'ACTIVE', 'EXPIRED')),
    action           text        CHECK (action IN ('REGISTER', 'VERIFY', 'CHECK', 'DELETE')),
    -- The registration code, while it is to be verified.
    action_code      bytea,
    -- NULL reads as PERIODIC.
    mode             text        CHECK (mode IN ('PERIODIC', 'INSTANT')),
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (agent_id, host, port) REFERENCES subscriptions.ntf_servers,
    CONSTRAINT ntf_tokens_code_while_verifying CHECK ((action_code IS NOT NULL) <= (action IS NOT DISTINCT FROM 'VERIFY'))
);

-- Tokens that are gone here and still to be deleted on their router.
CREATE TABLE subscriptions.ntf_tokens_to_delete (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id    text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    host        text        NOT NULL,
    port        integer     NOT NULL CHECK (port BETWEEN 1 AND 65535),
    key_hash    text        NOT NULL,
    token_id    text        NOT NULL,
    private_key bytea       NOT NULL,
    -- TDEL has been sent at least once: an AUTH from now on says that an earlier one arrived.
    attempts    integer     NOT NULL DEFAULT 0,
    -- The record could not be loaded, and is left alone.
    del_failed  boolean     NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (agent_id, host, port) REFERENCES subscriptions.ntf_servers
);

CREATE INDEX ntf_tokens_to_delete_server_idx ON subscriptions.ntf_tokens_to_delete (agent_id, host, port, id);
CREATE INDEX ntf_tokens_to_delete_failed_idx ON subscriptions.ntf_tokens_to_delete (agent_id, id) WHERE del_failed;
CREATE INDEX ntf_tokens_to_delete_created_at_idx ON subscriptions.ntf_tokens_to_delete (created_at);

-- What an agent was asked to do about its token: device tokens and codes get from the client to the service here, sealed, and
-- not through a workflow. Gone when it is done.
CREATE TABLE subscriptions.requests (
    request_id uuid        PRIMARY KEY,
    agent_id   text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    kind       text        NOT NULL CHECK (kind IN ('register', 'verify', 'check', 'delete')),
    sealed     bytea       NOT NULL,
    is_done    boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX requests_created_at_idx ON subscriptions.requests (created_at);

CREATE TABLE subscriptions.connections (
    agent_id      text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    conn_id       text        NOT NULL,
    user_id       integer     NOT NULL,
    -- NULL reads as true.
    enable_ntfs   boolean,
    -- It has been deleted; the row goes when its subscription has ended.
    is_deleted    boolean     NOT NULL DEFAULT false,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent_id, conn_id)
);

CREATE INDEX connections_deleted_idx ON subscriptions.connections (updated_at) WHERE is_deleted;

-- The queue of a connection on a messaging router. An application made it and goes on using it: its router is never asked
-- to delete it.
CREATE TABLE subscriptions.rcv_queues (
    queue_id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id          text        NOT NULL,
    conn_id           text        NOT NULL,
    host              text        NOT NULL,
    port              integer     NOT NULL,
    -- Only if it differs from that of the server's row.
    server_key_hash   text,
    -- Assigned by the router.
    rcv_id            text        NOT NULL,
    rcv_private_key   bytea       NOT NULL,
    -- Notifier credentials: all four or none.
    ntf_public_key    text,
    ntf_private_key   bytea,
    ntf_id            text,
    rcv_ntf_dh_secret bytea,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (agent_id, conn_id) REFERENCES subscriptions.connections ON DELETE CASCADE,
    FOREIGN KEY (agent_id, host, port) REFERENCES subscriptions.smp_servers,
    CONSTRAINT rcv_queues_conn_id_key UNIQUE (agent_id, conn_id),
    CONSTRAINT rcv_queues_rcv_id_key UNIQUE (agent_id, host, port, rcv_id),
    CONSTRAINT rcv_queues_ntf_id_key UNIQUE (agent_id, host, port, ntf_id),
    -- The notifier of one agent would end that of another.
    CONSTRAINT rcv_queues_one_agent_key UNIQUE (rcv_id, host, port),
    CONSTRAINT rcv_queues_credentials CHECK (num_nonnulls(ntf_public_key, ntf_private_key, ntf_id, rcv_ntf_dh_secret) IN (0, 4))
);

-- The notification subscription of a connection, and what is to be done about it next. A deleted connection stays until
-- its subscription has ended.
CREATE TABLE subscriptions.ntf_subscriptions (
    agent_id            text        NOT NULL,
    conn_id             text        NOT NULL,
    user_id             integer     NOT NULL,
    smp_host            text        NOT NULL,
    smp_port            integer     NOT NULL,
    -- The notifier id that the messaging router assigned.
    smp_ntf_id          text,
    ntf_host            text        NOT NULL,
    ntf_port            integer     NOT NULL,
    -- Assigned by the notification router.
    ntf_sub_id          text,
    -- NEW, KEY, CREATED and what the router last said, OFF, DELETED.
    status              text        NOT NULL CHECK (status ~ '^(NEW|KEY|CREATED .+|OFF|DELETED)$'),
    -- N create, C check, D delete, R rotate; the last two of old records only.
    ntf_action          text        CHECK (ntf_action IN ('N', 'C', 'D', 'R')),
    -- K key, D delete.
    smp_action          text        CHECK (smp_action IN ('K', 'D')),
    -- Earliest time of the action; of a check, the time it is due. Null without an action (a worker gave up for good).
    action_ts           timestamptz,
    -- Grows with every write of the supervisor.
    generation          integer     NOT NULL DEFAULT 0,
    -- The pick-up by a worker that holds the row, and the generation that it saw.
    claim               bigint      NOT NULL DEFAULT 0,
    claimed_generation  integer     NOT NULL DEFAULT 0,
    -- A worker could not load the row; reset by the supervisor's next write.
    ntf_failed          boolean     NOT NULL DEFAULT false,
    smp_failed          boolean     NOT NULL DEFAULT false,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent_id, conn_id),
    FOREIGN KEY (agent_id, conn_id) REFERENCES subscriptions.rcv_queues (agent_id, conn_id) ON DELETE CASCADE,
    FOREIGN KEY (agent_id, smp_host, smp_port) REFERENCES subscriptions.smp_servers,
    FOREIGN KEY (agent_id, ntf_host, ntf_port) REFERENCES subscriptions.ntf_servers,
    CONSTRAINT ntf_subscriptions_one_action_at_a_time
        CHECK (num_nonnulls(ntf_action, smp_action) = (action_ts IS NOT NULL)::int)
);

CREATE INDEX ntf_subscriptions_ntf_idx ON subscriptions.ntf_subscriptions (agent_id, ntf_host, ntf_port, action_ts);
CREATE INDEX ntf_subscriptions_smp_idx ON subscriptions.ntf_subscriptions (agent_id, smp_host, smp_port, action_ts);

-- What is due on a server is found without a walk over what is not: during a mass Create, most rows of a notification
-- router still wait for their key.
CREATE INDEX ntf_subscriptions_ntf_due_idx ON subscriptions.ntf_subscriptions
    (agent_id, ntf_host, ntf_port, action_ts, conn_id) WHERE ntf_action IS NOT NULL AND NOT ntf_failed;
CREATE INDEX ntf_subscriptions_smp_due_idx ON subscriptions.ntf_subscriptions
    (agent_id, smp_host, smp_port, action_ts, conn_id) WHERE smp_action IS NOT NULL AND NOT smp_failed;

-- What gauges count.
CREATE INDEX ntf_subscriptions_ntf_due_at_idx ON subscriptions.ntf_subscriptions (action_ts)
    WHERE ntf_action IS NOT NULL AND NOT ntf_failed;
CREATE INDEX ntf_subscriptions_without_action_idx ON subscriptions.ntf_subscriptions (agent_id, conn_id)
    WHERE action_ts IS NULL;

-- What each sweep looks for.
CREATE INDEX ntf_subscriptions_failed_idx ON subscriptions.ntf_subscriptions (agent_id, conn_id)
    WHERE ntf_failed OR smp_failed;

-- Counters of work on servers, by user.
CREATE TABLE subscriptions.servers_stats (
    agent_id   text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    user_id    integer     NOT NULL,
    host       text        NOT NULL,
    port       integer     NOT NULL,
    counter    text        NOT NULL,
    value      bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (agent_id, user_id, host, port, counter)
);

-- What clients are told, until it is in their stream.
CREATE TABLE subscriptions.events (
    event_id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id        text        NOT NULL REFERENCES subscriptions.agents ON DELETE CASCADE,
    kind            text        NOT NULL CHECK (kind IN ('ERRS', 'ERR INTERNAL', 'ERR CRITICAL')),
    -- Pairs of connection id, which may be empty, and error.
    errors          jsonb       NOT NULL CHECK (jsonb_array_length(errors) > 0),
    offers_restart  boolean     NOT NULL DEFAULT false,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it was appended to the stream.
    relayed_at      timestamptz,
    -- As which entry, so that it can be told whether its stream still has it.
    entry_id        text
);

CREATE INDEX events_to_relay_idx ON subscriptions.events (event_id) WHERE relayed_at IS NULL;
CREATE INDEX events_relayed_idx ON subscriptions.events (relayed_at) WHERE relayed_at IS NOT NULL;
