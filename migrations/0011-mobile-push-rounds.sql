-- Up Migration

-- A job of many devices is sent in rounds: each of its sends has the time of its next attempt until it has ended. Null
-- for the sends of other jobs, whose workflows keep it.
ALTER TABLE notifications.notification_sends ADD COLUMN due_at timestamptz;

CREATE INDEX notification_sends_due_at_idx ON notifications.notification_sends (job_id, due_at)
    WHERE due_at IS NOT NULL;
