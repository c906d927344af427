/** Rows in bulk: every table that grows has so many that PostgreSQL does not read it as a whole for a few of them. */
import type { Pool } from 'pg';
import { createDeviceTokens } from '../../dev/stand-ins/mobile-push/device-tokens.ts';

/** Of the tables that have fewest; others have some for each. */
const ROWS = 50_000;

/** Tables that do not grow with users, intents or devices, and why. They may be read as a whole. */
export const SMALL: Record<string, string> = {
  schema_migrations: 'one row for each migration',
  installation: 'one row',
  inbound_streams: 'one',
  outbound_streams: 'three',
  symbols: 'those that are traded',
  symbol_snapshots: 'a hundred are kept',
  symbol_targets: 'those of the configuration',
  callback_settings: 'one',
  holds: 'one for each channel and producer',
};

const AGO = `now() - n * interval '1 minute'`;

const INTENT = `
  INSERT INTO notification.records
  SELECT n || '-0', 'game.turn.ready', 'game_master', 'user', '["u"]', '{"game_id": "g"}', 'k' || n, md5(n::text), NULL, NULL,
         ${AGO}, ${AGO}, ${AGO}, ${AGO} + interval '7 days'
    FROM generate_series(1, ${ROWS}) AS n;

  INSERT INTO notification.routes
         (notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at, created_at, updated_at,
          published_at, dead_lettered_at, skipped_at, entry_id, collapse)
  SELECT n || '-0', channel || ':user:u' || n, channel, 'user:u' || n, status, 3,
         CASE WHEN status IN ('pending', 'failed') THEN ${AGO} END, ${AGO}, ${AGO},
         CASE status WHEN 'published' THEN ${AGO} END, CASE status WHEN 'dead_letter' THEN ${AGO} END,
         CASE status WHEN 'skipped' THEN ${AGO} END, CASE status WHEN 'published' THEN n || '-1' END,
         jsonb_build_object('window', md5(n::text), 'upTo', n, 'at', n)
    FROM generate_series(1, ${ROWS}) AS n
   CROSS JOIN unnest(ARRAY['push', 'email']) AS channel
   CROSS JOIN LATERAL (
     SELECT (ARRAY['pending', 'published', 'published', 'failed', 'dead_letter', 'skipped'])[1 + n % 6] AS status
   ) AS of_route;

  INSERT INTO notification.dead_letters
  SELECT notification_id, route_id, channel, recipient_ref, 3, 3, 'c', 'm', 'h', dead_lettered_at
    FROM notification.routes WHERE status = 'dead_letter';
  INSERT INTO notification.replays
  SELECT notification_id, route_id, 1, 'r', 'nina', NULL, created_at FROM notification.routes;

  INSERT INTO notification.throttles
  SELECT 'user:u' || n, 'game.turn.ready', '', ARRAY[${AGO}], 3, ${AGO} + interval '1 hour'
    FROM generate_series(1, ${ROWS}) AS n;

  INSERT INTO notification.malformed_intents
  SELECT n || '-0', NULL, NULL, NULL, 'c', 'm', '{}', ${AGO} FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO notification.intents
         (notification_id, notification_type, producer, idempotency_key, fingerprint, lane, status, other, entry,
          recipient_user_ids, windows, dispatched_at, read_at, updated_at)
  SELECT n || '-' || digit, 'game.turn.ready', 'game_master', digit || '/' || n, 'f', 1, status, other, entry,
         CASE status WHEN 'cancelled' THEN jsonb_build_array('u' || n) END, NULL, CASE WHEN n % 2 = 0 THEN ${AGO} END, ${AGO}, ${AGO}
    FROM generate_series(1, ${ROWS}) AS n
   CROSS JOIN LATERAL (
     VALUES (0, 'accepted', NULL, NULL::jsonb), (2, 'duplicate', n || '-0', NULL), (4, 'cancelled', NULL, NULL)
   ) AS of_intent (digit, status, other, entry)
   UNION ALL
  SELECT n || '-3', 'game.turn.ready', 'game_master', 'w' || n, 'f', 1, 'open', NULL, '{"recipientUserIds": ["u"]}'::jsonb, NULL, ARRAY[md5(n::text)],
         CASE WHEN n % 2 = 0 THEN ${AGO} END, ${AGO}, ${AGO}
    FROM generate_series(1, ${ROWS / 100}) AS n;
  INSERT INTO notification.forgotten_users (user_sha256, requested_by, begun_at)
  SELECT md5(n::text), 'nina', ${AGO} FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO notification.operator_actions (action, target, requested_by, acted_at)
  SELECT 'mobile replay', n || '-0', 'nina', ${AGO} FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO notification.outcomes (events, event_count, written_at, relayed_at, entry_id)
  SELECT '[[]]', 1, ${AGO}, CASE WHEN n % 10 > 0 THEN ${AGO} END, CASE WHEN n % 10 > 0 THEN n || '-1' END
    FROM generate_series(1, ${ROWS}) AS n;

  INSERT INTO notification.operations (operation_id, kind, filter, total, rate, requested_by, created_at)
  SELECT 'o' || n, 'replay', '{}', 1, 20, 'nina', ${AGO} FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO notification.operation_items
  SELECT 'o' || n, 1, n || '-0', 'push:user:u' || n, CASE WHEN n % 2 = 0 THEN true END
    FROM generate_series(1, ${ROWS}) AS n;`;

const MOBILE_PUSH = `
  INSERT INTO notifications.notification_log
         (job_id, user_id, channel, content, raw_fields, status, created_at, updated_at)
  SELECT n || '-0', 'user-' || n % 20000, 'c', CASE WHEN status <> 'malformed' THEN '{}'::jsonb END,
         CASE status WHEN 'malformed' THEN '{}'::jsonb END, status, ${AGO}, ${AGO}
    FROM generate_series(1, ${ROWS}) AS n
   CROSS JOIN LATERAL (
     SELECT (ARRAY['sent', 'no_tokens', 'pending', 'failed', 'partial', 'malformed', 'max_retries'])[1 + n % 7] AS status
   ) AS of_job;
  INSERT INTO notifications.notification_sends (job_id, device_token_id, status, due_at, updated_at)
  SELECT n || '-0', device::text, CASE n % 2 WHEN 0 THEN 'failed' ELSE 'pending' END,
         CASE n % 2 WHEN 1 THEN ${AGO} END, ${AGO}
    FROM generate_series(1, ${ROWS}) AS n CROSS JOIN generate_series(1, 2) AS device;
  INSERT INTO public.device_token ("userId", token, platform)
  SELECT 'user-' || n % 20000, 'token-' || n, 'ios' FROM generate_series(1, ${ROWS}) AS n;`;

const PERIOD = `(extract(epoch FROM now()) * 1000)::bigint / 3600000 * 3600000 - period::bigint * 3600000`;
const KEY = 'kind, user_id, period_start_ms';

const ACCOUNT_CALLBACK = `
  INSERT INTO notification.callback_trackings
  SELECT 'user-' || n, n % 4, '1-0', CASE n % 10 WHEN 0 THEN 1 END, n % 10 <> 0, current_date - 1 - n % 3,
         current_date - 1 - n % 3, now()
    FROM generate_series(1, ${ROWS}) AS n;

  INSERT INTO notification.callback_snapshots
         (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms, bottom_value, bottom_at_ms,
          closing_value, status, created_at)
  SELECT kind, 'user-' || n, ${PERIOD}, n % 4, '1-0', '1', 1, '1', 1, '1',
         (ARRAY['delivered', 'delivered', 'pending', 'retrying', 'dropped'])[1 + n % 5], now()
    FROM generate_series(1, ${ROWS}) AS n
   CROSS JOIN unnest(ARRAY['hourly', 'daily']) AS kind
   CROSS JOIN LATERAL (SELECT n % 5000 + p AS period FROM generate_series(1, 2) AS p) AS of_user;
  INSERT INTO notification.failed_callbacks
  SELECT ${KEY}, shard, 1, created_at, 'e', created_at FROM notification.callback_snapshots WHERE status = 'retrying';
  INSERT INTO notification.failed_callbacks
  SELECT ${KEY}, shard, 6, NULL, 'e', created_at - random() * interval '90 days'
    FROM notification.callback_snapshots WHERE status = 'dropped';
  INSERT INTO notification.malformed_account_inputs
  SELECT n || '-0', 'c', 'm', '{}', ${AGO} FROM generate_series(1, ${ROWS}) AS n;`;

const AGENT = `'agent-' || n % 10000`;

const SUBSCRIPTION = `
  INSERT INTO subscriptions.agents (agent_id, is_open) SELECT ${AGENT}, n % 10 > 0 FROM generate_series(1, 10000) AS n;
  INSERT INTO subscriptions.smp_servers
  SELECT agent_id, 'smp-' || n, 5223, 'h' FROM subscriptions.agents CROSS JOIN generate_series(1, 5) AS n;
  INSERT INTO subscriptions.ntf_servers
  SELECT agent_id, 'ntf-' || n, 443, 'h' FROM subscriptions.agents CROSS JOIN generate_series(1, 5) AS n;
  INSERT INTO subscriptions.ntf_tokens
         (agent_id, provider, device_token, host, port, auth_public_key, auth_private_key, dh_public_key, dh_private_key,
          status)
  SELECT agent_id, 'AP', '', 'ntf-1', 443, '', '', '', '', 'ACTIVE' FROM subscriptions.agents;
  INSERT INTO subscriptions.ntf_tokens_to_delete (agent_id, host, port, key_hash, token_id, private_key, del_failed, created_at)
  SELECT ${AGENT}, 'ntf-' || n % 7, 443, 'h', 't', '', n % 100 = 0, ${AGO} FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO subscriptions.requests
  SELECT gen_random_uuid(), ${AGENT}, 'check', '', false, ${AGO} FROM generate_series(1, ${ROWS}) AS n;

  INSERT INTO subscriptions.connections (agent_id, conn_id, user_id, is_deleted)
  SELECT ${AGENT}, 'c' || n, 1, n % 20 = 0 FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO subscriptions.rcv_queues
         (agent_id, conn_id, host, port, rcv_id, rcv_private_key)
  SELECT ${AGENT}, 'c' || n, 'smp-' || 1 + n % 5, 5223, 'q' || n, ''
    FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO subscriptions.ntf_subscriptions
         (agent_id, conn_id, user_id, smp_host, smp_port, ntf_host, ntf_port, status, ntf_action, smp_action, action_ts,
          ntf_failed)
  SELECT ${AGENT}, 'c' || n, 1, 'smp-' || 1 + n % 5, 5223, 'ntf-' || 1 + n / 5 % 5, 443,
         (ARRAY['NEW', 'KEY', 'CREATED ACTIVE', 'CREATED ACTIVE', 'OFF'])[1 + n % 5],
         CASE WHEN n % 5 BETWEEN 1 AND 3 THEN 'C' END, CASE n % 5 WHEN 0 THEN 'K' END,
         CASE WHEN n % 5 < 4 THEN ${AGO} + interval '20 days' END, n % 50 = 1
    FROM generate_series(1, ${ROWS}) AS n;
  INSERT INTO subscriptions.servers_stats
  SELECT ${AGENT}, n / 10000, 'smp-1', 5223, 'ntfKey', 1 FROM generate_series(1, ${ROWS} - 1) AS n;
  INSERT INTO subscriptions.events (agent_id, kind, errors, relayed_at)
  SELECT ${AGENT}, 'ERRS', '[{}]', CASE WHEN n % 10 > 0 THEN ${AGO} END FROM generate_series(1, ${ROWS}) AS n;`;

/** Fills a migrated database. @returns names of the tables that have rows in bulk. */
export async function fillWithBulkRows(db: Pool, dsn: string): Promise<string[]> {
  await createDeviceTokens(dsn, { samples: false });
  // References are right, and need not be looked at one by one.
  await db.query('SET session_replication_role = replica');
  for (const sql of [INTENT, MOBILE_PUSH, ACCOUNT_CALLBACK, SUBSCRIPTION]) await db.query(sql);
  await db.query('VACUUM ANALYZE');
  const { rows } = await db.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class
      WHERE relkind = 'r' AND relnamespace::regnamespace::text IN ('notification', 'notifications', 'subscriptions', 'public')
        AND reltuples > 1000`,
  );
  return rows.map(({ name }) => name);
}

/** Tables of which one agent may have all rows. */
export const OF_AN_AGENT = [
  'connections',
  'events',
  'ntf_subscriptions',
  'ntf_tokens_to_delete',
  'rcv_queues',
  'servers_stats',
];

/** Has PostgreSQL believe that all rows are of one agent: most installations have one. */
export async function pretendOneAgent(db: Pool): Promise<void> {
  for (const table of OF_AN_AGENT) {
    await db.query(`ALTER TABLE subscriptions.${table} ALTER agent_id SET (n_distinct = 1)`);
    await db.query(`ANALYZE subscriptions.${table}`);
  }
}
