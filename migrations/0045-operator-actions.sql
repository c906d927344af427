-- Up Migration

-- Nobody but the owner of the table changes what is written here. The role of the service adds rows in its own name, empties
-- details that name somebody who is to be forgotten (a right on that column alone), and deletes rows of more than a day, which
-- retention does.
ALTER TABLE notification.operator_actions
    -- The role that has written it, whatever `requested_by` says.
    ADD COLUMN db_user text NOT NULL DEFAULT session_user,
    -- The action of which this row tells how it ended: what it was done to, or that it was refused.
    ADD COLUMN ends    bigint,
    ADD COLUMN is_void boolean NOT NULL DEFAULT false,
    ENABLE ROW LEVEL SECURITY;

CREATE INDEX operator_actions_ends_idx ON notification.operator_actions (ends) WHERE ends IS NOT NULL;

CREATE POLICY operator_actions_read ON notification.operator_actions FOR SELECT USING (true);
CREATE POLICY operator_actions_add ON notification.operator_actions FOR INSERT
    WITH CHECK (db_user = session_user AND acted_at = now());
CREATE POLICY operator_actions_forget ON notification.operator_actions FOR UPDATE
    USING (true) WITH CHECK (detail IS NULL);
CREATE POLICY operator_actions_expire ON notification.operator_actions FOR DELETE
    USING (acted_at < now() - interval '1 day');
