-- Up Migration

-- A producer is paused as a channel is: nothing of it is published. The row of one has its name with `producer:` before
-- it. The release before looks for its channels only, and publishes what it has of a paused producer.
ALTER TABLE notification.channels
    DROP CONSTRAINT channels_channel_check,
    ADD CONSTRAINT channels_channel_check CHECK (channel IN ('push', 'email') OR channel LIKE 'producer:_%');
