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
import type { Answered, Attempt, Begun, Counter, SubscriptionResources } from './batches.ts';
import { NO_ACTIVE_TOKEN, askAbout, beginAttempt, countWork, finishBatch, whileBeating } from './batches.ts';
import type { WorkItem } from './claims.ts';
import type { WorkedRecord } from './records.ts';
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

/** The token with which the router was asked, if there was one. */
type WithToken<T> = T & { token: TokenRef | undefined };

/** `value`: the router has deleted a subscription. */
type Ended = Answered<boolean>;

export interface RotatedOut {
  /** Records that are gone; their connections are to be created again. */
  createIds: string[];
}

export function createNotificationWork(resources: SubscriptionResources) {
  const { notificationRouter, subscription } = resources;

  return {
    /** Subscribes with the notifier credentials of the queues. */
    async runCreates(order: BatchOrder): Promise<BatchOutcome> {
      const { token, ...attempt } = await whileBeating(async () => {
        const obstacleOf = ({ queue }: WorkItem) => (queue.credentials ? undefined : NO_CREDENTIALS);
        const begun = await begin(resources, order, 'ntf-create', 'ntfCreateAttempts', obstacleOf);
        return asked(
          begun,
          (item) => requestOf(resources, order.agentId, item),
          (token, requests) => notificationRouter.createSubscriptions(token, requests),
        );
      });
      return finishBatch(resources, order, attempt, async (client, created) => {
        const ntfServer = token?.address;
        const step = stepAfterCreate(order.nowMs, subscription.firstCheckMs);
        const records = created.map(({ item, value }) =>
          workedOf(item, { subscriptionId: value, ...(ntfServer ? { ntfServer } : {}), ...step }),
        );
        await updateRecords(client, order, records);
        await countOn(client, order, token, 'ntfCreated', created.map(itemOf));
        // The worker of the router that has the subscription from now on must hear of the check.
        const isMoved = ntfServer && created.some(({ item }) => !isSameServer(item.ntfServer, ntfServer));
        return { kicks: isMoved ? [{ agentId: order.agentId, pool: 'ntf-ntf', server: ntfServer }] : [] };
      });
    },

    /** Asks how subscriptions stand. A subscription that is not alive is made again, from the key on. */
    async runChecks(order: BatchOrder): Promise<BatchOutcome> {
      const { token, ...attempt } = await whileBeating(async () => {
        const obstacleOf = ({ subscriptionId }: WorkItem) =>
          subscriptionId === undefined ? NO_SUBSCRIPTION : undefined;
        const begun = await begin(resources, order, 'ntf-check', 'ntfCheckAttempts', obstacleOf);
        return asked(
          begun,
          ({ subscriptionId }) => subscriptionId!,
          async (token, ids) => {
            const answers = await notificationRouter.checkSubscriptions(token, ids);
            return answers.map((answer): RouterResult<string | undefined> =>
              !answer.ok && isUnknownToNotificationRouter(answer.error)
                ? { ok: true, value: undefined }
                : answer,
            );
          },
        );
      });
      return finishBatch(resources, order, attempt, async (client, checked) => {
        const steps = checked.map(({ item, value }) => {
          const { isKept, ...step } = stepAfterCheck(value, order.nowMs, subscription.checkIntervalMs);
          const afresh = {
            ...{ notifierId: undefined, subscriptionId: undefined },
            ntfServer: token?.address ?? item.ntfServer,
          };
          return { item, isKept, record: workedOf(item, { ...(isKept ? {} : afresh), ...step }) };
        });
        await updateRecords(
          client,
          order,
          steps.map(({ record }) => record),
        );
        const answered = checked.filter(({ value }) => value !== undefined);
        await countOn(client, order, token, 'ntfChecked', answered.map(itemOf));
        const lost = steps.filter(({ isKept }) => !isKept);
        return { kicks: lost.map(({ item }) => smpKick(order.agentId, item)) };
      });
    },

    /** Old records: ends a subscription, then its credentials. One at a time. */
    async runLegacyDeletes(order: BatchOrder): Promise<BatchOutcome> {
      const { token, ...attempt } = await whileBeating(() => endEach(resources, order, 'ntf-delete'));
      return finishBatch(resources, order, attempt, async (client, ended) => {
        const records = ended.map(({ item }) =>
          workedOf(item, {
            ...{ subscriptionId: undefined, status: 'OFF', action: 'smp-delete', actionMs: order.nowMs },
          }),
        );
        await updateRecords(client, order, records);
        await countDeleted(client, order, token, ended);
        return { kicks: ended.map(({ item }) => smpKick(order.agentId, item)) };
      });
    },

    /** Old records: ends a subscription and its record, for a Create to follow. One at a time. */
    async runLegacyRotations(order: BatchOrder): Promise<BatchOutcome & RotatedOut> {
      const { token, ...attempt } = await whileBeating(() => endEach(resources, order, 'ntf-rotate'));
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

/**
 * Loads the items that can be worked on, with the token for them, and counts an attempt at each; the others have failed
 * for good. There are no items without a token.
 */
function begin(
  { db, keyBox }: SubscriptionResources,
  order: BatchOrder,
  action: 'ntf-create' | 'ntf-check',
  counter: Counter,
  obstacleOf: (item: WorkItem) => RouterError | undefined,
): Promise<WithToken<Begun>> {
  return inTransaction(db, async (client) => {
    const { token: saved, ...begun } = await beginAttempt(client, order, action, (item, saved) =>
      isGateOpen(saved) && saved.tokenId !== undefined ? obstacleOf(item) : NO_ACTIVE_TOKEN,
    );
    const token = isGateOpen(saved) ? tokenRefOf(saved, keyBox, order.agentId) : undefined;
    await countOn(client, order, token, counter, begun.items);
    return { ...begun, token };
  });
}

async function asked<Request, Value>(
  { token, ...begun }: WithToken<Begun>,
  requestOf: (item: WorkItem) => Request,
  ask: (token: TokenRef, requests: Request[]) => Promise<RouterResult<Value>[]>,
): Promise<WithToken<Attempt<Answered<Value>>>> {
  return { ...(await askAbout(begun, requestOf, (requests) => ask(token!, requests))), token };
}

/** @throws KeyBoxError when the notifier's key does not open. */
function requestOf(
  { keyBox }: SubscriptionResources,
  agentId: string,
  { queue: { address, credentials } }: WorkItem,
): NewSubscriptionRequest {
  const { notifierId, privateKey } = credentials!;
  const notifierPrivateKey = keyBox.open(privateKey, notifierKeyContext(agentId, notifierId));
  return { messagingRouter: address, notifierId, notifierPrivateKey };
}

/** A subscription counts as ended unless its router is to be asked again: one that it does not know is ended, too. */
async function endEach(
  { db, keyBox, notificationRouter }: SubscriptionResources,
  order: BatchOrder,
  action: 'ntf-delete' | 'ntf-rotate',
): Promise<WithToken<Attempt<Ended>>> {
  const { items, token } = await inTransaction(db, async (client) => {
    const { items, token: saved } = await beginAttempt(client, order, action, () => undefined);
    const token = saved && tokenRefOf(saved, keyBox, order.agentId);
    const asked = token ? items.filter(({ subscriptionId }) => subscriptionId !== undefined) : [];
    await countOn(client, order, token, 'ntfDelAttempts', asked);
    return { items, token };
  });
  const attempt: Attempt<Ended> = { done: [], failed: [], unreadable: [] };
  for (const item of items) {
    const { connId, subscriptionId } = item;
    const answer =
      token && subscriptionId !== undefined
        ? await notificationRouter.deleteSubscription(token, subscriptionId)
        : undefined;
    if (answer && !answer.ok && isRetried(answer.error)) attempt.failed.push({ connId, error: answer.error });
    else attempt.done.push({ connId, item, value: answer?.ok === true });
  }
  return { ...attempt, token };
}

// --- Saving what has become of records ---------------------------------------------------------------------------

const workedOf = (
  { connId, notifierId, subscriptionId, ntfServer }: WorkItem,
  change: Partial<WorkedRecord> & Pick<WorkedRecord, 'status' | 'action' | 'actionMs'>,
): WorkedRecord => ({ connId, notifierId, subscriptionId, ntfServer, ...change });

function countDeleted(
  client: PoolClient,
  order: BatchOrder,
  token: TokenRef | undefined,
  ended: readonly Ended[],
): Promise<void> {
  const deleted = ended.filter(({ value }) => value);
  return countOn(client, order, token, 'ntfDeleted', deleted.map(itemOf));
}

/** Work on a notification router counts for the router of the token. */
function countOn(
  client: PoolClient,
  { agentId, server }: BatchOrder,
  token: TokenRef | undefined,
  counter: Counter,
  items: readonly WorkItem[],
): Promise<void> {
  const where = token?.address ?? server;
  const counted = items.map(({ userId }) => ({ userId, server: where }));
  return countWork(client, agentId, counter, counted);
}

const itemOf = ({ item }: { item: WorkItem }): WorkItem => item;

const smpKick = (agentId: string, { smpServer }: WorkItem): WorkerKey => ({
  ...{ agentId, pool: 'ntf-smp', server: smpServer },
});
