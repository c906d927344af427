-- Up Migration

-- How often each key of encryption has sealed something, as far as processes could say: AES-GCM with random nonces has a
-- limit for one key. Each process adds what it did every half minute.
CREATE TABLE notification.key_seals (
    purpose        text        NOT NULL CHECK (purpose IN ('payload', 'subscription')),
    key_id         text        NOT NULL,
    seals          bigint      NOT NULL,
    last_sealed_at timestamptz NOT NULL,
    PRIMARY KEY (purpose, key_id)
);

-- What processes met last that an operator must mend, for `doctor`: files that could not be taken into use, and keys that
-- are not configured.
CREATE TABLE notification.process_findings (
    kind          text        NOT NULL CHECK (kind IN ('file_refused', 'key_missing')),
    name          text        NOT NULL,
    detail        text        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);
