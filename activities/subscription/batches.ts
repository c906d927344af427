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
import { ACTION_COLUMNS } from '../../api/subscription/rows.ts';
import { SUBSCRIPTION_INTERRUPTED } from '../../workflows/failures.ts';
import type { BatchOrder, BatchResult, WorkerKey } from '../../workflows/subscription/contract.ts';
import type { RecordAction, RetryPace } from '../../workflows/subscription/rules.ts';
import { evenIfLate, withHeartbeats } from '../attempt.ts';
import { isPostgresAway, query, run } from '../postgres.ts';
import { errorText, inEpoch, writeEvent } from './agents.ts';
import type { WorkerRow } from './commands.ts';
import { kickAll, workersIn } from './commands.ts';
import type { SubscriptionMetrics } from './metrics.ts';
import type { WorkItem } from './records.ts';
import { DOUBT_RECORDS, FAIL_RECORDS, LOAD_WORK, LOCK_RECORDS, NULL_ACTIONS } from './records.ts';
import type { MessagingRouter, NotificationRouter } from './router/routers.ts';
import type { RouterError, RouterResult, TokenRef } from './router/ports.ts';
import { isRetried } from './router/ports.ts';
import type { TokenRow } from './token-rows.ts';
import { loadToken, tokenRefOf } from './token-rows.ts';

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

export const NO_ACTIVE_TOKEN: RouterError = {
  source: 'AGENT',
  code: 'NO_ACTIVE_TOKEN',
  detail: 'there is no active token with instant notifications',
};

export const UNUSABLE_KEY: RouterError = {
  source: 'BROKER',
  code: 'RESPONSE',
  detail: 'the router answered with a key that leads to no secret',
};

/** An item that failed, and why. */
interface FailedItem {
  connId: string;
  error: RouterError;
}

/** An item that its router has answered. */
export interface Answered<Value> {
  item: WorkItem;
  value: Value;
}

/** How an attempt at a batch went. */
interface Attempt<Value> {
  done: Answered<Value>[];
  failed: FailedItem[];
  /** Records that could not be read, with what cannot be. */
  unreadable: FailedItem[];
  /** With which a notification router was asked. */
  token: TokenRef | undefined;
}

/** What saving brings. */
interface Saved {
  /** Workers to wake. */
  kicks?: WorkerKey[];
  /** What counts as done; default: every item that the router has answered. */
  counted?: readonly { item: WorkItem }[];
  /** Items that PostgreSQL refused. */
  refused?: FailedItem[];
}

/** One kind of work on records: what a router is asked about each, and what becomes of its answers. */
export interface RecordWork<Request, Value> {
  action: RecordAction;
  /** Attempts count every retry. */
  counters: readonly [attempts: string, done: string];
  /** The commands undo on a router what others have done there; see `doubtOthers`. */
  undoesOthers?: boolean;
  /** Why an item cannot be worked on: it has failed for good. Default: each can. */
  obstacleOf?(item: WorkItem, token: TokenRow | undefined): RouterError | undefined;
  /** Whether the router is asked about an item, which counts as an attempt. Default: it is. */
  isAsked?(item: WorkItem, token: TokenRef | undefined): boolean;
  /** Writes what must be there before the router is asked. */
  prepare?(client: PoolClient, items: readonly WorkItem[]): Promise<unknown>;
  /** @throws KeyBoxError for an item whose keys do not open. */
  requestOf(item: WorkItem): Request;
  /** @returns an answer for each request, in their order. There is no request without a token where `obstacleOf` asks for one. */
  ask(requests: Request[], token: TokenRef | undefined): Promise<RouterResult<Value>[]>;
  /** Writes what succeeded. */
  save(client: PoolClient, attempt: Attempt<Value>): Promise<Saved>;
}

/**
 * Works on the records of a batch.
 *
 * @throws ApplicationFailure `SubscriptionClosed` when the agent was closed meanwhile: nothing is written then;
 * `PostgresUnavailable`; `SubscriptionInterrupted`.
 */
export async function workOn<Request, Value>(
  resources: SubscriptionResources,
  order: BatchOrder,
  work: RecordWork<Request, Value>,
): Promise<BatchResult> {
  const { db, log, metrics } = resources;
  const { agentId, pool, kind, server, ids } = order;
  const attempt = await whileBeating(async () => {
    try {
      return await makeAttempt(resources, order, work);
    } finally {
      if (work.undoesOthers) await kickAll(resources, await doubtOthers(resources, order));
    }
  });
  const { done, failed, unreadable, token } = attempt;
  const retryIds = failed.filter(({ error }) => isRetried(error)).map(({ connId }) => connId);

  const { kicks, givenUp } = await inEpoch(db, order, async (client) => {
    await run(client, LOCK_RECORDS, [agentId, ids]);
    const { kicks = [], counted = done, refused = [] } = await work.save(client, attempt);
    const countedItems = counted.map(({ item }) => item);
    await countWork(client, order, token, work.counters[1], countedItems);
    const givenUp = [...failed.filter(({ error }) => !isRetried(error)), ...refused];
    const givenUpIds = givenUp.map(({ connId }) => connId);
    await run(client, NULL_ACTIONS, [agentId, order.claim, givenUpIds]);
    if (unreadable.length > 0 && (pool === 'ntf-smp' || pool === 'ntf-ntf')) {
      await run(client, FAIL_RECORDS[pool], [agentId, unreadable.map(({ connId }) => connId)]);
    }
    const errors = [
      ...givenUp.map(({ connId, error }) => ({ connId, error: errorText(error) })),
      ...unreadable.map(({ error }) => ({ connId: '', error: errorText(error) })),
    ];
    await writeEvent(client, { agentId, kind: 'ERRS', errors });
    return { kicks, givenUp: errors.length };
  });

  const counts = { done: done.length, retry: retryIds.length, given_up: givenUp };
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
  await kickAll(resources, kicks);
  return { retryIds };
}

/** Loads what is still the worker's of a batch, and asks the router about it. */
async function makeAttempt<Request, Value>(
  { db, keyBox }: SubscriptionResources,
  order: BatchOrder,
  work: RecordWork<Request, Value>,
): Promise<Attempt<Value>> {
  const { agentId, pool, ids } = order;
  const attempt: Attempt<Value> = { done: [], failed: [], unreadable: [], token: undefined };
  const items = await inEpoch(db, order, async (client) => {
    const saved = await loadToken(client, agentId);
    const values = [agentId, order.claim, ids, ...ACTION_COLUMNS[work.action]];
    const loaded = await run<WorkItem>(client, LOAD_WORK, values);
    attempt.failed = loaded.flatMap((item) => {
      const error = work.obstacleOf?.(item, saved);
      return error ? [{ connId: item.connId, error }] : [];
    });
    const failed = new Set(attempt.failed.map(({ connId }) => connId));
    const items = loaded.filter(({ connId }) => !failed.has(connId));
    if (saved && pool === 'ntf-ntf' && items.length > 0) attempt.token = tokenRefOf(saved, keyBox, agentId);
    const { token } = attempt;
    await work.prepare?.(client, items);
    const asked = items.filter((item) => work.isAsked?.(item, token) ?? true);
    await countWork(client, order, token, work.counters[0], asked);
    return items;
  });
  const ready = items.flatMap((item) => {
    try {
      return [{ item, request: work.requestOf(item) }];
    } catch (error) {
      attempt.unreadable.push(unreadableItem(item.connId, error));
      return [];
    }
  });
  if (ready.length === 0) return attempt;
  const requests = ready.map(({ request }) => request);
  const answers = await work.ask(requests, attempt.token);
  ready.forEach(({ item }, index) => {
    const answer = answers[index]!;
    if (answer.ok) attempt.done.push({ item, value: answer.value });
    else attempt.failed.push({ connId: item.connId, error: answer.error });
  });
  return attempt;
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
 * A command that undoes on a router what others have done there may come late: credentials take the place of earlier ones,
 * and a removal takes whatever there is. A process that stood still, or a PostgreSQL that was put back meanwhile, makes such
 * a command a late one: the record has another claim by then, and may say that its subscription is good. So whatever
 * others have made of these records is looked at again, also when the commands failed, since they may have been
 * carried out, and when the activity is over.
 *
 * @returns the workers to wake.
 * @throws `PostgresUnavailable`.
 */
async function doubtOthers(
  { db }: SubscriptionResources,
  { agentId, claim, ids }: BatchOrder,
): Promise<WorkerKey[]> {
  for (let second = 1; ; second += 1) {
    try {
      const workers = await evenIfLate(() => query<WorkerRow>(db, DOUBT_RECORDS, [agentId, claim, ids]));
      return workersIn(agentId, workers);
    } catch (error) {
      if (!isPostgresAway(error) || second === DOUBT_WAITS_S) throw error;
      await sleep(1_000);
    }
  }
}

/** An item whose sealed keys do not open, so that it cannot be worked on. */
export function unreadableItem(connId: string, cause: unknown): FailedItem {
  const detail = cause instanceof Error ? cause.message : 'a sealed value does not open';
  return { connId, error: { source: 'STORE', code: 'INTERNAL', detail } };
}

/** Adds items of a batch, each to its user. Work on a notification router counts for the router of the token. */
async function countWork(
  client: PoolClient,
  { agentId, pool, server }: BatchOrder,
  token: TokenRef | undefined,
  counter: string,
  items: readonly WorkItem[],
): Promise<void> {
  if (items.length === 0) return;
  const values = items.map(({ userId, address }) => {
    const { host, port } = pool === 'ntf-smp' ? address : (token?.address ?? server);
    return { user_id: userId, host, port };
  });
  await run(client, ADD_STATISTICS, [agentId, counter, JSON.stringify(values)]);
}

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
