/**
 * What every batch on a router has in common: items that failed for now go back to the workflow, which tries them
 * again; items that failed for good lose their action and are reported in one event; items that succeeded are saved.
 * All of this is one transaction, and workers are woken after it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure, Context } from '@temporalio/activity';
import type { WorkflowClient } from '@temporalio/client';
import type { Pool, PoolClient } from 'pg';
import type { Logger } from 'pino';
import type { KeyBox } from '../../api/key-box.ts';
import { SUBSCRIPTION_INTERRUPTED } from '../../workflows/failures.ts';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import type { RecordAction, RetryPace, ServerKey } from '../../workflows/subscription/rules.ts';
import { evenIfLate } from '../attempt.ts';
import { isPostgresAway, query } from '../postgres.ts';
import { withHeartbeats } from '../heartbeat.ts';
import { inTransaction, run } from '../transactions.ts';
import type { CurrentToken } from './agents.ts';
import { loadToken, requireEpoch } from './agents.ts';
import type { WorkItem } from './claims.ts';
import { FAIL_RECORDS, loadWork, lockRecords } from './claims.ts';
import { kickAll } from './commands.ts';
import type { SubscriptionEvent } from './events.ts';
import { announceEvent, errorText, writeEvent } from './events.ts';
import type { SubscriptionMetrics } from './metrics.ts';
import { doubtOthersRecords, nullActions } from './records.ts';
import type { MessagingRouter, NotificationRouter } from './router/routers.ts';
import type { RouterError, RouterResult } from './router/ports.ts';
import { classOf } from './router/ports.ts';

export interface SubscriptionResources {
  db: Pool;
  log: Logger;
  metrics: SubscriptionMetrics;
  workflows: WorkflowClient;
  keyBox: KeyBox;
  messagingRouter: MessagingRouter;
  notificationRouter: NotificationRouter;
  subscription: SubscriptionSettings;
}

/** All ms. */
export interface SubscriptionSettings {
  /** Between the creation of a subscription and its first check, and between two checks. */
  firstCheckMs: number;
  checkIntervalMs: number;
  pace: RetryPace;
  /** Between two runs of its reconciliation. */
  reconciliationMs: number;
}

/** An item that failed, and why. */
export interface FailedItem {
  connId: string;
  error: RouterError;
}

/** How a batch went. */
export interface Attempt<Done> {
  done: Done[];
  failed: FailedItem[];
  /** Records that could not be read, with what cannot be. */
  unreadable: FailedItem[];
}

export const NO_ACTIVE_TOKEN: RouterError = {
  source: 'AGENT',
  code: 'NO_ACTIVE_TOKEN',
  detail: 'there is no active token with instant notifications',
};
export const NO_QUEUE: RouterError = {
  source: 'AGENT',
  code: 'CONN NOT_FOUND',
  detail: 'the connection has no queue',
};
/** The router answered fewer items than it was asked about. */
export const NO_ANSWER: RouterError = { source: 'BROKER', code: 'TRANSPORT', detail: 'an answer is missing' };

export const UNUSABLE_KEY: RouterError = {
  source: 'BROKER',
  code: 'RESPONSE',
  detail: 'the router answered with a key that leads to no secret',
};

/** What is worked on of a batch, and what cannot be. */
export interface Begun {
  items: WorkItem[];
  failed: FailedItem[];
}

/** An item that its router has answered. */
export interface Answered<Value> {
  connId: string;
  item: WorkItem;
  value: Value;
}

/**
 * Begins an attempt at a batch: loads what is still the worker's of it, and the token of the agent.
 *
 * @param obstacleOf why an item cannot be worked on: it has failed for good.
 */
export async function beginAttempt(
  client: PoolClient,
  order: BatchOrder,
  action: RecordAction,
  obstacleOf: (item: WorkItem, token: CurrentToken | undefined) => RouterError | undefined,
): Promise<Begun & { token: CurrentToken | undefined }> {
  const { agentId, epoch, ids } = order;
  await requireEpoch(client, agentId, epoch);
  const loaded = await loadWork(client, order, action, ids);
  const token = await loadToken(client, agentId);
  const failed = loaded.flatMap((item): FailedItem[] => {
    const error = obstacleOf(item, token);
    return error ? [{ connId: item.connId, error }] : [];
  });
  const failedIds = new Set(failed.map(({ connId }) => connId));
  return { items: loaded.filter(({ connId }) => !failedIds.has(connId)), failed, token };
}

/**
 * Asks a router about items.
 *
 * @param requestOf throws KeyBoxError for an item whose keys do not open.
 * @param ask returns an answer for each request, in their order.
 */
export async function askAbout<Request, Value>(
  { items, failed }: Begun,
  requestOf: (item: WorkItem) => Request,
  ask: (requests: Request[], items: WorkItem[]) => Promise<readonly (RouterResult<Value> | undefined)[]>,
): Promise<Attempt<Answered<Value>>> {
  const attempt: Attempt<Answered<Value>> = { done: [], failed: [...failed], unreadable: [] };
  const ready = items.flatMap((item) => {
    try {
      return [{ item, request: requestOf(item) }];
    } catch (error) {
      attempt.unreadable.push(unreadableItem(item.connId, error));
      return [];
    }
  });
  if (ready.length === 0) return attempt;
  const answers = await ask(
    ready.map(({ request }) => request),
    ready.map(({ item }) => item),
  );
  ready.forEach(({ item }, index) => {
    const { connId } = item;
    const answer = answers[index] ?? { ok: false, error: NO_ANSWER };
    if (answer.ok) attempt.done.push({ connId, item, value: answer.value });
    else attempt.failed.push({ connId, error: answer.error });
  });
  return attempt;
}

/** What saving brings: workers to wake, and items that PostgreSQL refused. */
interface Saved {
  kicks: WorkerKey[];
  refused?: FailedItem[];
}

/**
 * Ends a batch.
 *
 * @param save writes what succeeded, within the transaction.
 * @throws ApplicationFailure `SubscriptionClosed` when the agent was closed meanwhile: nothing is written then;
 * `PostgresUnavailable`.
 */
export async function finishBatch<Done extends { connId: string }>(
  resources: SubscriptionResources,
  order: BatchOrder,
  { done, failed, unreadable }: Attempt<Done>,
  save: (client: PoolClient, done: Done[]) => Promise<Saved>,
): Promise<BatchOutcome> {
  const { db, log, metrics } = resources;
  const { agentId, pool, kind, claim, epoch, server, ids } = order;
  const retryIds = failed.filter(({ error }) => classOf(error) !== 'permanent').map(({ connId }) => connId);
  const permanent = failed.filter(({ error }) => classOf(error) === 'permanent');

  const { kicks, givenUp, event } = await inTransaction(db, async (client) => {
    await requireEpoch(client, agentId, epoch);
    await lockRecords(client, agentId, ids);
    const { kicks, refused = [] } = await save(client, done);
    const givenUp = [...permanent, ...refused];
    await nullActions(
      client,
      { agentId, claim },
      givenUp.map(({ connId }) => connId),
    );
    if (unreadable.length > 0 && (pool === 'ntf-smp' || pool === 'ntf-ntf')) {
      await run(client, FAIL_RECORDS[pool], [agentId, unreadable.map(({ connId }) => connId)]);
    }
    const event: SubscriptionEvent = {
      agentId,
      kind: 'ERRS',
      errors: [
        ...givenUp.map(({ connId, error }) => ({ connId, error: errorText(error) })),
        ...unreadable.map(({ error }) => ({ connId: '', error: errorText(error) })),
      ],
    };
    await writeEvent(client, event);
    return { kicks, givenUp: [...givenUp, ...unreadable], event };
  });

  const counts = { done: done.length, retry: retryIds.length, given_up: givenUp.length };
  for (const result of ['done', 'retry', 'given_up'] as const) {
    metrics.subscriptionWork(counts[result], { kind, result });
  }
  const level = retryIds.length > 0 ? 'warn' : 'info';
  const reasons = [...new Set(failed.map(({ error }) => errorText(error)))].slice(0, 5);
  log[level](
    {
      agent_id: agentId,
      pool,
      server: `${server.host}:${server.port}`,
      kind,
      ...counts,
      ...(reasons.length > 0 ? { reasons } : {}),
    },
    'subscriptions worked on',
  );
  announceEvent(resources, event);
  await kickAll(resources, kicks);
  return { retryIds };
}

/**
 * Runs work on routers with heartbeats. When the process stops or the workflow is cancelled, the caller stops waiting for the
 * work: all that is not written by then is done again from the rows.
 *
 * @throws ApplicationFailure `SubscriptionInterrupted` when the process stops.
 */
export async function whileBeating<T>(work: () => Promise<T>): Promise<T> {
  const activity = Context.current();
  try {
    return await withHeartbeats(() => Promise.race([work(), activity.cancelled]));
  } catch (error) {
    if (!activity.cancellationDetails?.workerShutdown) throw error;
    throw ApplicationFailure.create({
      type: SUBSCRIPTION_INTERRUPTED,
      message: 'the process stops; what it had in hand is picked up again',
    });
  }
}

/** How long the doubt about others' records waits for PostgreSQL, s: as long as most outages take. */
const DOUBT_WAITS_S = 60;

/**
 * Runs commands that undo on a router what others have done there: credentials take the place of earlier ones, and a
 * removal takes whatever there is. A process that stood still, or a PostgreSQL that was put back meanwhile, makes such a
 * command a late one: the record has another claim by then, and may say that its subscription is good. So whatever
 * others have made of these records is looked at again, also when the commands failed, since they may have been
 * carried out, and when the activity is over.
 *
 * @throws what `whileBeating` and the commands throw; `PostgresUnavailable`.
 */
export function changeOnRouters<T>(
  resources: SubscriptionResources,
  { agentId, claim, ids }: BatchOrder,
  change: () => Promise<T>,
): Promise<T> {
  return whileBeating(async () => {
    try {
      return await change();
    } finally {
      await kickAll(resources, await doubt());
    }
  });

  async function doubt(): Promise<WorkerKey[]> {
    for (let second = 1; ; second += 1) {
      try {
        return await evenIfLate(() => doubtOthersRecords(resources.db, { agentId, claim }, ids));
      } catch (error) {
        if (!isPostgresAway(error) || second === DOUBT_WAITS_S) throw error;
        await sleep(1_000);
      }
    }
  }
}

/** An item whose sealed keys do not open, so that it cannot be worked on. */
export function unreadableItem(connId: string, cause: unknown): FailedItem {
  const detail = cause instanceof Error ? cause.message : 'a sealed value does not open';
  return { connId, error: { source: 'STORE', code: 'INTERNAL', detail } };
}

/** The first six are of notification routers, the others of messaging routers. Attempts count every retry. */
export type Counter =
  | 'ntfCreateAttempts'
  | 'ntfCreated'
  | 'ntfCheckAttempts'
  | 'ntfChecked'
  | 'ntfDelAttempts'
  | 'ntfDeleted'
  | 'ntfKeyAttempts'
  | 'ntfKey'
  | 'ntfKeyDeleteAttempts'
  | 'ntfKeyDeleted';

/** Adds the items of a batch, each to its user. */
export async function countWork(
  client: PoolClient,
  agentId: string,
  counter: Counter,
  items: readonly { userId: number; server: ServerKey }[],
): Promise<void> {
  if (items.length === 0) return;
  const values = items.map(({ userId, server }) => ({
    user_id: userId,
    host: server.host,
    port: server.port,
  }));
  await run(client, ADD_STATISTICS, [agentId, counter, JSON.stringify(values)]);
}

/** Sets all counters of an agent back. @returns how many there were. */
export async function resetStatistics(db: Pool, agentId: string): Promise<number> {
  const removed = await query(db, RESET_STATISTICS, [agentId]);
  return removed.length;
}

const RESET_STATISTICS = {
  name: 'reset_subscription_statistics',
  text: 'DELETE FROM subscriptions.servers_stats WHERE agent_id = $1 RETURNING 1',
};

const ADD_STATISTICS = {
  name: 'add_subscription_statistics',
  text: `
    INSERT INTO subscriptions.servers_stats AS stats (agent_id, user_id, host, port, counter, value)
    SELECT $1, user_id, host, port, $2, count(*)
      FROM jsonb_to_recordset($3::jsonb) AS item (user_id int, host text, port int)
     GROUP BY user_id, host, port
     ORDER BY user_id, host, port
    ON CONFLICT (agent_id, user_id, host, port, counter) DO UPDATE
       SET value = stats.value + excluded.value, updated_at = clock_timestamp()`,
};
