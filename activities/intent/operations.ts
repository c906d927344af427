/**
 * What operators do to many intents: dead-lettered routes are replayed, notifications cancelled, refused entries published
 * again. It is done here, to the rows, many together: a workflow for each would be a hundred times slower, and only what
 * is in trouble needs one. All of it may be done twice: an order that a route has carried out has no effect on it, nothing
 * is cancelled twice, and Redis remembers which entries it has appended.
 */
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import pLimit from 'p-limit';
import { routeRefOf, searchableKey } from '../../api/ids.ts';
import { mendEntry } from '../../api/intent/mending.ts';
import { republishedKey } from '../../api/intent/stream.ts';
import {
  ROUTE_WORKFLOW,
  notificationWorkflowId,
  routeWorkflowId,
  routeReplay,
} from '../../workflows/intent/contract.ts';
import type { ReplayOrder } from '../../workflows/intent/contract.ts';
import type { OperationKind, OperationOptions } from '../../workflows/operation-contract.ts';
import { orderIdOf } from '../../workflows/operation-contract.ts';
import type { OperationItem, OperationWork } from '../operations.ts';
import { PARALLEL_ITEMS, operationItems, workOf } from '../operations.ts';
import { statusOf, unlessGone } from '../workflows.ts';
import { handOff } from './hand-off.ts';
import type { Attempt } from './publication.ts';
import { createPublisher } from './publication.ts';
import type { IntentResources, RouteResources } from './resources.ts';
import type { RouteName, RouteRow } from './route-rows.ts';
import { isOpen, loadEach, nameOf } from './route-rows.ts';
import { startRoute, updateDeadLetter } from './routes.ts';
import { createClosing } from './steering.ts';
import { giveUp } from './entries.ts';

/**
 * How long Redis remembers that an operation has appended an entry: for longer than PostgreSQL may be away, or the
 * operation wait, after which it has to be marked.
 */
const REMEMBER_REPUBLISHED_MS = 30 * 86_400_000;

export function intentOperations(
  resources: RouteResources & Pick<IntentResources, 'workflows'> & { intentsStream: string },
): Partial<Record<OperationKind, OperationWork<OperationItem>>> {
  const { db, redis, workflows, catalog, intentsStream } = resources;
  const publisher = createPublisher(resources);
  const closing = createClosing(resources);
  const inTurn = pLimit(PARALLEL_ITEMS);
  const oneByOne =
    <Item>(one: (item: Item) => Promise<boolean>) =>
    (items: readonly Item[]) =>
      inTurn.map(items, one);
  return {
    replay: workOf<ReplayItem>({ list: LIST_DEAD, deal: replay }),
    cancel: workOf<CancelItem>({ list: LIST_OPEN, deal: oneByOne(cancel) }),
    republish: workOf<EntryItem>({ list: LIST_ENTRIES, deal: oneByOne(republish) }),
  };

  /** @returns of each whether there was something to replay. */
  async function replay(items: readonly ReplayItem[]): Promise<boolean[]> {
    const [first] = items;
    if (first === undefined) return [];
    // One order is for all items.
    const { operation_id: operationId, requested_by: requestedBy, reason } = first;
    const order: ReplayOrder = {
      ...{ replayId: orderIdOf(operationId), requestedBy },
      ...(reason === null ? {} : { reason }),
    };
    let rows = new Map<string, RouteRow>();
    let states: State[] = [];
    const inState = (...wanted: State[]) => items.filter((_, index) => wanted.includes(states[index]!));
    const rowsInState = (state: State) => inState(state).map((item) => rows.get(nameOf(item))!);
    const attempted = await publisher.publish(async () => {
      rows = new Map((await loadEach(db, items)).map((row) => [nameOf(row), row]));
      states = await inTurn.map(items, (item) => stateOf(item, rows.get(nameOf(item)), order));
      return rowsInState('to_do');
    }, order);
    // Also where an activity that has died meanwhile has carried it out.
    await inTurn.map(inState('to_do', 'done'), (item) => updateDeadLetter(workflows, item));
    await inTurn.map(attempted, ({ route, attempt }) => continueRoute(route, attempt, order));
    await inTurn.map(rowsInState('running'), (row) => orderReplay(row, order));
    return states.map((state) => state !== 'nothing');
  }

  /**
   * @returns `done` once it has carried the order out; `running` when a workflow has it, which is told. One whose workflow
   * has completed was published, whatever a PostgreSQL says that was put back since.
   */
  async function stateOf(
    { isDead }: ReplayItem,
    row: RouteRow | undefined,
    { replayId }: ReplayOrder,
  ): Promise<State> {
    const isOrdered = row?.replayId === replayId;
    if (row === undefined || !(isDead || isOrdered)) return 'nothing';
    // It may be open without a worker: the process that made the attempt has died.
    if (isOrdered && !isOpen(row)) return 'done';
    const workflowId = routeWorkflowId(row.notificationId, routeRefOf(row.routeId));
    const status = await statusOf(workflows, workflowId);
    if (status === 'RUNNING') return isOrdered ? 'done' : 'running';
    return status === 'COMPLETED' && !isOrdered ? 'nothing' : 'to_do';
  }

  /** A route that the attempt does not finish has a workflow from then on. */
  async function continueRoute(row: RouteRow, attempt: Attempt, order: ReplayOrder): Promise<void> {
    switch (attempt.status) {
      case 'published':
      case 'skipped':
        return;
      case 'failed':
      case 'dead_letter':
        return startRoute(workflows, row, attempt, 'replay');
      case 'paused':
      case 'deferred':
        return orderReplay(row, order);
    }
  }

  /** Leaves the order to the workflow of the route, which is started if it does not run. */
  async function orderReplay(row: RouteRow, { replayId: orderId, ...request }: ReplayOrder): Promise<void> {
    const start = routeReplay(
      { ...row, routeRef: routeRefOf(row.routeId), idempotencyKey: searchableKey(row.idempotencyKey) },
      { ...request, orderId },
    );
    try {
      await workflows.signalWithStart(ROUTE_WORKFLOW, start);
    } catch (error) {
      // Its last run has just completed.
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
  }

  /**
   * Settles the rows first: from then on nothing of it goes out, however long its workflows take to end.
   *
   * @returns whether there was something to cancel.
   */
  async function cancel({ notificationId }: CancelItem): Promise<boolean> {
    const isGivenUp = await giveUp(db, notificationId);
    const closed = await closing.closeAll(notificationId);
    if (closed > 0) await handOff.voidAttempts(redis, notificationId);
    const workflowId = notificationWorkflowId(notificationId);
    // Temporal takes the cancellation of one that has ended, too.
    const isTold =
      (await statusOf(workflows, workflowId)) === 'RUNNING' &&
      (await unlessGone(() => workflows.getHandle(workflowId).cancel())) !== undefined;
    return isTold || isGivenUp || closed > 0;
  }

  /** @returns whether it is one that the service would take. */
  async function republish(item: EntryItem): Promise<boolean> {
    const { entryId, rawFields, options } = item;
    if (rawFields === null) return false;
    const corrected = mendEntry(catalog, entryId, rawFields, options ?? {});
    if ('reason' in corrected) return false;
    const keys = [republishedKey(item.operation_id, entryId), intentsStream];
    const values = [REMEMBER_REPUBLISHED_MS, ...Object.entries(corrected.fields).flat()];
    await redis.eval(APPEND_ONCE, keys.length, ...keys, ...values);
    return true;
  }
}

type State = 'nothing' | 'to_do' | 'running' | 'done';

interface ReplayItem extends OperationItem, RouteName {
  reason: string | null;
  /** The route died before the operation began, is dead, and not too late. */
  isDead: boolean;
}

type CancelItem = OperationItem & Pick<RouteName, 'notificationId'>;

interface EntryItem extends OperationItem {
  entryId: string;
  options: OperationOptions | null;
  /** Null once retention has removed it. */
  rawFields: Record<string, string> | null;
}

/** KEYS: memory, stream. ARGV: memory ms, field, value, ... Returns the id of the entry, now or before. */
const APPEND_ONCE = `
  local before = redis.call('GET', KEYS[1])
  if before then return before end
  local id = redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
  redis.call('SET', KEYS[1], id, 'PX', ARGV[1])
  return id`;

const LIST_DEAD = {
  name: 'list_operation_routes',
  text: operationItems(
    `item.notification_id AS "notificationId", item.route_id AS "routeId", operation.reason,
           coalesce(route.status = 'dead_letter' AND route.dead_lettered_at < operation.created_at
                    AND (record.expires_at > now()) IS NOT FALSE, false) AS "isDead"`,
    `LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
      LEFT JOIN notification.routes AS route
        ON route.notification_id = item.notification_id AND route.route_id = item.route_id`,
  ),
};

const LIST_OPEN = {
  name: 'list_operation_notifications',
  text: operationItems('item.notification_id AS "notificationId"', ''),
};

const LIST_ENTRIES = {
  name: 'list_operation_entries',
  text: operationItems(
    'item.notification_id AS "entryId", operation.options, malformed.raw_fields AS "rawFields"',
    'LEFT JOIN notification.malformed_intents AS malformed ON malformed.stream_entry_id = item.notification_id',
  ),
};
