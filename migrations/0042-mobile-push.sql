-- Up Migration

-- FCM itself checks a token of which it did not say whether it is at fault: no send waits under suspicion.
ALTER TABLE notifications.notification_sends
    DROP COLUMN token_sha256,
    DROP CONSTRAINT notification_sends_status_check,
    ADD CONSTRAINT notification_sends_status_check CHECK (status IN ('pending', 'sent', 'removed', 'failed'));
