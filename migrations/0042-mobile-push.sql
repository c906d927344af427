-- Up Migration

-- FCM itself checks a token of which it did not say whether it is at fault: no send waits under suspicion.
ALTER TABLE notifications.notification_sends
    DROP COLUMN token_sha256,
    DROP CONSTRAINT notification_sends_status_check,
    ADD CONSTRAINT notification_sends_status_check CHECK (status IN ('pending', 'sent', 'removed', 'failed'));

-- Of the entry that the job is of: another may have the same id. Null in rows of which nothing is known; 32 bits, so that it
-- tells entries apart, and not what they held.
ALTER TABLE notifications.notification_log ADD COLUMN entry_hash text;
