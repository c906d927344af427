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

-- Two that run the file at the same moment would make the same things.
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
  entry        jsonb NOT NULL CHECK (jsonb_typeof(entry) = 'object'),
  -- Names and values together.
  bytes        integer NOT NULL CHECK (bytes BETWEEN 1 AND 1048576),
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- When it first went into the stream, how often it has, and of the last time: the batch, and the id that it got there.
  published_at timestamptz,
  publications integer NOT NULL DEFAULT 0,
  batch        bigint,
  entry_id     text,
  -- When it was passed or set aside.
  ended_at     timestamptz,
  problem_code text,
  problem      text,
  CHECK ((state IN ('passed', 'set_aside')) = (ended_at IS NOT NULL)),
  CHECK (state NOT IN ('published', 'passed') OR (entry_id IS NOT NULL AND batch IS NOT NULL)),
  CHECK ((state = 'set_aside') = (problem_code IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX IF NOT EXISTS intents_pending_idx ON notification_outbox.intents (id) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS intents_published_idx ON notification_outbox.intents (batch, id) WHERE state = 'published';
CREATE INDEX IF NOT EXISTS intents_ended_idx ON notification_outbox.intents (state, ended_at) WHERE ended_at IS NOT NULL;

-- One row. The relay that works has locked it, so that one relay works at a time.
CREATE TABLE IF NOT EXISTS notification_outbox.relay (
  only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  -- Names the outbox in Redis.
  outbox_id   uuid NOT NULL DEFAULT gen_random_uuid(),
  -- Where the published rows are.
  stream      text,
  -- The number of the last batch, and of the last one that Redis must know: with an earlier one, Redis fell back.
  batch       bigint NOT NULL DEFAULT 0,
  redis_batch bigint NOT NULL DEFAULT 0
);

INSERT INTO notification_outbox.relay DEFAULT VALUES ON CONFLICT DO NOTHING;

-- Ends the statement with an error that says what the service would say of the entry.
CREATE OR REPLACE FUNCTION notification_outbox.refuse(code text, problem text) RETURNS void
  LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING
    ERRCODE = 'invalid_parameter_value',
    MESSAGE = problem,
    DETAIL = code,
    HINT = 'The service would refuse this intent. Nothing was written into the outbox.';
END
$$;

-- Writes an intent into the outbox as the entry that goes into the stream: names and values, all of them text. Clients
-- make it (in TypeScript publishToOutbox, in Go WriteToOutbox, in Python publish_to_outbox), with all checks of the
-- service. The checks here are the ones that need no catalog of notification types: what they refuse the service would
-- refuse, too. What only the service would refuse is set aside by the relay.
--
-- Returns the number of the row. Raises invalid_parameter_value (22023) with the failure code as detail.
CREATE OR REPLACE FUNCTION notification_outbox.publish(entry jsonb) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  field text;
  value text;
  size integer;
  row_id bigint;
BEGIN
  IF entry IS NULL OR jsonb_typeof(entry) <> 'object' THEN
    PERFORM notification_outbox.refuse('invalid_envelope', 'the entry must be a JSON object');
  END IF;
  SELECT name INTO field FROM jsonb_each(entry) AS fields (name, content) WHERE jsonb_typeof(content) <> 'string' LIMIT 1;
  IF FOUND THEN
    PERFORM notification_outbox.refuse('invalid_envelope', format('%s must be text', field));
  END IF;
  SELECT sum(octet_length(name) + octet_length(content)) INTO size FROM jsonb_each_text(entry) AS fields (name, content);
  IF size > 1048576 THEN
    PERFORM notification_outbox.refuse('entry_too_large', format('the entry has %s bytes; at most 1048576 are accepted', size));
  END IF;
  FOREACH field IN ARRAY ARRAY['notification_type', 'producer', 'audience_kind', 'idempotency_key', 'occurred_at_ms', 'payload_json'] LOOP
    value := entry ->> field;
    IF value IS NULL THEN
      PERFORM notification_outbox.refuse('invalid_envelope', format('%s is missing', field));
    ELSIF value ~ '^[ \t\n\r]*$' THEN
      PERFORM notification_outbox.refuse('invalid_envelope', format('%s is empty', field));
    END IF;
  END LOOP;
  FOREACH field IN ARRAY ARRAY['idempotency_key', 'request_id', 'trace_id'] LOOP
    value := entry ->> field;
    IF value ~ '[\u0001-\u001f\u007f-\u009f]' THEN
      PERFORM notification_outbox.refuse('invalid_envelope', format('%s has control characters', field));
    ELSIF octet_length(value) > 1024 THEN
      PERFORM notification_outbox.refuse('invalid_envelope', format('%s is longer than 1024 bytes', field));
    END IF;
  END LOOP;
  FOREACH field IN ARRAY ARRAY['occurred_at_ms', 'deliver_at_ms', 'expires_at_ms'] LOOP
    value := nullif(entry ->> field, '');
    IF value !~ '^[0-9]{1,15}$' OR value::bigint NOT BETWEEN 946684800000 AND 253402300799999 THEN
      PERFORM notification_outbox.refuse('invalid_envelope',
        format('%s must be whole milliseconds since 1970, of the years 2000 to 9999', field));
    END IF;
  END LOOP;
  IF value::bigint <= (entry ->> 'occurred_at_ms')::bigint THEN
    PERFORM notification_outbox.refuse('invalid_envelope', 'expires_at_ms must be after occurred_at_ms');
  END IF;
  value := nullif(entry ->> 'recipient_user_ids_json', '');
  CASE entry ->> 'audience_kind'
    WHEN 'admin_email' THEN
      IF value IS NOT NULL THEN
        PERFORM notification_outbox.refuse('invalid_recipients',
          'recipient_user_ids_json is not allowed for audience_kind admin_email');
      END IF;
    WHEN 'user' THEN
      IF value IS NULL THEN
        PERFORM notification_outbox.refuse('invalid_recipients', 'recipient_user_ids_json is required for audience_kind user');
      END IF;
      PERFORM notification_outbox.check_recipients(value);
    ELSE
      PERFORM notification_outbox.refuse('invalid_audience', 'audience_kind must be user or admin_email');
  END CASE;
  value := entry ->> 'payload_json';
  IF octet_length(value) > 262144 THEN
    PERFORM notification_outbox.refuse('invalid_payload',
      format('payload_json has %s bytes; at most 262144 are accepted', octet_length(value)));
  END IF;
  IF notification_outbox.kind_of_json('invalid_payload', 'payload_json', value) <> 'object' THEN
    PERFORM notification_outbox.refuse('invalid_payload', 'payload_json must be a JSON object');
  END IF;

  INSERT INTO notification_outbox.intents (entry, bytes) VALUES (entry, size) RETURNING id INTO row_id;
  -- NOTIFY makes committing transactions wait for each other. Where that shows, turn it off for the producer's role:
  -- ALTER ROLE shop SET notification_outbox.notify = off; the relay then looks each second.
  IF coalesce(current_setting('notification_outbox.notify', true), '') NOT IN ('off', 'false', '0') THEN
    PERFORM pg_notify('notification_outbox', '');
  END IF;
  RETURN row_id;
END
$$;

-- What a field has as JSON: object, array and so on; NULL when PostgreSQL cannot tell, since it is nested too deeply.
-- The type is json: jsonb would look at values that a repeated key overrides, which other parsers ignore.
CREATE OR REPLACE FUNCTION notification_outbox.kind_of_json(code text, field text, content text) RETURNS text
  LANGUAGE plpgsql AS $$
BEGIN
  RETURN json_typeof(content::json);
EXCEPTION
  WHEN statement_too_complex THEN RETURN NULL;
  WHEN invalid_text_representation THEN
    PERFORM notification_outbox.refuse(code, format('%s is not valid JSON', field));
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION notification_outbox.check_recipients(content text) RETURNS void
  LANGUAGE plpgsql AS $$
DECLARE
  kind text := notification_outbox.kind_of_json('invalid_recipients', 'recipient_user_ids_json', content);
  problem text;
BEGIN
  IF kind = 'array' THEN
    BEGIN
      SELECT CASE
               WHEN count(*) = 0 THEN 'must be a JSON array with at least one user id'
               WHEN bool_or(json_typeof(item) <> 'string') THEN 'must have texts only'
               WHEN count(*) <> count(DISTINCT (item #>> '{}') COLLATE "C") THEN 'names a user more than once'
             END
        INTO problem
        FROM json_array_elements(content::json) AS items (item);
    EXCEPTION WHEN untranslatable_character OR invalid_text_representation THEN
      problem := 'has characters that are no text';
    END;
  ELSIF kind IS NOT NULL THEN
    problem := 'must be a JSON array with at least one user id';
  END IF;
  IF problem IS NOT NULL THEN
    PERFORM notification_outbox.refuse('invalid_recipients', 'recipient_user_ids_json ' || problem);
  END IF;
END
$$;

-- Writes an intent into the outbox, field by field.
--
-- The audience is that of recipient_user_ids: these users, or with NULL the administrators. occurred_at is the time of
-- the event, and a part of the content: a repeat of the key with another time is a conflict. payload has the fields of
-- the type; request_id, trace_id and traceparent (W3C trace context) are for correlation only. The service delivers the
-- intent at deliver_at, and not from expires_at on.
--
-- Returns and raises as publish(entry) does.
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
