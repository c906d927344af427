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
