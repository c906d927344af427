/**
 * What operators do to many: replay dead-lettered routes, cancel notifications. What is chosen is written down when it is
 * asked for, so that nothing that comes later is touched; a workflow, `operation/<id>`, then deals with it at a rate. It
 * outlives whoever started it, and is paused, resumed and aborted by its id.
 */
import { randomBytes } from 'node:crypto';
import { runTransaction } from '../../api/postgres-transaction.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import type {
  OperationChange,
  OperationInput,
  OperationKind,
  OperationState,
} from '../../workflows/intent/operation-contract.ts';
import {
  ABORT_OPERATION_UPDATE,
  OPERATION_STATE_QUERY,
  OPERATION_WORKFLOW,
  PAUSE_OPERATION_UPDATE,
  RESUME_OPERATION_UPDATE,
  operationWorkflowId,
} from '../../workflows/intent/operation-contract.ts';
import { DEFAULT_REPLAY_RATE, MAX_REPLAY_RATE } from '../bulk-replay.ts';
import { NotFoundError, NothingToDoError } from '../errors.ts';
import type { Candidate, Page } from '../lists.ts';
import { DEFAULT_LIMIT, conditions, pageOf, withoutNulls } from '../lists.ts';
import { statusOf } from '../live.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ANSWER_LIMIT_MS, ask, bounded, query } from '../temporal.ts';
import type { WaitOptions } from '../wait-until.ts';
import { waitUntil } from '../wait-until.ts';
import type { DeadLetterFilter } from './dead-letters.ts';
import { stillDead } from './dead-letters.ts';
import type { ReplayOutcome } from './replay.ts';
import { IS_EXPIRED } from './replay.ts';

/** Items of one operation. */
export const MAX_ITEMS = 1_000_000;

/** Which notifications are to be cancelled; all given filters must hold. Those without an open route are left alone. */
export interface OpenFilter {
  type?: string;
  producer?: string;
  /** Bounds of the time of acceptance, or of the first trouble of one that is not accepted yet. Both included. */
  since?: Date;
  until?: Date;
}

export interface OperationRequest {
  requestedBy: string;
  reason?: string;
  /** Items a second, from 1 to MAX_REPLAY_RATE. Default: DEFAULT_REPLAY_RATE. */
  ratePerSecond?: number;
  /** Items at most, the oldest first. Default: MAX_ITEMS. */
  limit?: number;
}

export interface OperationView {
  operationId: string;
  kind: OperationKind;
  /** As it was asked for. */
  filter: Record<string, unknown>;
  ratePerSecond: number;
  requestedBy: string;
  reason?: string;
  createdAt: Date;
  total: number;
  /** Items that were dealt with. */
  done: number;
  /** Of those, the ones where there was something to do. */
  ordered: number;
  endedAt?: Date;
  /** `ended` with `outcome` done or aborted; `unknown` when no worker answers, or nothing runs. */
  status: OperationState['status'] | 'unknown';
  /** Who paused, resumed or aborted it last. */
  changedBy?: string;
  link?: string;
}

/** An operation that is chosen, and that nothing has begun yet. */
export type ChosenOperation = Pick<OperationView, 'operationId' | 'total'>;

export function operationOperations(resources: OperatorResources) {
  const { db, temporal } = resources;

  return {
    /** What a cancellation with this filter would reach, by type and producer. */
    async previewCancel(filter: OpenFilter): Promise<OpenGroup[]> {
      const given = conditions(openConditions(filter));
      const { rows } = await db.query<OpenGroup>(PREVIEW_OPEN(given.where), given.values);
      return rows;
    },

    /**
     * Starts the replay of all dead-lettered routes that match now. One that dies again is not replayed twice.
     *
     * @throws NotFoundError when none matches.
     */
    replay: (filter: DeadLetterFilter, request: OperationRequest): Promise<ChosenOperation> => {
      const given = conditions(stillDead(filter));
      return begin('replay', filter, request, CHOOSE_DEAD(given.where), given.values);
    },

    /**
     * Starts the cancellation of all notifications that match and are under way now: routes that are not published yet are
     * skipped for good. Entries that nobody has read yet are not touched.
     *
     * @throws NotFoundError when none matches.
     */
    cancel: (filter: OpenFilter, request: OperationRequest): Promise<ChosenOperation> => {
      const given = conditions(openConditions(filter));
      return begin('cancel', filter, request, CHOOSE_OPEN(given.where), given.values);
    },

    /** Newest first, with what their rows say. */
    async list({ limit = DEFAULT_LIMIT }: { limit?: number } = {}): Promise<Page<OperationView>> {
      const { rows } = await db.query<OperationRow>(`${SELECT} ORDER BY created_at DESC LIMIT $1`, [
        limit + 1,
      ]);
      const page = pageOf(rows, limit, (row) => row);
      return { ...page, items: await Promise.all(page.items.map(viewOf)) };
    },

    show,

    /** Begins nothing more until it is resumed. @throws NotFoundError; NothingToDoError when it has ended. */
    pause: (operationId: string, change: OperationChange = {}) =>
      steer(operationId, PAUSE_OPERATION_UPDATE, change),

    /** Goes on, also with one that lost its workflow. @throws as `pause`. */
    async resume(operationId: string, change: OperationChange = {}): Promise<OperationView> {
      const view = await openOne(operationId);
      await start(view);
      return steer(operationId, RESUME_OPERATION_UPDATE, change);
    },

    /** Ends it: what is done stays done. @throws as `pause`. */
    abort: (operationId: string, change: OperationChange = {}) =>
      steer(operationId, ABORT_OPERATION_UPDATE, change),

    /** @returns how it stood in the end, or when the time was up. */
    async follow(
      operationId: string,
      { onProgress, ...wait }: WaitOptions & { onProgress?: (view: OperationView) => void },
    ): Promise<OperationView> {
      let view = await show(operationId);
      await waitUntil(
        async () => {
          view = await show(operationId);
          onProgress?.(view);
          return view.endedAt;
        },
        { everyMs: 500, ...wait },
      );
      return view;
    },

    /** How the routes stand that it gave an order about. */
    async outcome(operationId: string): Promise<ReplayOutcome> {
      const { rows } = await db.query<ReplayOutcome>(OUTCOME, [operationId]);
      return rows[0]!;
    },

    /** Notifications and routes that it gave an order about; of a cancellation, notifications as a whole. */
    async ordered(operationId: string): Promise<{ notificationId: string; routeId?: string }[]> {
      const { rows } = await db.query<{ notificationId: string; routeId: string | null }>(ORDERED, [
        operationId,
        MAX_ITEMS,
      ]);
      return rows.map(withoutNulls);
    },
  };

  async function begin(
    kind: OperationKind,
    filter: object,
    { requestedBy, reason, ratePerSecond: wanted = DEFAULT_REPLAY_RATE, limit = MAX_ITEMS }: OperationRequest,
    choose: string,
    values: unknown[],
  ): Promise<ChosenOperation> {
    const ratePerSecond = Math.min(MAX_REPLAY_RATE, Math.max(1, Math.round(wanted)));
    const operationId = `${kind}-${new Date().toISOString().slice(0, 10)}-${randomBytes(4).toString('hex')}`;
    const total = await runTransaction(db, async (client) => {
      const given = [...values, operationId, Math.min(limit, MAX_ITEMS)];
      await client.query(INSERT_OPERATION, [
        operationId,
        kind,
        JSON.stringify(filter),
        ratePerSecond,
        requestedBy,
        reason ?? null,
      ]);
      await client.query(choose, given);
      const { rows } = await client.query<{ total: number }>(COUNT_CHOSEN, [operationId]);
      if (rows[0]!.total === 0) throw new NotFoundError(NOTHING[kind]);
      return rows[0]!.total;
    });
    await start({ operationId, kind, ratePerSecond, requestedBy });
    return { operationId, total };
  }

  async function start({
    operationId,
    kind,
    ratePerSecond: rate,
    requestedBy,
  }: Pick<OperationView, 'operationId' | 'kind' | 'ratePerSecond' | 'requestedBy'>): Promise<void> {
    await bounded(temporal, () =>
      temporal.workflow.start(OPERATION_WORKFLOW, {
        workflowId: operationWorkflowId(operationId),
        taskQueue: INTENT_TASK_QUEUE,
        args: [{ operationId, kind, rate } satisfies OperationInput],
        workflowIdConflictPolicy: 'USE_EXISTING',
        staticSummary: `${kind} of many, asked for by ${requestedBy}`,
      }),
    );
  }

  async function show(operationId: string): Promise<OperationView> {
    const { rows } = await db.query<OperationRow>(`${SELECT} WHERE operation_id = $1`, [operationId]);
    if (!rows[0]) throw new NotFoundError(`there is no operation ${operationId}`);
    return viewOf(rows[0]);
  }

  async function viewOf({ outcome, ...row }: OperationRow): Promise<OperationView> {
    const workflowId = operationWorkflowId(row.operationId);
    const live =
      outcome === null ? await query<OperationState>(temporal, workflowId, OPERATION_STATE_QUERY) : undefined;
    return {
      ...withoutNulls(row),
      status: outcome ?? live?.status ?? 'unknown',
      ...(live?.changedBy === undefined ? {} : { changedBy: live.changedBy }),
      ...linkField(resources, workflowId),
    };
  }

  async function openOne(operationId: string): Promise<OperationView> {
    const view = await show(operationId);
    if (view.endedAt === undefined) return view;
    throw new NothingToDoError(
      `operation ${operationId} is ${view.status} since ${view.endedAt.toISOString()}`,
    );
  }

  async function steer(operationId: string, update: string, change: OperationChange): Promise<OperationView> {
    await openOne(operationId);
    const workflowId = operationWorkflowId(operationId);
    if ((await statusOf(resources, workflowId)) !== 'RUNNING') {
      throw new NothingToDoError(
        `operation ${operationId} does not run; galaxy-notify operations resume starts it again`,
      );
    }
    await ask(
      temporal,
      {
        workflowId,
        limitMs: ANSWER_LIMIT_MS,
        ifSilent: 'it is taken once one runs, see operations show',
        ifNotRunning: 'galaxy-notify operations resume starts it again',
      },
      (handle) => handle.executeUpdate<OperationState, [OperationChange]>(update, { args: [change] }),
    );
    return show(operationId);
  }
}

const NOTHING: Record<OperationKind, string> = {
  replay: 'no dead-lettered route matches',
  cancel: 'no notification that is under way matches',
};

export interface OpenGroup {
  type: string;
  producer: string;
  notifications: number;
  oldest: Date;
  newest: Date;
}

interface OperationRow extends Omit<OperationView, 'reason' | 'endedAt' | 'status' | 'changedBy' | 'link'> {
  reason: string | null;
  endedAt: Date | null;
  outcome: 'done' | 'aborted' | null;
}

const openConditions = ({ type, producer, since, until }: OpenFilter): Candidate[] => [
  ['notification_type = ?', type],
  ['producer = ?', producer],
  ['at >= ?', since],
  ['at <= ?', until],
];

/** Accepted ones with an open route, and those that wait to be accepted; each once, which is what UNION does. */
const OPEN = `(
           SELECT notification_id, notification_type, producer, accepted_at AS at
             FROM notification.routes
             JOIN notification.records USING (notification_id)
            WHERE next_attempt_at IS NOT NULL
            UNION
           SELECT notification_id, notification_type, producer, waiting_since
             FROM notification.waiting_intents) AS open`;

const PREVIEW_OPEN = (where: string) => `
  SELECT notification_type AS type, producer, count(*)::int AS notifications, min(at) AS oldest, max(at) AS newest
    FROM ${OPEN}
   ${where}
   GROUP BY notification_type, producer
   ORDER BY count(*) DESC`;

const INSERT_OPERATION = `
  INSERT INTO notification.operations (operation_id, kind, filter, rate, requested_by, reason, total, created_at)
  VALUES ($1, $2, $3, $4, $5, $6, 0, statement_timestamp())`;

const COUNT_CHOSEN = `
  UPDATE notification.operations
     SET total = (SELECT count(*) FROM notification.operation_items WHERE operation_id = $1)
   WHERE operation_id = $1
  RETURNING total`;

/** The parameters after those of the filter: the operation, and items at most. */
const choice = (items: string, where: string) => {
  const given = (where.match(/\$\d+/g) ?? []).length;
  return `
  INSERT INTO notification.operation_items (operation_id, position, notification_id, route_id)
  SELECT $${given + 1}, row_number() OVER (ORDER BY at, notification_id, route_id), notification_id, route_id
    FROM (${items}
           ${where}
           ORDER BY at, notification_id, route_id
           LIMIT $${given + 2}) AS chosen`;
};

const CHOOSE_DEAD = (where: string) =>
  choice(
    `SELECT route.notification_id, route_id, dead_lettered_at AS at
            FROM notification.routes AS route
            JOIN notification.records AS record USING (notification_id)`,
    where,
  );

const CHOOSE_OPEN = (where: string) =>
  choice(`SELECT notification_id, NULL AS route_id, at FROM ${OPEN}`, where);

const SELECT = `
  SELECT operation_id AS "operationId", kind, filter, total, rate AS "ratePerSecond", requested_by AS "requestedBy",
         reason, created_at AS "createdAt", done, ordered, ended_at AS "endedAt", outcome
    FROM notification.operations`;

/** What of a replay is dead as before has not been taken up yet, or is too late. */
const OUTCOME = `
  SELECT count(*) FILTER (WHERE status = 'published')::int AS published,
         count(*) FILTER (WHERE status = 'skipped' AND NOT is_late)::int AS skipped,
         count(*) FILTER (WHERE is_late)::int AS expired,
         count(*) FILTER (WHERE status = 'dead_letter' AND dead_lettered_at >= operation.created_at)::int AS "diedAgain",
         count(*) FILTER (WHERE status IN ('pending', 'failed')
                             OR status = 'dead_letter' AND dead_lettered_at < operation.created_at
                                AND kind = 'replay' AND NOT is_late)::int AS open,
         count(*) FILTER (WHERE status IS NULL AND kind = 'replay')::int AS gone
    FROM notification.operations AS operation
    JOIN notification.operation_items AS item USING (operation_id)
    LEFT JOIN notification.routes AS route
      ON route.notification_id = item.notification_id
         AND (item.route_id IS NULL OR route.route_id = item.route_id)
    LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
   CROSS JOIN LATERAL (
         SELECT ${IS_EXPIRED}
                OR coalesce(kind = 'replay' AND status = 'dead_letter' AND dead_lettered_at < operation.created_at
                            AND expires_at <= now(), false) AS is_late) AS lateness
   WHERE operation_id = $1 AND was_ordered IS NOT NULL AND (was_ordered OR kind = 'replay' AND is_late)`;

const ORDERED = `
  SELECT notification_id AS "notificationId", route_id AS "routeId"
    FROM notification.operation_items
   WHERE operation_id = $1 AND was_ordered
   ORDER BY position
   LIMIT $2`;
