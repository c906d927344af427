/** Statements about connections and queues (subscription-connections.ts, subscription-queues.ts). */

/** An address that is known with another fingerprint is the same server, and presents the new one from now on. */
export const UPSERT_SMP_SERVER = {
  name: 'upsert_smp_server',
  text: `
    INSERT INTO subscriptions.smp_servers AS known (agent_id, host, port, key_hash)
    VALUES ($1, $2, $3, $4)
    ON CONFLICT (agent_id, host, port) DO UPDATE
       SET key_hash = excluded.key_hash, updated_at = clock_timestamp()
     WHERE known.key_hash <> excluded.key_hash`,
};

export const INSERT_CONNECTION = {
  name: 'insert_connection',
  text: `
    INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, enable_ntfs) VALUES ($1, $2, $3, $4)`,
};

export const INSERT_QUEUE = {
  name: 'insert_rcv_queue',
  text: `
    INSERT INTO subscriptions.rcv_queues
           (agent_id, conn_id, host, port, server_key_hash, rcv_id, snd_id, rcv_private_key, is_primary,
            replaced_queue_id)
    SELECT $1, $2, $3, $4, nullif($5, key_hash), $6, $7, $8, true, $9::bigint
      FROM subscriptions.smp_servers
     WHERE agent_id = $1 AND host = $3 AND port = $4
    RETURNING queue_id::text`,
};

/** The queues of a connection give way to another one; returns the one that was used. */
export const REPLACE_QUEUES = {
  name: 'replace_rcv_queues',
  text: `
    UPDATE subscriptions.rcv_queues
       SET is_primary = false, is_deleted = true
     WHERE agent_id = $1 AND conn_id = $2 AND NOT is_deleted
    RETURNING queue_id::text`,
};

const IS_ENABLED = 'enable_ntfs IS NOT FALSE AS is_enabled';

export const LOAD_CONNECTION = {
  name: 'load_connection',
  text: `
    SELECT conn_id, user_id, ${IS_ENABLED},
           EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                    WHERE queue.agent_id = $1 AND queue.conn_id = $2 AND NOT is_deleted AND ntf_id IS NOT NULL
                  ) AS has_credentials
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = $2 AND NOT is_deleted`,
};

export const LOAD_FLAGS = {
  name: 'load_connection_flags',
  text: `
    SELECT conn_id
      FROM subscriptions.connections
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted`,
};

export const TOGGLE_CONNECTIONS = {
  name: 'toggle_connections',
  text: `
    UPDATE subscriptions.connections
       SET enable_ntfs = $3, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
       AND (coalesce(enable_ntfs, true) <> $3 OR $4)
    RETURNING conn_id`,
};

export const SET_SUBSCRIBED = {
  name: 'set_connections_subscribed',
  text: `
    UPDATE subscriptions.connections
       SET is_subscribed = $3, updated_at = clock_timestamp()
     WHERE agent_id = $1 AND conn_id = ANY($2::text[]) AND NOT is_deleted
    RETURNING conn_id, ${IS_ENABLED}`,
};

/** Those that are being deleted already count again: the attempt that deleted them may have been cut off. */
export const DELETE_CONNECTIONS = {
  name: 'delete_connections',
  text: `
    WITH deleted AS (
      UPDATE subscriptions.connections
         SET is_deleted = true, is_subscribed = false, updated_at = clock_timestamp()
       WHERE agent_id = $1 AND conn_id = ANY($2::text[])
      RETURNING conn_id
    ), queues AS (
      UPDATE subscriptions.rcv_queues
         SET is_deleted = true
       WHERE agent_id = $1 AND conn_id IN (SELECT conn_id FROM deleted)
    )
    SELECT conn_id FROM deleted`,
};

export const LOAD_DELETED_QUEUES = {
  name: 'load_deleted_rcv_queues',
  text: `
    SELECT queue.queue_id::text, queue.conn_id, connection.user_id, queue.host, queue.port,
           coalesce(queue.server_key_hash, server.key_hash) AS key_hash, queue.rcv_id, queue.rcv_private_key
      FROM subscriptions.rcv_queues AS queue
      JOIN subscriptions.smp_servers AS server USING (agent_id, host, port)
      JOIN subscriptions.connections AS connection USING (agent_id, conn_id)
     WHERE queue.agent_id = $1 AND queue.is_deleted AND queue.queue_id > $2::bigint
     ORDER BY queue.queue_id
     LIMIT $3`,
};

/** Connections that were deleted go with their last queue. */
export const REMOVE_QUEUES = {
  name: 'remove_rcv_queues',
  text: `
    WITH removed AS (
      DELETE FROM subscriptions.rcv_queues WHERE queue_id = ANY($2::bigint[])
      RETURNING queue_id
    )
    DELETE FROM subscriptions.connections AS connection
     WHERE agent_id = $1 AND is_deleted
       AND NOT EXISTS (SELECT FROM subscriptions.rcv_queues AS queue
                        WHERE queue.agent_id = $1 AND queue.conn_id = connection.conn_id
                          AND queue.queue_id <> ALL($2::bigint[]))`,
};
