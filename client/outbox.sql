-- The outbox for producers: notification intents are written in the producer's own transaction, and a relay
-- (`galaxy-notify outbox relay`) appends them to the stream of the service. PostgreSQL 13 or later.
--
-- Run the file as the owner of the database or of the schema; running it again changes nothing, and a newer one brings
-- the outbox up to date. Then let the producer publish:
--
--   GRANT USAGE ON SCHEMA notification_outbox TO shop;
--   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA notification_outbox TO shop;
--
-- and, unless it is the owner, let the relay work:
--
--   GRANT USAGE ON SCHEMA notification_outbox TO shop_relay;
--   GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA notification_outbox TO shop_relay;
--
-- In a transaction of the producer, from any language:
--
--   SELECT notification_outbox.publish(
--     notification_type  => 'game.turn.ready',
--     producer           => 'game_master',
--     recipient_user_ids => ARRAY['user-1', 'user-2'],
--     idempotency_key    => 'game-7/turn-54',
--     occurred_at        => '2026-11-22T12:00Z',
--     payload            => '{"game_id": "game-7", "game_name": "Andromeda", "turn_number": 54}');

BEGIN;

-- Two that run the file at the same moment would make the same things. Relays take turns by the same lock.
SELECT pg_advisory_xact_lock(hashtext('notification_outbox'));

DO $$
BEGIN
  IF current_setting('server_encoding') <> 'UTF8' THEN
    RAISE EXCEPTION 'notification_outbox needs a database in UTF8, and this one is in %', current_setting('server_encoding');
  END IF;
END
$$;

CREATE SCHEMA IF NOT EXISTS notification_outbox;

COMMENT ON SCHEMA notification_outbox IS 'Notification intents on their way to galaxy-notify';

CREATE TABLE IF NOT EXISTS notification_outbox.intents (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- pending: to be published. published: in the stream, and not passed by the service. passed: the service has it, and
  -- the row stays for a while. set_aside: the relay has given it up, see problem_code.
  state        text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'published', 'passed', 'set_aside')),
  -- The entry of the stream: names and values, all of them text.
  entry        jsonb NOT NULL CONSTRAINT entry_has_texts_only
                 CHECK (jsonb_typeof(entry) = 'object' AND NOT jsonb_path_exists(entry, 'strict $.* ? (@.type() <> "string")')),
  -- A relay reads so much. The service accepts less, see its contract.
  bytes        integer NOT NULL GENERATED ALWAYS AS (octet_length(entry::text)) STORED
                 CONSTRAINT entry_is_not_too_large CHECK (bytes <= 8388608),
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When it first went into the stream, and the id that it got there the last time.
  published_at timestamptz,
  entry_id     text,
  -- When it was passed or set aside.
  ended_at     timestamptz,
  problem_code text,
  problem      text,
  CHECK ((state IN ('passed', 'set_aside')) = (ended_at IS NOT NULL)),
  CHECK (state NOT IN ('published', 'passed') OR entry_id IS NOT NULL),
  CHECK ((state = 'set_aside') = (problem_code IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX IF NOT EXISTS intents_pending_idx ON notification_outbox.intents (id) WHERE state = 'pending';
-- In the order of the stream.
CREATE INDEX IF NOT EXISTS intents_published_idx
  ON notification_outbox.intents ((string_to_array(entry_id, '-')::numeric[])) WHERE state = 'published';
CREATE INDEX IF NOT EXISTS intents_ended_idx ON notification_outbox.intents (state, ended_at) WHERE ended_at IS NOT NULL;

-- Writes an intent into the outbox as the entry that goes into the stream: names and values, all of them text. Clients
-- make it (in TypeScript publishToOutbox, in Go WriteToOutbox, in Python publish_to_outbox), with all checks of the
-- service. The relay makes the same checks before it publishes a row, and sets aside what the service would refuse.
--
-- Returns the number of the row.
CREATE OR REPLACE FUNCTION notification_outbox.publish(entry jsonb) RETURNS bigint
  LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  INSERT INTO notification_outbox.intents (entry) VALUES (entry) RETURNING id
$$;

-- Writes an intent into the outbox, field by field.
--
-- The audience is that of recipient_user_ids: these users, or with NULL the administrators. occurred_at is the time of
-- the event, and a part of the content: a repeat of the key with another time is a conflict. payload has the fields of
-- the type; request_id, trace_id and traceparent (W3C trace context) are for correlation only. The service delivers the
-- intent at deliver_at, and not from expires_at on.
--
-- Returns the number of the row.
CREATE OR REPLACE FUNCTION notification_outbox.publish(
  notification_type  text,
  producer           text,
  idempotency_key    text,
  occurred_at        timestamptz,
  payload            jsonb,
  recipient_user_ids text[] DEFAULT NULL,
  request_id         text DEFAULT NULL,
  trace_id           text DEFAULT NULL,
  traceparent        text DEFAULT NULL,
  deliver_at         timestamptz DEFAULT NULL,
  expires_at         timestamptz DEFAULT NULL
) RETURNS bigint
  LANGUAGE sql AS $$
  SELECT notification_outbox.publish(jsonb_strip_nulls(jsonb_build_object(
    'notification_type', notification_type,
    'producer', producer,
    'audience_kind', CASE WHEN recipient_user_ids IS NULL THEN 'admin_email' ELSE 'user' END,
    'recipient_user_ids_json', to_jsonb(recipient_user_ids)::text,
    'idempotency_key', idempotency_key,
    'occurred_at_ms', round(extract(epoch FROM date_trunc('milliseconds', occurred_at)) * 1000)::bigint::text,
    'deliver_at_ms', round(extract(epoch FROM date_trunc('milliseconds', deliver_at)) * 1000)::bigint::text,
    'expires_at_ms', round(extract(epoch FROM date_trunc('milliseconds', expires_at)) * 1000)::bigint::text,
    'payload_json', payload::text,
    'request_id', request_id,
    'trace_id', trace_id,
    'traceparent', traceparent)))
$$;

COMMIT;
