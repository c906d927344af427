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
    -- W3C trace context of the producer, handed on with each route; null when the intent had none.
    traceparent            text,
    -- Time from which the record lacks the data of a forgotten user. If that user was the only recipient, it lacks the
    -- payload, too, and its idempotency key stands as a hash (api/intent/forgotten.ts): the key stays reserved.
    forgotten_at           timestamptz,
    -- From when on nothing of it is worth sending any more; null: never.
    expires_at             timestamptz,
    -- Payloads of other intents that its routes carry, as a list.
    contents               json,
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
    -- As which entry it was handed off last, so that it can be told whether its stream still has it; null while nothing was.
    entry_id                  text,
    -- Of a route that closed a window: its id, the last intent in it as `upTo`, when it was closed, how many intents it had, and
    -- as `content` which of the contents of the record goes out instead of its payload.
    collapse                  jsonb,
    PRIMARY KEY (notification_id, route_id),
    CONSTRAINT routes_route_id_is_channel_and_recipient CHECK (route_id = channel || ':' || recipient_ref),
    -- A route has a next attempt exactly while it is a scheduling candidate.
    CONSTRAINT routes_next_attempt_while_open CHECK ((status IN ('pending', 'failed')) = (next_attempt_at IS NOT NULL)),
    CONSTRAINT routes_published_at CHECK ((status = 'published') = (published_at IS NOT NULL)),
    CONSTRAINT routes_skipped_at CHECK ((status = 'skipped') = (skipped_at IS NOT NULL)),
    CONSTRAINT routes_dead_lettered_at CHECK ((status = 'dead_letter') <= (dead_lettered_at IS NOT NULL))
);

-- Routes that wait, of each channel: those of a paused one may be many.
CREATE INDEX routes_due_idx ON notification.routes (channel, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- Routes whose id does not fit a workflow id are found by the hash that stands for them there (api/ids.ts).
CREATE INDEX routes_hashed_ref_idx ON notification.routes (notification_id, md5(route_id))
    WHERE route_id !~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$';

-- Lists of dead-lettered routes by age, for operators and bulk replay.
CREATE INDEX routes_dead_lettered_idx ON notification.routes (dead_lettered_at, notification_id, route_id)
    WHERE status = 'dead_letter';

-- What was handed off within a window.
CREATE INDEX routes_published_at_idx ON notification.routes (published_at) WHERE published_at IS NOT NULL;

-- By recipient, for `galaxy-notify why`.
CREATE INDEX routes_recipient_idx ON notification.routes (recipient_ref, created_at);

-- What has closed a window.
CREATE INDEX routes_collapse_idx ON notification.routes ((collapse ->> 'window'), ((collapse ->> 'upTo')::bigint))
    WHERE collapse IS NOT NULL;

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

-- When the latest notifications of a throttled type passed, of one recipient and one value of the field that it counts by.
CREATE TABLE notification.throttles (
    recipient_ref     text          NOT NULL,
    notification_type text          NOT NULL,
    -- SHA-256 of the value; empty when the recipient alone counts.
    value             text          NOT NULL,
    -- Those of the window, as many as the limit.
    passed_at         timestamptz[] NOT NULL,
    -- How many more would have passed when it was written last.
    room              integer       NOT NULL,
    -- Nothing is counted any more.
    ends_at           timestamptz   NOT NULL,
    PRIMARY KEY (recipient_ref, notification_type, value)
);

CREATE INDEX throttles_ends_at_idx ON notification.throttles (ends_at);

-- One replay of a dead-lettered route: the route's next generation, with its own budget. Generation 0 is the
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

-- Whom an entry names that was refused: all texts of its list, also of one that is no JSON. As jsonb, since an index keeps
-- only the hash of what is long there.
CREATE FUNCTION notification.named_users(raw_fields jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
      SELECT coalesce(jsonb_agg(found.text[1]), '[]'::jsonb)
        FROM regexp_matches(raw_fields ->> 'recipient_user_ids_json', '"([^"\\]+)"', 'g') AS found (text)
    $$;

-- Stream entries that could not become a record, one row an entry.
CREATE TABLE notification.malformed_intents (
    stream_entry_id   text        PRIMARY KEY,
    notification_type text,
    producer          text,
    idempotency_key   text,
    failure_code      text        NOT NULL,
    failure_message   text        NOT NULL,
    raw_fields        jsonb       NOT NULL,
    recorded_at       timestamptz NOT NULL,
    -- Whose key it was, for idempotency_conflict.
    conflicts_with    text
);

CREATE INDEX malformed_intents_recorded_at_idx ON notification.malformed_intents (recorded_at);
CREATE INDEX malformed_intents_recipients_idx
    ON notification.malformed_intents USING gin (notification.named_users(raw_fields));

-- One intent of the stream, from the statement that moves the offset behind its entry until retention. What was decided is
-- its status; `records` and `malformed_intents` have the details.
CREATE TABLE notification.intents (
    -- The id of the stream entry.
    notification_id    text        PRIMARY KEY,
    -- The order in which entries were read.
    read_number        bigint      GENERATED ALWAYS AS IDENTITY,
    notification_type  text        NOT NULL,
    producer           text        NOT NULL,
    idempotency_key    text        NOT NULL,
    fingerprint        text        NOT NULL,
    -- 0 for urgent types, which are dispatched before the others; 1, and 2 from when the time of one for later has come.
    lane               smallint    NOT NULL,
    status             text        NOT NULL
        CHECK (status IN ('open', 'accepted', 'duplicate', 'conflict', 'refused', 'cancelled')),
    -- The notification that a duplicate or a conflict is about.
    other              text,
    -- The validated envelope; null once the intent is decided.
    entry              jsonb,
    -- Ids of its windows, one for each recipient; null when its type does not collapse.
    windows            text[],
    -- Whom a cancelled intent was for.
    recipient_user_ids jsonb,
    attempts           integer     NOT NULL DEFAULT 0,
    -- Attempts that nothing spoilt but recipients for whom the User Service has no usable answer.
    unusable_attempts  integer     NOT NULL DEFAULT 0,
    -- Why an open intent still waits, or the failure code of a refused one.
    reason             text,
    -- Of an accepted intent whose producer is told: routes that are neither published, skipped nor dead. 0: its end is told.
    open_routes        integer,
    -- Until when it waits; null: its time has come.
    due_at             timestamptz,
    -- When its workflow was started; null: not yet, or it is to be started again.
    dispatched_at      timestamptz,
    read_at            timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    CONSTRAINT intents_entry_while_open CHECK ((status = 'open') = (entry IS NOT NULL))
);

-- The dispatcher takes by lane, turn of producer, and order of reading.
CREATE INDEX intents_to_dispatch_idx ON notification.intents (lane, producer, read_number)
    WHERE status = 'open' AND dispatched_at IS NULL AND due_at IS NULL;
CREATE INDEX intents_due_idx ON notification.intents (due_at) WHERE status = 'open' AND due_at IS NOT NULL;
-- Those that were dispatched, by the last time that anything was done about them.
CREATE INDEX intents_dispatched_idx ON notification.intents (updated_at)
    WHERE status = 'open' AND dispatched_at IS NOT NULL;
-- Of intents with one key the earlier one is decided first.
CREATE INDEX intents_open_key_idx ON notification.intents (producer, idempotency_key) WHERE status = 'open';
CREATE INDEX intents_decided_idx ON notification.intents (updated_at) WHERE status <> 'open';
CREATE INDEX intents_windows_idx ON notification.intents USING gin (windows) WHERE status = 'open' AND windows IS NOT NULL;
CREATE INDEX intents_duplicates_idx ON notification.intents (other) WHERE status = 'duplicate';
CREATE INDEX intents_cancelled_idx ON notification.intents USING gin (recipient_user_ids) WHERE status = 'cancelled';

-- What producers are told about their intents: an outbox, written by the statement that makes it true. A row is what one
-- statement has to tell, of one intent or of hundreds, and is relayed as one entry for each event.
CREATE TABLE notification.outcomes (
    outcome_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Arrays of event id, kind, notification, type, producer, key, request, trace and details, in the order of the stream.
    events      json        NOT NULL,
    event_count integer     NOT NULL CHECK (event_count > 0),
    written_at  timestamptz NOT NULL,
    relayed_at  timestamptz,
    -- As which entry its last event was relayed.
    entry_id    text,
    CONSTRAINT outcomes_relayed_as_entry CHECK ((relayed_at IS NULL) = (entry_id IS NULL))
);

CREATE INDEX outcomes_waiting_idx ON notification.outcomes (outcome_id) WHERE relayed_at IS NULL;
-- For retention, once outcomes are switched off and nothing relays them.
CREATE INDEX outcomes_unrelayed_idx ON notification.outcomes (written_at) WHERE relayed_at IS NULL;
CREATE INDEX outcomes_relayed_idx ON notification.outcomes (relayed_at, outcome_id) WHERE relayed_at IS NOT NULL;

-- As `routeRefOf` (api/ids.ts).
CREATE FUNCTION notification.route_ref(route_id text, channel text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
      SELECT CASE WHEN route_id ~ '^(push|email):[A-Za-z0-9_.:-]{1,120}$' THEN route_id
                  ELSE channel || ':~' || md5(route_id) END
    $$;

-- Tells the end of an intent that is not accepted.
CREATE FUNCTION notification.tell_refusal(notification_id text, kind text, details json, notification_type text,
                                          producer text, idempotency_key text, request_id text, trace_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
    BEGIN
      INSERT INTO notification.outcomes (events, event_count, written_at)
      SELECT json_build_array(json_build_array(notification_id || '/end', kind, notification_id, notification_type, producer,
                                               idempotency_key, request_id, trace_id, details)),
             1, statement_timestamp()
        FROM notification.installation
       WHERE kind = ANY (outcomes);
    END
    $$;

-- Tells that intents are accepted, and of recipients who get nothing on a channel because the User Service has no usable
-- answer about them; and the end where all routes are skipped. The last statement of an acceptance makes the intent accepted.
CREATE FUNCTION notification.tell_acceptance() RETURNS trigger
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    AS $$
    DECLARE
      told     text[] := (SELECT outcomes FROM notification.installation);
      accepted text[];
    BEGIN
      IF told = '{}' THEN RETURN NULL; END IF;
      WITH counted AS (
        UPDATE notification.intents AS intent
           SET open_routes = (SELECT count(*)
                                FROM notification.routes
                               WHERE routes.notification_id = intent.notification_id AND next_attempt_at IS NOT NULL)
         WHERE status = 'accepted' AND notification_id IN (SELECT notification_id FROM after)
        RETURNING notification_id
      )
      SELECT array_agg(notification_id) INTO accepted FROM counted;
      -- Limits leave nothing out: PostgreSQL expects few rows by them, and does not read a whole table.
      WITH route AS MATERIALIZED (
        SELECT routes.*
          FROM (SELECT unnest(accepted) LIMIT cardinality(accepted)) AS intent (notification_id)
          JOIN notification.routes USING (notification_id)
      )
      INSERT INTO notification.outcomes (events, event_count, written_at)
      SELECT json_agg(json_build_array(event_id, kind, notification_id, notification_type, producer, idempotency_key,
                                       request_id, trace_id, details) ORDER BY ordinal),
             count(*), statement_timestamp()
        FROM (SELECT row_number() OVER (ORDER BY ordinal), event.*
                FROM (SELECT 0, notification_id || '/accepted', 'accepted', notification_id,
                             json_build_object('routes', count(*), 'skipped', count(*) FILTER (WHERE status = 'skipped'))
                        FROM route
                       GROUP BY notification_id
                       UNION ALL
                      SELECT 1, notification_id || '/' || notification.route_ref(route_id, channel) || '/0/skipped',
                             'route_skipped', notification_id,
                             json_build_object('route', notification.route_ref(route_id, channel), 'channel', channel,
                                               'generation', 0, 'reason', last_error_classification)
                        FROM route
                       WHERE last_error_classification IS NOT NULL
                       UNION ALL
                      SELECT 2, notification_id || '/end', 'settled', notification_id,
                             json_build_object('published', 0, 'skipped', count(*), 'dead_lettered', 0)
                        FROM route
                       GROUP BY notification_id
                      HAVING count(next_attempt_at) = 0
                     ) AS event (ordinal, event_id, kind, notification_id, details)
               WHERE kind = ANY (told)) AS numbered (position, ordinal, event_id, kind, notification_id, details)
       CROSS JOIN LATERAL (
             SELECT notification_type, producer, idempotency_key, request_id, trace_id
               FROM notification.records
              WHERE records.notification_id = numbered.notification_id
              LIMIT 1) AS record
       GROUP BY (position - 1) / 500
       ORDER BY min(position);
      RETURN NULL;
    END
    $$;

CREATE TRIGGER routes_tell_acceptance AFTER INSERT ON notification.routes
    REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION notification.tell_acceptance();

-- Tells what became of routes, and the end of an intent with its last open route: the lock of its row says which of two
-- transactions that is, and gives its events their order, because what they tell gets its number behind it. The end of an
-- intent that was accepted with outcomes is written down without them, too.
CREATE FUNCTION notification.tell_routes() RETURNS trigger
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    AS $$
    DECLARE
      told  text[] := (SELECT outcomes FROM notification.installation);
      ended text[];
    BEGIN
      -- A full join, since that is no nested loop: the plan is made once, for as few rows as there were then.
      WITH moved AS MATERIALIZED (
        SELECT notification_id, before.status AS was, after.status, before.next_attempt_at IS NULL AS was_closed,
               after.next_attempt_at IS NULL AS is_closed
          FROM before
          FULL JOIN after USING (notification_id, route_id)
      ), change AS (
        SELECT notification_id, sum(is_closed::int - was_closed::int)::int AS closed
          FROM moved
         WHERE was <> status AND (was_closed OR is_closed)
         GROUP BY notification_id
      ), locked AS (
        SELECT intent.notification_id, closed
          FROM change
          JOIN notification.intents AS intent USING (notification_id)
         WHERE open_routes > 0
         ORDER BY intent.notification_id
           FOR NO KEY UPDATE OF intent
      ), counted AS (
        UPDATE notification.intents AS intent
           SET open_routes = open_routes - closed
          FROM locked
         WHERE intent.notification_id = locked.notification_id
        RETURNING intent.notification_id, open_routes
      )
      SELECT array_agg(notification_id) INTO ended FROM counted WHERE open_routes = 0;
      IF told = '{}' AND ended IS NULL THEN RETURN NULL; END IF;
      WITH moved AS MATERIALIZED (
        SELECT notification_id, route_id, before.status AS was, after.status, after.channel, after.next_attempt_at,
               after.last_error_classification
          FROM before
          FULL JOIN after USING (notification_id, route_id)
      )
      INSERT INTO notification.outcomes (events, event_count, written_at)
      SELECT json_agg(json_build_array(event_id, kind, notification_id, notification_type, producer, idempotency_key,
                                       request_id, trace_id, details) ORDER BY ordinal),
             count(*), statement_timestamp()
        FROM (SELECT 1, closed.notification_id || '/' || ref || '/' || generation || '/' || status,
                     CASE WHEN status = 'skipped' THEN 'route_skipped'
                          WHEN status = 'dead_letter' THEN 'route_dead_lettered'
                          WHEN was = 'dead_letter' OR generation > 0 THEN 'recovered'
                          ELSE 'route_published' END,
                     closed.notification_id,
                     json_build_object('route', ref, 'channel', channel, 'generation', generation, 'reason',
                                       CASE WHEN status = 'dead_letter' THEN last_error_classification
                                            WHEN status <> 'skipped' THEN NULL
                                            WHEN last_error_classification = 'expired' THEN 'expired'
                                            ELSE 'cancelled' END)
                FROM (SELECT moved.*, notification.route_ref(route_id, channel) AS ref
                        FROM moved
                       WHERE was <> status AND next_attempt_at IS NULL) AS closed
               CROSS JOIN LATERAL (
                     SELECT count(*) AS generation
                       FROM notification.replays AS replay
                      WHERE replay.notification_id = closed.notification_id AND replay.route_id = closed.route_id) AS replays
               UNION ALL
              SELECT 2, notification_id || '/end',
                     CASE WHEN bool_or(is_cancelled AND last_error_classification IS DISTINCT FROM 'expired') THEN 'cancelled'
                          WHEN bool_or(is_cancelled) THEN 'expired'
                          ELSE 'settled' END,
                     notification_id,
                     json_build_object('published', count(*) FILTER (WHERE status = 'published'),
                                       'skipped', count(*) FILTER (WHERE status = 'skipped'),
                                       'dead_lettered', count(*) FILTER (WHERE status = 'dead_letter'))
                FROM (SELECT notification_id, status, last_error_classification, coalesce(skipped_at <> created_at, false)
                        FROM (SELECT unnest(ended) LIMIT cardinality(ended)) AS intent (notification_id)
                        JOIN notification.routes USING (notification_id)
                     ) AS route (notification_id, status, last_error_classification, is_cancelled)
               GROUP BY notification_id
             ) AS event (ordinal, event_id, kind, notification_id, details)
        JOIN notification.records USING (notification_id)
       WHERE ordinal = 2 OR kind = ANY (told)
      HAVING count(*) > 0;
      RETURN NULL;
    END
    $$;

CREATE TRIGGER routes_tell AFTER UPDATE ON notification.routes
    REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION notification.tell_routes();
