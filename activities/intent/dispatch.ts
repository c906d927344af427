/**
 * Dispatches intents from their rows: each gets a workflow, or in mode `direct` a hundred are delivered
 * together and only those in trouble get one. Urgent types come first, then each producer has its turn.
 *
 * A row counts as dispatched once its workflow is started. A dispatcher that dies before that leaves it to the next one; a
 * workflow that Temporal has lost is found by the reconciliation.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Span } from '@opentelemetry/api';
import {
  INVALID_SPANID,
  INVALID_TRACEID,
  ROOT_CONTEXT,
  SpanKind,
  TraceFlags,
  context,
  trace,
} from '@opentelemetry/api';
import type { WorkflowClient } from '@temporalio/client';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import { Context } from '@temporalio/activity';
import { given } from '../../api/given.ts';
import { searchableKey, parseTraceparent } from '../../api/ids.ts';
import type { DispatchMode, NotificationInput } from '../../workflows/intent/contract.ts';
import {
  INTENT_TASK_QUEUE,
  MAX_RECIPIENTS_ACCEPTED_LOCALLY,
  NOTIFICATION_WORKFLOW,
  notificationWorkflowId,
} from '../../workflows/intent/contract.ts';
import { detailsOf } from '../../workflows/details.ts';
import { notificationAttributes, userAttributes } from '../../workflows/search-attributes.ts';
import { BEFORE_NEW_ONES } from '../../workflows/policies.ts';
import { isPostgresAway, query } from '../postgres.ts';
import { reasonOf } from '../reason.ts';
import type { AcceptIntents } from './acceptance.ts';
import type { IntentResources, RouteResources } from './resources.ts';
import { createPublisher } from './publication.ts';
import type { RouteName } from './route-rows.ts';
import { loadEach } from './route-rows.ts';

/** Starts that are under way concurrently. */
const PARALLEL_STARTS = 20;
/** Intents of a producer that have a workflow and whose routes were not tried yet: more would only wait for each other. */
const MOST_UNDER_WAY = 30;
/** The same for so long after an urgent intent, ms: the next one then finds fewer before it. */
const UNDER_WAY_BESIDE_URGENT = 20;
const AFTER_URGENT_MS = 5_000;
/** Those of an intent with more are not looked at, its first ones speak for all. */
const FIRST_ROUTES = 100;
/** An intent counts as under way for so long at most, ms. */
const UNDER_WAY_MS = 10_000;
/** Urgent intents that are taken beyond these bounds. */
const MORE_URGENT = 20;
/** Intents that are delivered together, also of one producer, and how many such deliveries are under way concurrently. */
const TOGETHER = 100;
const PARALLEL_DELIVERIES = 4;

/** Intents whose time has come that one look releases. */
const MOST_RELEASED = 1_000;
/** Of the deliveries under way: of intents whose time has come, so that thousands of these leave places to new ones. */
const PARALLEL_DUE = 2;

/** Of urgent intents, others, and others whose time has come. */
const LANES = { urgent: 0, normal: 1, due: 2 };

/** Without a sign that there is something, ms. */
const IDLE_LOOK_MS = 1_000;
/** While a producer has as many intents under way as it may, ms: an urgent one waits for as long. */
const FULL_LOOK_MS = 50;

export type DispatchResources = Pick<IntentResources, 'db' | 'workflows' | 'log'> & {
  deliverTogether: DeliverTogether;
  bridge: Pick<IntentResources['bridge'], 'dispatch'>;
};

export type Dispatcher = ReturnType<typeof createDispatcher>;

export function createDispatcher(resources: DispatchResources) {
  const { db, workflows, log, deliverTogether, bridge } = resources;
  const isDirect = bridge.dispatch === 'direct';
  const inWork = new Set<string>();
  /** Intents by when their workflows were started. */
  const underWay = new Map<string, number>();
  const running = new Set<Promise<void>>();
  const mostRunning = isDirect ? PARALLEL_DELIVERIES : PARALLEL_STARTS;
  const mostDue = isDirect ? PARALLEL_DUE : PARALLEL_STARTS;
  let runningDue = 0;
  let isUrgentOnly = true;
  let urgentAtMs = -Infinity;
  let done: string[] = [];
  let dispatched = 0;
  let failure: { error: unknown } | undefined;
  let awake = Promise.withResolvers<void>();

  return {
    /** There may be something to dispatch. */
    wake: () => awake.resolve(),
    /** Whether other intents, also those whose time has come, wait: at first they do. */
    urgentOnly(is: boolean) {
      if (isUrgentOnly && !is) awake.resolve();
      isUrgentOnly = is;
    },
    /** Intents that were dispatched so far. */
    get dispatched() {
      return dispatched;
    },
    /** Dispatches until `stop`, and ends what it has begun. @throws what the first failure was. */
    async run(stop: AbortSignal): Promise<void> {
      const onStop = () => awake.resolve();
      stop.addEventListener('abort', onStop);
      try {
        while (!stop.aborted && failure === undefined) {
          awake = Promise.withResolvers<void>();
          const waitMs = await dispatchNext();
          await Promise.race([awake.promise, sleep(waitMs, undefined, { ref: false })]);
        }
      } finally {
        stop.removeEventListener('abort', onStop);
        await Promise.all(running);
      }
      if (failure) throw failure.error;
      await pickIntents(0, [], 0);
    },
  };

  /** @returns after how many ms there is to be another look, unless `wake` is called. */
  async function dispatchNext(): Promise<number> {
    const free = mostRunning - running.size;
    if (free <= -MORE_URGENT) return IDLE_LOOK_MS;
    const most = free <= 0 ? MORE_URGENT : isDirect ? TOGETHER : free;
    const areOthersTaken = free > 0 && !isUrgentOnly;
    const lanes = [LANES.urgent];
    if (areOthersTaken) lanes.push(LANES.normal);
    if (areOthersTaken && runningDue < mostDue) lanes.push(LANES.due);
    const { picked, isFull, released } = await pickIntents(most, lanes, isUrgentOnly ? 0 : MOST_RELEASED);
    // Nothing that others of a delivery wait for holds those of another lane up.
    const byLane = Map.groupBy(picked, ({ lane }) => lane).values();
    for (const intents of isDirect ? byLane : picked.map((intent) => [intent])) beginDispatch(intents);
    // A full batch has more behind it.
    if (released > 0 || (isDirect && picked.length === TOGETHER)) return 0;
    // Others take each place as soon as it is free.
    if (!isFull || isDirect || picked.length === most) return IDLE_LOOK_MS;
    // Each intent that ends would be a reason to look: those of a moment are followed together.
    await sleep(FULL_LOOK_MS);
    return 0;
  }

  /** Says which intents were dispatched, and takes the next ones. */
  async function pickIntents(most: number, lanes: number[], mostReleased: number): Promise<PickRow> {
    const isUrgentAbout = performance.now() - urgentAtMs < AFTER_URGENT_MS;
    const mostUnderWay = isDirect ? TOGETHER : isUrgentAbout ? UNDER_WAY_BESIDE_URGENT : MOST_UNDER_WAY;
    const asked = [...underWay.keys()];
    const values = [done, [...inWork], most, mostUnderWay, lanes, mostReleased, asked];
    done = [];
    const [row] = (await query<PickRow>(db, PICK_INTENTS, values)) as [PickRow];
    const stillUnderWay = new Set(row.underWay);
    const leastMs = performance.now() - UNDER_WAY_MS;
    for (const id of asked) if (!stillUnderWay.has(id) || underWay.get(id)! < leastMs) underWay.delete(id);
    return row;
  }

  function beginDispatch(intents: readonly PickedIntent[]): void {
    const due = intents[0]!.lane === LANES.due ? 1 : 0;
    runningDue += due;
    for (const { notificationId } of intents) inWork.add(notificationId);
    const work = (isDirect ? deliver(intents) : startEach(intents))
      .catch((error: unknown) => (failure ??= { error }))
      .then(() => {
        running.delete(work);
        runningDue -= due;
        for (const { notificationId } of intents) inWork.delete(notificationId);
        awake.resolve();
      });
    running.add(work);
  }

  async function deliver(intents: readonly ToDispatch[]): Promise<void> {
    const small = intents.filter(({ recipients }) => recipients <= MAX_RECIPIENTS_ACCEPTED_LOCALLY);
    const open = await deliverTogether(small.map(({ notificationId }) => notificationId));
    dispatched += small.length - open.size;
    await startEach(intents.filter((intent) => !small.includes(intent) || open.has(intent.notificationId)));
  }

  async function startEach(intents: readonly ToDispatch[]): Promise<void> {
    const options = { dispatch: bridge.dispatch, isEager: true };
    for (const intent of intents) {
      const isNew = await startNotification(workflows, intent, options);
      done.push(intent.notificationId);
      if (intent.isUrgent) urgentAtMs = performance.now();
      else underWay.set(intent.notificationId, performance.now());
      dispatched += 1;
      if (isNew) log.debug({ notification_id: intent.notificationId }, 'notification started');
    }
  }
}

interface PickRow {
  /** A producer has as many under way as it may. */
  isFull: boolean;
  /** Of those that were asked for. */
  underWay: string[];
  /** Intents whose time has come, for the next look. */
  released: number;
  picked: PickedIntent[];
}

type PickedIntent = ToDispatch & { lane: number };

/**
 * $1 intents that were dispatched, $2 intents that are being dispatched, $3 intents at most, $4 intents of a producer that may
 * be under way, $5 lanes, $6 intents at most whose time has come: the next look takes them, $7 intents that were started and
 * may be under way. Urgent ones do not wait for those. What is paused is not under way. Intents whose time has come take turns
 * with the others of their producer. Lanes and producers are stepped through by the index, since a backlog may have a
 * million intents of few producers.
 */
const PICK_INTENTS = {
  name: 'pick_intents',
  text: `
    WITH RECURSIVE dispatched AS (
      UPDATE notification.intents SET dispatched_at = statement_timestamp(), updated_at = statement_timestamp()
       WHERE notification_id = ANY ($1::text[]) AND entry IS NOT NULL AND dispatched_at IS NULL
    ), released AS (
      UPDATE notification.intents
         SET due_at = NULL, lane = CASE lane WHEN ${LANES.urgent} THEN lane ELSE ${LANES.due} END,
             read_at = statement_timestamp(), updated_at = statement_timestamp()
       WHERE notification_id = ANY (ARRAY(
               SELECT notification_id FROM notification.intents
                WHERE status = 'open' AND due_at <= statement_timestamp()
                ORDER BY due_at
                LIMIT $6::int))
      RETURNING 1
    ), turn (lane, producer) AS (
      (SELECT lane, producer FROM notification.intents
        WHERE status = 'open' AND dispatched_at IS NULL AND due_at IS NULL
        ORDER BY lane, producer LIMIT 1)
      UNION ALL
      SELECT next.lane, next.producer
        FROM turn
       CROSS JOIN LATERAL (
         SELECT lane, producer FROM notification.intents
          WHERE status = 'open' AND dispatched_at IS NULL AND due_at IS NULL
            AND (lane, producer) > (turn.lane, turn.producer)
          ORDER BY lane, producer LIMIT 1) AS next
    ), under_way AS MATERIALIZED (
      SELECT notification_id, producer
        FROM notification.intents
       WHERE notification_id = ANY ($7::text[])
         AND (status = 'open' AND reason IS NULL
              OR EXISTS (SELECT FROM (SELECT * FROM notification.routes
                                       WHERE routes.notification_id = intents.notification_id
                                       ORDER BY route_id LIMIT ${FIRST_ROUTES}) AS route
                          WHERE route.status = 'pending' AND attempt_count = 0
                            AND NOT EXISTS (SELECT FROM notification.holds
                                             WHERE is_paused AND (kind, name) IN (('channel', channel), ('producer', producer)))))
    ), busy AS MATERIALIZED (
      SELECT turn.lane, turn.producer,
             CASE WHEN turn.lane <> ${LANES.urgent}
                  THEN (SELECT count(*) FROM under_way WHERE under_way.producer = turn.producer) ELSE 0 END::int AS under_way
        FROM turn
       WHERE turn.lane = ANY ($5::smallint[])
    ), picked AS (
      SELECT intent.*
        FROM busy
       CROSS JOIN LATERAL (
         SELECT *, row_number() OVER (ORDER BY read_number) AS nth
           FROM notification.intents
          WHERE status = 'open' AND dispatched_at IS NULL AND due_at IS NULL
            AND intents.lane = busy.lane AND intents.producer = busy.producer AND notification_id <> ALL ($1::text[]) AND notification_id <> ALL ($2::text[])
          ORDER BY read_number
          LIMIT $3::int) AS intent
       WHERE nth <= $4::int - busy.under_way
       ORDER BY least(intent.lane, ${LANES.normal}), nth, read_number
       LIMIT $3::int
    )
    SELECT EXISTS (SELECT FROM busy WHERE under_way >= $4::int) AS "isFull",
           ARRAY(SELECT notification_id FROM under_way) AS "underWay",
           (SELECT count(*)::int FROM released) AS released,
           (SELECT coalesce(json_agg(json_build_object(
                     'notificationId', notification_id, 'notificationType', notification_type, 'producer', producer,
                     'audienceKind', entry -> 'audienceKind', 'idempotencyKey', idempotency_key,
                     'lane', lane, 'isUrgent', lane = ${LANES.urgent},
                     'recipients', jsonb_array_length(entry -> 'recipientUserIds'),
                     'userIds', CASE WHEN jsonb_array_length(entry -> 'recipientUserIds') <= ${MAX_RECIPIENTS_ACCEPTED_LOCALLY}
                                     THEN entry -> 'recipientUserIds' END,
                     'requestId', entry -> 'requestId', 'traceId', entry -> 'traceId',
                     'traceparent', entry -> 'traceparent') ORDER BY least(lane, ${LANES.normal}), nth, read_number), '[]')
              FROM picked) AS picked`,
};

// --- Mode `direct`: intents are delivered together, by the code that accepts one and makes its first attempts.

/** A recipient that is not found by then does not hold up the others, ms. */
const PATIENCE_MS = 2_000;

/** @returns the notifications that need a workflow: not decided, or with a route neither published nor skipped. */
export type DeliverTogether = (notificationIds: readonly string[]) => Promise<Set<string>>;

/** @returns delivers intents inside an activity; it throws ApplicationFailure of PostgreSQL, CancelledFailure. */
export function createDirectDelivery(
  resources: RouteResources & { acceptIntents: AcceptIntents },
): DeliverTogether {
  const { db, log, acceptIntents } = resources;
  const publisher = createPublisher(resources, true);

  return async (notificationIds) => {
    if (notificationIds.length === 0) return new Set();
    try {
      return await deliver(notificationIds);
    } catch (error) {
      if (isPostgresAway(error) || Context.current().cancellationSignal.aborted) throw error;
      // What spoils it for all is met by the workflow of the one that it belongs to.
      log.warn({ reason: reasonOf(error) }, 'intents could not be delivered together, each gets a workflow');
      return new Set(notificationIds);
    }
  };

  async function deliver(notificationIds: readonly string[]): Promise<Set<string>> {
    const patience = sleep(PATIENCE_MS, undefined, { ref: false });
    const open = new Set<string>();
    const accepted: RouteName[] = [];
    for (const [id, one] of await acceptIntents(notificationIds, { attempt: 0, patience })) {
      if ('error' in one && isPostgresAway(one.error)) throw one.error;
      if ('toPublish' in one) accepted.push(...one.toPublish);
      // Accepted by another process, which may have died; or with many routes.
      const isLeft =
        'error' in one ||
        (one.acceptance.outcome === 'accepted' && !('toPublish' in one && one.acceptance.routes));
      if (isLeft) open.add(id);
    }
    for (const { route, attempt } of await publisher.publish(() => loadEach(db, accepted)))
      if (attempt.status !== 'published' && attempt.status !== 'skipped') open.add(route.notificationId);
    return open;
  }
}

// --- Start of a workflow: the intent is durable when the call returns.

/** How long one start may take before it counts as failed, ms. */
const START_DEADLINE_MS = 5_000;

/** What is known of an intent where its workflow is started. */
export interface ToDispatch {
  notificationId: string;
  notificationType: string;
  producer: string;
  audienceKind: string;
  idempotencyKey: string;
  /** As its lane says. */
  isUrgent: boolean;
  recipients: number;
  /** Of those, unless there are many. */
  userIds?: string[] | null;
  requestId?: string | null;
  traceId?: string | null;
  traceparent?: string | null;
}

/**
 * Starts the intent's workflow, which finds by rows what was done before.
 *
 * @param isEager it begins in this process if that is free, past the task queue. The client and the worker share a connection then.
 * @returns false when it runs already. @throws what the Temporal client fails with.
 */
export async function startNotification(
  workflows: WorkflowClient,
  intent: ToDispatch,
  { dispatch, isEager }: { dispatch: DispatchMode; isEager: boolean },
): Promise<boolean> {
  const { notificationId, notificationType, producer, isUrgent, recipients } = intent;
  const input: NotificationInput = given({
    ...{ notificationId, notificationType },
    isLarge: recipients > MAX_RECIPIENTS_ACCEPTED_LOCALLY || undefined,
    dispatch: dispatch === 'child' && !isUrgent ? undefined : ('on_failure' as const),
  });
  const keys = { ...intent, idempotencyKey: searchableKey(intent.idempotencyKey) };
  const userIds = (intent.userIds ?? []).map(searchableKey);
  const start = () =>
    workflows.start(NOTIFICATION_WORKFLOW, {
      workflowId: notificationWorkflowId(notificationId),
      taskQueue: INTENT_TASK_QUEUE,
      args: [input],
      // The row says that there is something to do, whatever an earlier run came to.
      workflowIdReusePolicy: 'ALLOW_DUPLICATE',
      requestEagerStart: isEager,
      typedSearchAttributes: [...notificationAttributes(keys), ...userAttributes(userIds)],
      staticSummary: summaryOf(intent),
      // Ids, and nothing else of the content.
      staticDetails: detailsOf(
        `Producer: ${producer}`,
        `Key: \`${keys.idempotencyKey}\``,
        userIds.length > 0 && `To ${userIds.join(', ')}`,
      ),
      // A producer that floods the stream must not starve the others.
      priority: { fairnessKey: producer, ...(isUrgent ? BEFORE_NEW_ONES.priority : {}) },
    });
  try {
    await inTraceOf(intent, () => workflows.withDeadline(Date.now() + START_DEADLINE_MS, start));
    return true;
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) return false;
    throw error;
  }
}

function summaryOf({ notificationType, audienceKind, recipients }: ToDispatch): string {
  if (audienceKind === 'admin_email') return `${notificationType} to administrators`;
  return `${notificationType} to ${recipients} ${recipients === 1 ? 'recipient' : 'recipients'}`;
}

// --- Traces: each intent has its own trace in the service, which may last for days.

const TRACE_ID = /^(?!0{32})[0-9a-f]{32}$/;

/**
 * Works in its own span, which begins a trace: that of the reader would grow for as long as it reads. A link leads to the span
 * of the intent's `traceparent`, or else to the trace of its `trace_id` when that is one.
 */
function inTraceOf<T>(
  { notificationId, traceId, traceparent }: ToDispatch,
  work: () => Promise<T>,
): Promise<T> {
  const parent = parseTraceparent(traceparent ?? '');
  const known = traceId && TRACE_ID.test(traceId) ? traceId : INVALID_TRACEID;
  const linked = parent
    ? { ...parent, isRemote: true }
    : { traceId: known, spanId: INVALID_SPANID, traceFlags: TraceFlags.NONE };
  const links = [{ context: linked, attributes: { notification_id: notificationId } }];
  const options = { kind: SpanKind.CONSUMER, links };
  const run = (span: Span): Promise<T> => work().finally(() => span.end());
  const tracer = trace.getTracer('galaxy-notify');
  return context.with(ROOT_CONTEXT, () => tracer.startActiveSpan('process intent', options, run));
}
