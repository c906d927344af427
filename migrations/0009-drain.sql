-- Up Migration

-- How many waiting routes a second a resumed channel lets go, for as long as it does: a workflow that is started anew
-- goes on with the drain of one that was lost.
ALTER TABLE notification.channels ADD COLUMN drain_rate double precision;
