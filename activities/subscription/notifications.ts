/**
 * Work of the pool `ntf-ntf`: subscriptions on notification routers. Always on the router of the current token, and
 * with the token as it is at each attempt: a token that was removed meanwhile gets no subscription.
 */
import { notifierKeyContext } from '../../api/subscription/sealed-columns.ts';
import type { PoolClient } from 'pg';
import type { BatchOrder, BatchOutcome, WorkerKey } from '../../workflows/subscription/contract.ts';
import { isSameServer, stepAfterCheck, stepAfterCreate } from '../../workflows/subscription/rules.ts';
import { inTransaction } from '../transactions.ts';
import { isGateOpen, tokenRefOf } from './agents.ts';
import type { Attempt, Counter, FailedItem, SubscriptionResources } from './batches.ts';
import {
  NO_ACTIVE_TOKEN,
  NO_ANSWER,
  NO_QUEUE,
  beginAttempt,
  countWork,
  finishBatch,
  unreadableItem,
  whileBeating,
} from './batches.ts';
import type { WorkItem } from './claims.ts';
import { deleteWorkedRecords, updateRecords } from './records.ts';
import { isRetried, isUnknownToNotificationRouter } from './router/ports.ts';
import type { NewSubscriptionRequest, RouterError, RouterResult, TokenRef } from './router/ports.ts';

const NO_CREDENTIALS: RouterError = {
  source: 'AGENT',
  code: 'NO_CREDENTIALS',
  detail: 'the queue has no notifier credentials',
};
const NO_SUBSCRIPTION: RouterError = {
  source: 'AGENT',
  code: 'NO_SUBSCRIPTION_ID',
  detail: 'there is no subscription to check',
};

interface Created {
  connId: string;
  item: WorkItem;
  subscriptionId: string;
}

interface Checked {
  connId: string;
  item: WorkItem;
  /** Absent: the router does not know it. */
  status?: string;
}

interface Ended {
  connId: string;
  item: WorkItem;
  /** The router has deleted a subscription. */
  isDeleted: boolean;
}

/** How the router was asked about a batch, and with which token, if there was one. */
interface Asked<Done> {
  attempt: Attempt<Done>;
  token: TokenRef | undefined;
}

export interface RotatedOut {
  /** Records that are gone; their connections are to be created again. */
  createIds: string[];
}

export function createNotificationWork(resources: SubscriptionResources) {
  const { firstCheckMs, checkIntervalMs } = resources.subscription;

  return {
    /** Subscribes with the notifier credentials of the queues. */
    async runCreates(order: BatchOrder): Promise<BatchOutcome> {
      const { attempt, token } = await whileBeating(() => createAll(resources, order));
      return finishBatch(resources, order, attempt, (client, created) =>
        saveCreated(client, order, token, created, firstCheckMs),
      );
    },

    /** Asks how subscriptions stand. A subscription that is not alive is made again, from the key on. */
    async runChecks(order: BatchOrder): Promise<BatchOutcome> {
      const { attempt, token } = await whileBeating(() => checkAll(resources, order));
      return finishBatch(resources, order, attempt, (client, checked) =>
        saveChecked(client, order, token, checked, checkIntervalMs),
      );
    },

    /** Old records: ends a subscription, then its credentials. One at a time. */
    async runLegacyDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const { attempt, token } = await whileBeating(() => endEach(resources, order, 'ntf-delete'));
      return finishBatch(resources, order, attempt, (client, ended) =>
        saveDeleted(client, order, token, ended),
      );
    },

    /** Old records: ends a subscription and its record, for a Create to follow. One at a time. */
    async runLegacyRotations(order: BatchOrder): Promise<BatchOutcome & RotatedOut> {
      const { attempt, token } = await whileBeating(() => endEach(resources, order, 'ntf-rotate'));
      const createIds = attempt.done.map(({ connId }) => connId);
      const outcome = await finishBatch(resources, order, attempt, async (client, ended) => {
        await deleteWorkedRecords(client, order, createIds);
        await countDeleted(client, order, token, ended);
        return { kicks: [] };
      });
      return { ...outcome, createIds };
    },
  };
}

// --- Asking the router -------------------------------------------------------------------------------------------

async function createAll(resources: SubscriptionResources, order: BatchOrder): Promise<Asked<Created>> {
  const { items, token, failed } = await beginAsking(
    resources,
    order,
    'ntf-create',
    'ntfCreateAttempts',
    ({ queue }) => (!queue ? NO_QUEUE : queue.credentials ? undefined : NO_CREDENTIALS),
  );
  const attempt: Attempt<Created> = { done: [], failed, unreadable: [] };
  const ready = items.flatMap((item) => {
    try {
      return [{ item, request: requestOf(resources, order.agentId, item) }];
    } catch (error) {
      attempt.unreadable.push(unreadableItem(item.connId, error));
      return [];
    }
  });
  if (!token || ready.length === 0) return { attempt, token };
  const answers = await resources.notificationRouter.createSubscriptions(
    token,
    ready.map(({ request }) => request),
  );
  ready.forEach(({ item }, index) => {
    const { connId } = item;
    const answer = answers[index] ?? MISSING;
    if (answer.ok) attempt.done.push({ connId, item, subscriptionId: answer.value });
    else attempt.failed.push({ connId, error: answer.error });
  });
  return { attempt, token };
}

/** @throws KeyBoxError when the notifier's key does not open. */
function requestOf(
  { keyBox }: SubscriptionResources,
  agentId: string,
  { smpServer, queue }: WorkItem,
): NewSubscriptionRequest {
  const { address, credentials } = queue!;
  const { notifierId, privateKey } = credentials!;
  const notifierPrivateKey = keyBox.open(privateKey, notifierKeyContext(agentId, notifierId));
  return { messagingRouter: smpServer ?? address, notifierId, notifierPrivateKey };
}

async function checkAll(resources: SubscriptionResources, order: BatchOrder): Promise<Asked<Checked>> {
  const { items, token, failed } = await beginAsking(
    resources,
    order,
    'ntf-check',
    'ntfCheckAttempts',
    ({ subscriptionId }) => (subscriptionId === undefined ? NO_SUBSCRIPTION : undefined),
  );
  const attempt: Attempt<Checked> = { done: [], failed, unreadable: [] };
  if (!token || items.length === 0) return { attempt, token };
  const answers = await resources.notificationRouter.checkSubscriptions(
    token,
    items.map(({ subscriptionId }) => subscriptionId!),
  );
  items.forEach((item, index) => {
    const { connId } = item;
    const answer = answers[index] ?? MISSING;
    if (answer.ok) attempt.done.push({ connId, item, status: answer.value });
    else if (isUnknownToNotificationRouter(answer.error)) attempt.done.push({ connId, item });
    else attempt.failed.push({ connId, error: answer.error });
  });
  return { attempt, token };
}

/**
 * Loads the items that can be worked on, with the token for them, and counts an attempt at each; the others have failed
 * for good. There are no items without a token.
 */
function beginAsking(
  { db, keyBox }: SubscriptionResources,
  order: BatchOrder,
  action: 'ntf-create' | 'ntf-check',
  counter: Counter,
  obstacleOf: (item: WorkItem) => RouterError | undefined,
): Promise<{ items: WorkItem[]; token: TokenRef | undefined; failed: FailedItem[] }> {
  return inTransaction(db, async (client) => {
    const begun = await beginAttempt(client, order, action, (item, saved) =>
      isGateOpen(saved) && saved.tokenId !== undefined ? obstacleOf(item) : NO_ACTIVE_TOKEN,
    );
    const { items, failed, token: saved } = begun;
    const token = isGateOpen(saved) ? tokenRefOf(saved, keyBox, order.agentId) : undefined;
    await countOn(client, order, token, counter, items);
    return { items, token, failed };
  });
}

/** A subscription counts as ended unless its router is to be asked again: one that it does not know is ended, too. */
async function endEach(
  { db, keyBox, notificationRouter }: SubscriptionResources,
  order: BatchOrder,
  action: 'ntf-delete' | 'ntf-rotate',
): Promise<Asked<Ended>> {
  const attempt: Attempt<Ended> = { done: [], failed: [], unreadable: [] };
  const { items, token } = await inTransaction(db, async (client) => {
    const { items, token: saved } = await beginAttempt(client, order, action, () => undefined);
    const token = saved && tokenRefOf(saved, keyBox, order.agentId);
    const asked = token ? items.filter(({ subscriptionId }) => subscriptionId !== undefined) : [];
    await countOn(client, order, token, 'ntfDelAttempts', asked);
    return { items, token };
  });
  for (const item of items) {
    const { connId, subscriptionId } = item;
    const answer =
      token && subscriptionId !== undefined
        ? await notificationRouter.deleteSubscription(token, subscriptionId)
        : undefined;
    if (answer && !answer.ok && isRetried(answer.error)) attempt.failed.push({ connId, error: answer.error });
    else attempt.done.push({ connId, item, isDeleted: answer?.ok === true });
  }
  return { attempt, token };
}

const MISSING: RouterResult<never> = { ok: false, error: NO_ANSWER };

// --- Saving what has become of records ---------------------------------------------------------------------------

async function saveCreated(
  client: PoolClient,
  order: BatchOrder,
  token: TokenRef | undefined,
  created: readonly Created[],
  firstCheckMs: number,
) {
  const { agentId, nowMs } = order;
  await updateRecords(
    client,
    order,
    created.map(({ connId, item, subscriptionId }) => ({
      connId,
      notifierId: item.notifierId,
      subscriptionId,
      ntfServer: token?.address ?? item.ntfServer,
      ...stepAfterCreate(nowMs, firstCheckMs),
    })),
  );
  await countOn(client, order, token, 'ntfCreated', created.map(itemOf));
  // The worker of the router that has the subscription from now on must hear of the check.
  const moved = created.filter(({ item }) => token && !isSameServer(item.ntfServer, token.address));
  return { kicks: moved.map(() => ({ agentId, pool: 'ntf-ntf' as const, server: token!.address })) };
}

async function saveChecked(
  client: PoolClient,
  order: BatchOrder,
  token: TokenRef | undefined,
  checked: readonly Checked[],
  checkIntervalMs: number,
) {
  const steps = checked.map(({ connId, item, status }) => {
    const { isKept, ...step } = stepAfterCheck(status, order.nowMs, checkIntervalMs);
    return { connId, item, isKept, step };
  });
  await updateRecords(
    client,
    order,
    steps.map(({ connId, item, isKept, step }) => ({
      connId,
      notifierId: isKept ? item.notifierId : undefined,
      subscriptionId: isKept ? item.subscriptionId : undefined,
      ntfServer: isKept ? item.ntfServer : (token?.address ?? item.ntfServer),
      ...step,
    })),
  );
  const answered = checked.filter(({ status }) => status !== undefined);
  await countOn(client, order, token, 'ntfChecked', answered.map(itemOf));
  const lost = steps.filter(({ isKept }) => !isKept);
  return { kicks: lost.flatMap(({ item }) => smpKicks(order.agentId, item)) };
}

async function saveDeleted(
  client: PoolClient,
  order: BatchOrder,
  token: TokenRef | undefined,
  ended: readonly Ended[],
) {
  await updateRecords(
    client,
    order,
    ended.map(({ connId, item }) => ({
      connId,
      notifierId: item.notifierId,
      subscriptionId: undefined,
      status: 'OFF',
      ntfServer: item.ntfServer,
      action: 'smp-delete' as const,
      actionMs: order.nowMs,
    })),
  );
  await countDeleted(client, order, token, ended);
  return { kicks: ended.flatMap(({ item }) => smpKicks(order.agentId, item)) };
}

async function countDeleted(
  client: PoolClient,
  order: BatchOrder,
  token: TokenRef | undefined,
  ended: readonly Ended[],
): Promise<void> {
  const deleted = ended.filter(({ isDeleted }) => isDeleted);
  await countOn(client, order, token, 'ntfDeleted', deleted.map(itemOf));
}

/** Work on a notification router counts for the router of the token. */
async function countOn(
  client: PoolClient,
  { agentId, server }: BatchOrder,
  token: TokenRef | undefined,
  counter: Counter,
  items: readonly WorkItem[],
): Promise<void> {
  const where = token?.address ?? server;
  await countWork(
    client,
    agentId,
    counter,
    items.map(({ userId }) => ({ userId, server: where })),
  );
}

const itemOf = ({ item }: { item: WorkItem }): WorkItem => item;

function smpKicks(agentId: string, { smpServer }: WorkItem): WorkerKey[] {
  return smpServer ? [{ agentId, pool: 'ntf-smp', server: smpServer }] : [];
}
