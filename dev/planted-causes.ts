/** Rows of which each gives one recipient one cause: of tests and of the benchmark, which ask `why` for them. */
import type { Pool } from 'pg';
import type { Cause } from '../client/places.ts';

/** The paused channel: nothing else is planted on it that waits. */
const PAUSED = 'push';
/** The paused producer: of nothing else. */
const PAUSED_PRODUCER = 'runtime_manager';

interface Plant {
  cause: Cause;
  /** Statements in which `{user}` and `{id}` are expressions of the recipient and of the notification, by the number n. */
  sql: string;
}

const record = (extra = '') => `
  INSERT INTO notification.records
  SELECT {id}, 'game.turn.ready', 'game_master', 'user', jsonb_build_array({user}), '{}', 'key/' || {id}, 'f', NULL, NULL,
         at, at, at, at + interval '7 days' FROM numbered ${extra};`;

/** @param columns further ones, with their values. */
const route = (status: string, columns: Record<string, string> = {}, channel = 'email') => `${record()}
  INSERT INTO notification.routes (notification_id, route_id, channel, recipient_ref, status, max_attempts, created_at,
         updated_at${Object.keys(columns)
           .map((name) => `, ${name}`)
           .join('')})
  SELECT {id}, '${channel}:user:' || {user}, '${channel}', 'user:' || {user}, '${status}', 7, at, at
         ${Object.values(columns)
           .map((value) => `, ${value}`)
           .join('')} FROM numbered;`;

const intent = (status: string, columns: Record<string, string>, id = '{id}', at = 'at') => `
  INSERT INTO notification.intents (notification_id, notification_type, producer, idempotency_key, fingerprint, lane, status,
         read_at, updated_at, ${Object.keys(columns).join(', ')})
  SELECT ${id}, 'game.turn.ready', 'game_master', 'k/' || {id}, 'f', 1, '${status}', ${at}, ${at},
         ${Object.values(columns).join(', ')} FROM numbered`;

const failure = {
  attempt_count: '2',
  last_error_classification: "'mail_stream_publish_failed'",
  last_error_message: "'OOM'",
  last_error_at: 'at',
};

const job = (status: string, columns: Record<string, string> = {}) => `
  INSERT INTO notifications.notification_log (job_id, user_id, status, created_at, updated_at
         ${Object.keys(columns)
           .map((name) => `, ${name}`)
           .join('')})
  SELECT {id}, {user}, '${status}', at, at ${Object.values(columns)
    .map((value) => `, ${value}`)
    .join('')} FROM numbered;`;

const snapshot = (status: string) => `
  INSERT INTO notification.callback_snapshots (kind, user_id, period_start_ms, shard, entry_id, peak_value, peak_at_ms,
         bottom_value, bottom_at_ms, closing_value, status, created_at, settled_at)
  SELECT 'hourly', {user}, period, 0, '1-0', '1', 1, '1', 1, '1', '${status}', at,
         CASE WHEN '${status}' IN ('delivered', 'dropped') THEN at END FROM numbered;`;

const tracking = (untilMs: string) => `
  INSERT INTO notification.callback_trackings
  SELECT {user}, 0, '1-0', ${untilMs}, ${untilMs} IS NULL, current_date - 9, current_date - 9, at FROM numbered;`;

const fields = `jsonb_build_object('recipient_user_ids_json', '["other", "' || {user} || '"]')`;

/** Everything but what is in the streams, and what is nowhere. */
export const PLANTS: readonly Plant[] = [
  {
    cause: 'published',
    sql: route('published', { attempt_count: '1', published_at: 'at', entry_id: "'1-1'" }),
  },
  { cause: 'not_on_this_channel', sql: route('skipped', { skipped_at: 'at' }) },
  {
    cause: 'collapsed',
    sql: route('skipped', {
      skipped_at: 'at',
      last_error_classification: "'collapsed'",
      last_error_message: "'notification 1-1 carries the newest of its window'",
      last_error_at: 'at',
    }),
  },
  {
    cause: 'recipient_unusable',
    sql: route('skipped', {
      skipped_at: 'at',
      last_error_classification: "'recipient_unusable'",
      last_error_message: "'the User Service gave no usable e-mail address'",
      last_error_at: 'at',
    }),
  },
  {
    cause: 'throttled',
    sql: `${route('skipped', {
      skipped_at: 'at',
      last_error_classification: "'throttled'",
      last_error_message: "'at most 3 in 1h reach a recipient'",
      last_error_at: 'at',
    })}
      INSERT INTO notification.throttles
      SELECT 'user:' || {user}, 'game.turn.ready', '', ARRAY[at], 0, at + interval '1 hour' FROM numbered;`,
  },
  {
    cause: 'expired',
    sql: route('skipped', {
      skipped_at: "at + interval '1 minute'",
      last_error_classification: "'expired'",
      last_error_message: "'it was worth sending until 2026-11-22T12:00:00.000Z, and no attempt was counted'",
      last_error_at: "at + interval '1 minute'",
    }),
  },
  { cause: 'cancelled', sql: route('skipped', { skipped_at: "at + interval '1 minute'" }) },
  { cause: 'waiting_for_attempt', sql: route('pending', { next_attempt_at: "now() + interval '1 hour'" }) },
  {
    cause: 'replayed',
    sql: `${route('pending', { next_attempt_at: "now() + interval '1 hour'" })}
      INSERT INTO notification.dead_letters SELECT {id}, 'email:user:' || {user}, 'email', 'user:' || {user}, 7, 7,
        'mail_stream_publish_failed', 'OOM', 'hint', at FROM numbered;
      INSERT INTO notification.replays SELECT {id}, 'email:user:' || {user}, 2, 'operation/replay-1', 'nina', NULL, at
        FROM numbered;`,
  },
  { cause: 'retrying', sql: route('failed', { ...failure, next_attempt_at: "now() + interval '1 hour'" }) },
  { cause: 'overdue', sql: route('failed', { ...failure, next_attempt_at: 'at' }) },
  {
    cause: 'channel_paused',
    sql: `${route('pending', { next_attempt_at: 'at' }, PAUSED)}
      INSERT INTO notification.holds VALUES ('channel', '${PAUSED}', true, 'INC-7', 'nina', now()) ON CONFLICT DO NOTHING;`,
  },
  {
    cause: 'producer_paused',
    sql: `${route('pending', { next_attempt_at: 'at' }).replace("'game.turn.ready', 'game_master'", `'runtime.start_config_invalid', '${PAUSED_PRODUCER}'`)}
      INSERT INTO notification.holds VALUES ('producer', '${PAUSED_PRODUCER}', true, 'INC-8', 'nina', now())
      ON CONFLICT DO NOTHING;`,
  },
  {
    cause: 'dead',
    sql: `${route('dead_letter', { ...failure, dead_lettered_at: 'at' })}
      INSERT INTO notification.dead_letters
      SELECT {id}, 'email:user:' || {user}, 'email', 'user:' || {user}, 7, 7, 'mail_stream_publish_failed', 'OOM', 'h', at
        FROM numbered;`,
  },
  {
    cause: 'waiting_for_acceptance',
    sql: `${intent('open', {
      ...{ entry: "jsonb_build_object('recipientUserIds', jsonb_build_array('other', {user}))" },
      ...{ attempts: '3', reason: "'the User Service answered 503'" },
    })};`,
  },
  {
    cause: 'refused',
    sql: `INSERT INTO notification.malformed_intents
      SELECT {id}, 'game.turn.ready', 'game_master', 'm/' || {id}, 'invalid_payload', 'turn_number is missing', ${fields}, at
        FROM numbered;`,
  },
  {
    cause: 'key_conflict',
    sql: `INSERT INTO notification.malformed_intents
      SELECT {id}, 'game.turn.ready', 'game_master', 'm/' || {id}, 'idempotency_conflict', 'conflict', ${fields}, at, '5-0'
        FROM numbered;`,
  },
  {
    cause: 'duplicate',
    sql: `${route('published', { attempt_count: '1', published_at: 'at' })}
      ${intent('duplicate', { other: '{id}' }, "{id} || '0'", "at + interval '1 minute'")};`,
  },
  {
    cause: 'cancelled_before_acceptance',
    sql: `${intent('cancelled', { recipient_user_ids: 'jsonb_build_array({user})' })};`,
  },
  { cause: 'push_sent', sql: job('sent', { token_count: '2', sent_count: '1', removed_count: '1' }) },
  {
    cause: 'push_partly_sent',
    sql: job('partial', {
      token_count: '2',
      sent_count: '1',
      failed_count: '1',
      error_code: "'messaging/internal-error'",
    }),
  },
  {
    cause: 'push_failed',
    sql: job('failed', { token_count: '1', failed_count: '1', error_code: "'messaging/internal-error'" }),
  },
  { cause: 'push_without_device', sql: job('no_tokens') },
  {
    cause: 'push_refused',
    sql: job('malformed', {
      raw_fields: "'{}'",
      error_code: "'invalid_job'",
      error_message: "'title is too long'",
    }),
  },
  { cause: 'push_given_up', sql: job('max_retries', { content: "'{}'" }) },
  {
    cause: 'push_waiting',
    sql: `${job('pending', { content: "'{}'", token_count: '0' })}
      INSERT INTO notifications.notification_sends (job_id, device_token_id, status, attempts, last_code)
      SELECT {id}, '1', 'pending', 1, 'messaging/server-unavailable' FROM numbered;`,
  },
  { cause: 'callback_told', sql: snapshot('delivered') },
  { cause: 'callback_waiting', sql: snapshot('pending') },
  {
    cause: 'callback_retrying',
    sql: `${snapshot('retrying')}
      INSERT INTO notification.failed_callbacks
      SELECT 'hourly', {user}, period, 0, 2, now() + interval '1 hour', 'HTTP 503', at FROM numbered;`,
  },
  {
    cause: 'callback_given_up',
    sql: `${snapshot('dropped')}
      INSERT INTO notification.failed_callbacks
      SELECT 'hourly', {user}, period, 0, 5, NULL, 'HTTP 503', at FROM numbered;`,
  },
  { cause: 'account_untracked', sql: tracking('period') },
  { cause: 'account_behind', sql: tracking('NULL::bigint') },
];

/** The recipient of a plant. */
export const plantedUser = (cause: Cause, n: number): string => `why/${cause}/${n}`;

/** @param times of each cause, for as many recipients. */
export async function plantCauses(db: Pool, times: number): Promise<void> {
  for (const [index, { cause, sql }] of PLANTS.entries()) {
    const statements = sql
      .replaceAll('{user}', `('why/${cause}/' || n)`)
      .replaceAll('{id}', `(${9_000_000 + index * 10_000} + n || '-0')`)
      .replaceAll(
        'FROM numbered',
        `FROM (SELECT n, date_trunc('second', now() - interval '1 hour') AS at,
                      (extract(epoch FROM date_trunc('hour', now() - interval '1 hour')) * 1000)::bigint AS period
                 FROM generate_series(1, ${times}) AS n) AS numbered`,
      );
    await db.query(statements);
  }
}
