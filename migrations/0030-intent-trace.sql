-- Up Migration

-- W3C trace context of the producer, handed on with each route; null when the intent had none.
ALTER TABLE notification.records ADD COLUMN traceparent text;
