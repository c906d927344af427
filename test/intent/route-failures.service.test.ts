/** Publication that fails: attempts, budgets, ladder, dead letters, and what never happens twice. */
import { ApplicationFailure, WorkflowFailedError } from '@temporalio/client';
import { handOffKey, leaseKey } from '../../activities/intent/hand-off.ts';
import { loadEach, settleRoutes } from '../../activities/intent/route-rows.ts';
import { notificationWorkflowId, routeWorkflowId } from '../../workflows/intent/contract.ts';
import { publishTurn } from './entries.ts';
import type { Slot } from '../harness.ts';
import { eventually, takeSlot } from '../harness.ts';
import { GATEWAY, MAIL } from '../service-process.ts';

const [QUICK_MS, QUICK_MAX_MS] = [200, 500];
const SLOW_MS = 5_000;

let slot: Slot;

beforeAll(async () => {
  slot = await takeSlot();
  await serve(QUICK_MS, QUICK_MAX_MS);
});

/** Puts a service with this ladder in the place of the one before. */
async function serve(backoffMinMs: number, backoffMaxMs: number): Promise<void> {
  await slot.stopServices();
  await slot.startService({
    NOTIFICATION_ROUTE_BACKOFF_MIN: `${backoffMinMs}ms`,
    NOTIFICATION_ROUTE_BACKOFF_MAX: `${backoffMaxMs}ms`,
    NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS: '4',
    NOTIFICATION_RUNBOOK_URL: 'https://runbook.test/page',
  });
}

afterAll(() => slot.release());
afterEach(async () => {
  // Otherwise what their streams have lost would be handed off again.
  await slot.db.query('DELETE FROM notification.records');
  await slot.redis.del(GATEWAY, MAIL);
});

/** A stream that takes no entries, as Redis itself refuses them: its key holds something else. */
const breakStream = (stream: string) => slot.redis.set(stream, 'not a stream');

const publish = (idempotencyKey: string, recipientUserIds?: string[]) =>
  publishTurn(slot.redis, idempotencyKey, recipientUserIds);

async function routeOf(id: string, route: string) {
  const { rows } = await slot.db.query<{
    status: string;
    attempt_count: number;
    max_attempts: number;
    next_attempt_at: Date | null;
    last_error_classification: string | null;
    last_error_message: string | null;
    last_error_at: Date | null;
    published_at: Date | null;
    dead_lettered_at: Date | null;
  }>('SELECT * FROM notification.routes WHERE notification_id = $1 AND route_id = $2', [id, route]);
  return rows[0];
}

const routeInStatus = (id: string, route: string, status: string) =>
  eventually(`${route} to be ${status}`, async () => {
    const row = await routeOf(id, route);
    return row?.status === status && row;
  });

describe('a ladder that leaves time to look between the attempts', () => {
  beforeAll(() => serve(SLOW_MS, SLOW_MS));
  afterAll(() => serve(QUICK_MS, QUICK_MAX_MS));

  test('I20 I21 I22 a route that fails once waits on the ladder and is published by the next attempt', async () => {
    await breakStream(GATEWAY);
    const id = await publish('recovers');
    const failed = await routeInStatus(id, 'push:user:user-1', 'failed');
    expect(failed).toMatchObject({
      attempt_count: 1,
      max_attempts: 3,
      last_error_classification: 'gateway_stream_publish_failed',
      last_error_message: expect.stringContaining('WRONGTYPE'),
      published_at: null,
    });
    expect(failed.next_attempt_at!.getTime() - failed.last_error_at!.getTime()).toBe(SLOW_MS);
    await slot.redis.del(GATEWAY);
    const published = await routeInStatus(id, 'push:user:user-1', 'published');
    expect(published).toMatchObject({
      next_attempt_at: null,
      last_error_classification: 'gateway_stream_publish_failed',
    });
    expect(published.attempt_count).toBeGreaterThan(1);
    expect(await slot.redis.xlen(GATEWAY)).toBe(1);
  });

  test('I21 I40 an operator sees the pending attempt, its failure and its budget', async () => {
    await breakStream(MAIL);
    const id = await publish('visible');
    const handle = slot.client.workflow.getHandle(routeWorkflowId(id, 'email:user:user-1'));
    const pending = await eventually('a pending attempt with its failure', async () => {
      const { raw } = await handle.describe();
      const [activity] = raw.pendingActivities ?? [];
      return activity?.lastFailure ? activity : undefined;
    });
    expect(pending).toMatchObject({
      activityType: { name: 'publishRoute' },
      maximumAttempts: 3,
      lastFailure: {
        message: expect.stringContaining('of 4: '),
        applicationFailureInfo: { type: 'mail_stream_publish_failed' },
      },
    });
    const { currentDetails } = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    expect(currentDetails).toMatch(/^`mail_stream_publish_failed`: attempt \d of 4 at \d{4}-.*Z\.$/);

    await routeInStatus(id, 'email:user:user-1', 'dead_letter');
    const found = await eventually('the dead letter by its status', async () => {
      const query = `RouteStatus = 'dead_letter' AND NotificationId = '${id}' AND ExecutionStatus = 'Failed' AND UserId = 'user-1' AND FailureClassification = 'mail_stream_publish_failed'`;
      for await (const { workflowId } of slot.client.workflow.list({ query })) return workflowId;
      return undefined;
    });
    expect(found).toBe(handle.workflowId);
    const left = await handle.query<{ currentDetails: string }>('__temporal_workflow_metadata');
    expect(left.currentDetails).toBe(
      'Dead letter: `mail_stream_publish_failed`\n\n[What to do](https://runbook.test/page#notificationdeadletters)',
    );
  });
});

test('I21 I22 an exhausted route is dead-lettered with a hint, its sibling stays published', async () => {
  await breakStream(MAIL);
  const id = await publish('dead-letter');
  await routeInStatus(id, 'push:user:user-1', 'published');
  const dead = await routeInStatus(id, 'email:user:user-1', 'dead_letter');
  expect(dead).toMatchObject({
    attempt_count: 4,
    max_attempts: 4,
    next_attempt_at: null,
    last_error_classification: 'mail_stream_publish_failed',
  });
  expect(dead.dead_lettered_at).not.toBeNull();
  const { rows } = await slot.db.query('SELECT * FROM notification.dead_letters WHERE notification_id = $1', [
    id,
  ]);
  expect(rows).toEqual([
    expect.objectContaining({
      route_id: 'email:user:user-1',
      channel: 'email',
      recipient_ref: 'user:user-1',
      final_attempt_count: 4,
      max_attempts: 4,
      failure_classification: 'mail_stream_publish_failed',
      failure_message: expect.stringContaining('WRONGTYPE'),
      recovery_hint: expect.stringContaining('new idempotency_key'),
      created_at: dead.dead_lettered_at,
    }),
  ]);

  const route = slot.client.workflow.getHandle(routeWorkflowId(id, 'email:user:user-1'));
  const failure = await route.result().catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(WorkflowFailedError);
  expect((failure as WorkflowFailedError).cause).toMatchObject({ type: 'RouteDeadLettered' });
  expect((failure as WorkflowFailedError).cause).toBeInstanceOf(ApplicationFailure);
  expect(await slot.client.workflow.getHandle(notificationWorkflowId(id)).result()).toEqual({
    outcome: 'accepted',
    published: 1,
    skipped: 0,
    deadLettered: 1,
  });
  expect((await routeOf(id, 'push:user:user-1'))?.status).toBe('published');
});

test('I21 the gaps between the attempts are the ladder, without jitter and up to its end', async () => {
  await breakStream(MAIL);
  const id = await publish('ladder');
  await routeInStatus(id, 'email:user:user-1', 'dead_letter');
  // A row is written before its log line.
  const failures = await eventually('the log lines of four failures', async () => {
    const lines = slot.logs
      .filter((line) => line['notification_id'] === id && line['route_id'] === 'email:user:user-1')
      .filter((line) => line['failure_classification'] !== undefined);
    return lines.length >= 4 && lines;
  });
  expect(failures.map((line) => [line['attempt'], line['result'], line['retry_in_ms']])).toEqual([
    [1, 'retry', QUICK_MS],
    [2, 'retry', 2 * QUICK_MS],
    [3, 'retry', QUICK_MAX_MS],
    [4, 'dead_letter', undefined],
  ]);
  const { rows } = await slot.db.query<{ took_ms: number }>(
    `SELECT (extract(epoch FROM dead_lettered_at - created_at) * 1000)::float8 AS took_ms
       FROM notification.routes WHERE notification_id = $1 AND route_id = 'email:user:user-1'`,
    [id],
  );
  // The clocks of two servers are compared: Temporal's timers and PostgreSQL.
  expect(rows[0]!.took_ms).toBeGreaterThanOrEqual(3 * QUICK_MS + QUICK_MAX_MS - 5);
});

/** Appends an intent under an entry id that the test chose, to prepare what it will find in Redis. */
async function publishAs(id: string, idempotencyKey: string): Promise<void> {
  await slot.redis.xadd(
    'notification:intents',
    id,
    ...['notification_type', 'game.turn.ready', 'producer', 'game_master', 'audience_kind', 'user'],
    ...[
      'idempotency_key',
      idempotencyKey,
      'occurred_at_ms',
      '1790000000000',
      'recipient_user_ids_json',
      '["user-1"]',
    ],
    ...['payload_json', '{"game_id":"g","game_name":"G","turn_number":1}'],
  );
}

test('I22 a payload that cannot be encoded is classified as such', async () => {
  const id = `${Date.now() + 30_000}-0`;
  // The lease defers the first attempt until the stored payload is damaged.
  const lease = leaseKey(id, 'push:user:user-1');
  await slot.redis.set(lease, 'another worker', 'PX', 60_000);
  await publishAs(id, 'encoding');
  await eventually('the record', () => routeOf(id, 'push:user:user-1'));
  await slot.db.query("UPDATE notification.records SET payload_json = '{}' WHERE notification_id = $1", [id]);
  await slot.redis.del(lease);
  const dead = await routeInStatus(id, 'push:user:user-1', 'dead_letter');
  expect(dead).toMatchObject({
    attempt_count: 3,
    last_error_classification: 'payload_encoding_failed',
    last_error_message: expect.stringContaining('game_id'),
  });
  expect(await slot.redis.xlen(GATEWAY)).toBe(0);
});

test('I23 a foreign lease defers the attempt and spends no budget', async () => {
  const id = `${Date.now() + 60_000}-0`;
  await slot.redis.set(leaseKey(id, 'push:user:user-1'), 'another worker', 'PX', 500);
  await publishAs(id, 'leased');
  const route = await routeInStatus(id, 'push:user:user-1', 'published');
  expect(route).toMatchObject({ attempt_count: 1, last_error_classification: null });
  expect(await slot.redis.xlen(GATEWAY)).toBe(1);
});

test('I23 I28 an attempt that finds the hand-off of an earlier one only settles the route', async () => {
  const id = `${Date.now() + 120_000}-0`;
  // As left by a process that died between the append and its transaction.
  await slot.redis.set(handOffKey(id, 'push:user:user-1', 0), '1-1');
  await publishAs(id, 'handed-off');
  await routeInStatus(id, 'push:user:user-1', 'published');
  await routeInStatus(id, 'email:user:user-1', 'published');
  expect(await slot.redis.xlen(GATEWAY)).toBe(0);
  expect(await slot.redis.xlen(MAIL)).toBe(1);
});

test('I23 an attempt that slept settles nothing that another process has moved since', async () => {
  const id = `${Date.now() + 180_000}-0`;
  await slot.redis.set(leaseKey(id, 'push:user:user-1'), 'another worker', 'PX', 2_000);
  await publishAs(id, 'slept');
  await eventually('the record', () => routeOf(id, 'push:user:user-1'));
  const [loaded] = await loadEach(slot.db, [{ notification_id: id, route_id: 'push:user:user-1' }]);
  await slot.db.query(
    "UPDATE notification.routes SET updated_at = clock_timestamp() WHERE notification_id = $1 AND route_id = 'push:user:user-1'",
    [id],
  );
  const late = await settleRoutes(slot.db, [{ ...loaded!, entryId: '1-1' }]);
  expect(late.size).toBe(0);
  const { entry_id } = await routeInStatus(id, 'push:user:user-1', 'published').then(async () => {
    const [row] = await loadEach(slot.db, [{ notification_id: id, route_id: 'push:user:user-1' }]);
    return row!;
  });
  expect(entry_id).not.toBe('1-1');
});
