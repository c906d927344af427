/**
 * What operators do to many: replay dead-lettered routes, cancel notifications, publish refused entries again, release routes
 * that waited, send mobile pushes again. What is chosen is written down when it is asked for, so that nothing that comes later
 * is touched; a workflow, `operation/<id>`, then deals with it at a rate. It outlives the process that started it, and is
 * paused, resumed and aborted by its id. Each kind says what matches a filter (lists.ts) and how one is dealt with.
 */
import { randomBytes } from 'node:crypto';
import { WorkflowUpdateFailedError } from '@temporalio/client';
import type { Given } from '../api/given.ts';
import { given } from '../api/given.ts';
import { explain } from '../api/errors.ts';
import { ROUTE_EXPIRED } from '../api/intent/outcome.ts';
import { runTransaction } from '../api/postgres-transaction.ts';
import type {
  OperationChange,
  OperationKind,
  OperationOrder,
  OperationState,
} from '../workflows/operation-contract.ts';
import {
  ABORT_OPERATION_UPDATE,
  OPERATION_STATE_QUERY,
  PAUSE_UPDATE,
  RESUME_UPDATE,
  operationStart,
  operationWorkflowId,
} from '../workflows/operation-contract.ts';
import type { Correction } from '../api/intent/mending.ts';
import { unknownFieldOf } from '../api/intent/mending.ts';
import { byAuthor, noteAction } from './actions.ts';
import type { Grouped, Listing, Page } from './lists.ts';
import {
  DEFAULT_REPLAY_RATE,
  MAX_ITEMS,
  MAX_REPLAY_RATE,
  chosenBy,
  groupsOf,
  listOf,
  rowOf,
} from './lists.ts';
import { NotFoundError, NothingToDoError, OperationFailedError } from './errors.ts';
import type {
  DeadLetterFilter,
  HeldFilter,
  HeldGroup,
  MalformedFilter,
  OpenFilter,
  OpenGroup,
  RefusedGroup,
  ReplayGroup,
} from './intent/intents.ts';
import { chooseDead, chooseHeld, chooseMalformed, chooseOpen } from './intent/intents.ts';
import type { FollowOptions } from './temporal.ts';
import { bounded, follow, makeUpdate, query, refusalIn, statusOf } from './temporal.ts';
import { chooseJobs } from './mobile-push/jobs.ts';
import type { JobGroup, MobileJobFilter } from './mobile-push/jobs.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';

export interface OperationRequest {
  requestedBy: string;
  reason?: string;
  /** Items a second, from 1 to MAX_REPLAY_RATE. Default: DEFAULT_REPLAY_RATE. */
  ratePerSecond?: number;
  /** Items at most, the oldest first. Default: MAX_ITEMS. */
  limit?: number;
}

interface OperationRow {
  operationId: string;
  kind: OperationKind;
  /** As it was asked for. */
  filter: Record<string, unknown>;
  /** `republish`: what it changes in each entry. */
  options: Correction | null;
  ratePerSecond: number;
  requestedBy: string;
  reason: string | null;
  createdAt: Date;
  total: number;
  /** Items that were dealt with. */
  done: number;
  /** Of those, the ones where there was something to do. */
  ordered: number;
  endedAt: Date | null;
  outcome: 'done' | 'aborted' | null;
  /** Who has paused it. */
  pausedBy: string | null;
}

export interface OperationView extends Given<Omit<OperationRow, 'outcome' | 'pausedBy'>> {
  /** `ended` with `outcome` done or aborted; `unknown` when no worker answers, or nothing runs. */
  status: OperationState['status'] | 'unknown';
  /** Who paused, resumed or aborted it last. */
  changedBy?: string;
  link?: string;
}

/** How the routes of an operation ended. */
export interface ReplayResult {
  published: number;
  skipped: number;
  /** Not sent any more, because they were too late. */
  expired: number;
  /** Spent their new budget as well. */
  diedAgain: number;
  /** Not settled yet. */
  open: number;
  /** Removed meanwhile, by retention. */
  gone: number;
}

/** An operation that is chosen, and that nothing has begun yet. */
export type ChosenOperation = Pick<OperationView, 'operationId' | 'total'>;

export function operationOperations(resources: OperatorResources) {
  const { db, temporal } = resources;

  return {
    /** What an operation with this filter would reach now, by what the items have in common. */
    preview: <Kind extends OperationKind>(
      kind: Kind,
      filter: OperationFilter<Kind>,
    ): Promise<OperationGroup<Kind>[]> => groupsOf(db, OPERATION_KINDS[kind].choose(filter)),

    /**
     * Starts an operation on all that matches now; what it does says its kind (OPERATION_TASK_QUEUES).
     *
     * @param correction of `republish`: each entry is corrected in this way.
     * @throws NotFoundError when nothing matches; OperationFailedError when a field to set does not exist in an intent.
     */
    begin,

    /** Newest first, with what their rows say. */
    async list(filter: { limit?: number } = {}): Promise<Page<OperationView>> {
      const page = await listOf<OperationRow, object, OperationRow>(db, OPERATIONS, filter, (row) => row);
      return { ...page, items: await Promise.all(page.items.map(viewOf)) };
    },

    show,

    /**
     * Begins nothing more until it is resumed: its row says so immediately, and its workflow gets a signal. @throws NotFoundError;
     * NothingToDoError when it has ended.
     */
    pause: (operationId: string, change: OperationChange = {}): Promise<OperationView> =>
      noted('pause', operationId, change, async () => {
        await openOne(operationId);
        if (!(await isRunning(operationId))) {
          throw new NothingToDoError(
            `operation ${operationId} does not run; galaxy-notify operations resume starts it again`,
          );
        }
        await db.query(HOLD, [operationId, change.requestedBy ?? 'operator']);
        return tellWorkflow(operationId, PAUSE_UPDATE, change);
      }),

    /**
     * Goes on, also with one that lost its workflow. @returns how it stands; while all workers are busy that may be `paused` still.
     * @throws as `pause`.
     */
    resume: (operationId: string, change: OperationChange = {}): Promise<OperationView> =>
      noted('resume', operationId, change, async () => {
        const { kind, ratePerSecond: rate, requestedBy, filter, reason } = await openOne(operationId);
        await db.query(RELEASE, [operationId]);
        // One that lost its workflow gets another.
        await startWorkflow({ operationId, kind, rate, requestedBy, filter, reason });
        return tellWorkflow(operationId, RESUME_UPDATE, change);
      }),

    /** Ends it, also one that lost its workflow: what is done stays done. @throws as `pause`. */
    abort: (operationId: string, change: OperationChange = {}): Promise<OperationView> =>
      noted('abort', operationId, change, async () => {
        await openOne(operationId);
        if (await isRunning(operationId)) {
          await db.query(HOLD, [operationId, change.requestedBy ?? 'operator']);
          return tellWorkflow(operationId, ABORT_OPERATION_UPDATE, change);
        }
        await db.query(END_WITHOUT_WORKFLOW, [operationId]);
        return show(operationId);
      }),

    /** @returns how it stood in the end, or when the time was up. */
    follow: (operationId: string, options: FollowOptions<OperationView>): Promise<OperationView> =>
      follow(
        () => show(operationId),
        ({ endedAt }) => endedAt !== undefined,
        { everyMs: 500, ...options },
      ),

    /** How routes stand that a replay or a cancellation gave an order about. */
    async outcome(operationId: string): Promise<ReplayResult> {
      const { rows } = await db.query<ReplayResult>(OUTCOME, [operationId]);
      return rows[0]!;
    },
  };

  function noted<T>(
    verb: string,
    operationId: string,
    { requestedBy }: OperationChange,
    change: () => Promise<T>,
  ): Promise<T> {
    return byAuthor(resources, { action: `operations ${verb}`, target: operationId, requestedBy }, change);
  }

  async function begin<Kind extends OperationKind>(
    kind: Kind,
    filter: OperationFilter<Kind>,
    { requestedBy, reason, ratePerSecond: wanted = DEFAULT_REPLAY_RATE, limit = MAX_ITEMS }: OperationRequest,
    correction?: Correction,
  ): Promise<ChosenOperation> {
    const unknown = correction && unknownFieldOf(correction);
    if (unknown !== undefined) throw new OperationFailedError(unknown);
    const { command: action, nothing, choose } = OPERATION_KINDS[kind];
    const ratePerSecond = Math.min(MAX_REPLAY_RATE, Math.max(1, Math.round(wanted)));
    const operationId = `${kind}-${new Date().toISOString().slice(0, 10)}-${randomBytes(4).toString('hex')}`;
    const total = await runTransaction(db, async (client) => {
      await client.query(INSERT_OPERATION, [
        operationId,
        kind,
        JSON.stringify(filter),
        ratePerSecond,
        requestedBy,
        reason ?? null,
        correction === undefined ? null : JSON.stringify(correction),
      ]);
      const { text, values } = chosenBy(choose(filter), operationId, limit);
      await client.query(text, values);
      const { rows } = await client.query<{ total: number }>(COUNT_CHOSEN, [operationId]);
      const [{ total: chosen }] = rows as [{ total: number }];
      if (chosen === 0) throw new NotFoundError(nothing);
      const detail = `${chosen} chosen${reason === undefined ? '' : `: ${reason}`}`;
      if (action !== undefined)
        await noteAction(client, { action, target: operationId, requestedBy, detail });
      return chosen;
    });
    try {
      await startWorkflow({ operationId, kind, rate: ratePerSecond, requestedBy, filter, reason });
    } catch (error) {
      throw new OperationFailedError(
        `operation ${operationId} is written down, and goes on by itself once Temporal can be reached, unless galaxy-notify ` +
          `operations abort ends it: ${explain(error)}`,
        { cause: error },
      );
    }
    return { operationId, total };
  }

  async function startWorkflow(order: OperationOrder): Promise<void> {
    const { workflowType, ...options } = operationStart(order);
    await bounded(temporal, () =>
      temporal.workflow.start(workflowType, { ...options, workflowIdConflictPolicy: 'USE_EXISTING' }),
    );
  }

  async function show(operationId: string): Promise<OperationView> {
    const row = await rowOf<OperationRow>(db, OPERATIONS, 'operation_id', operationId);
    if (!row) throw new NotFoundError(`there is no operation ${operationId}`);
    return viewOf(row);
  }

  async function viewOf({ outcome, pausedBy, ...row }: OperationRow): Promise<OperationView> {
    const workflowId = operationWorkflowId(row.operationId);
    const live =
      outcome === null ? await query<OperationState>(temporal, workflowId, OPERATION_STATE_QUERY) : undefined;
    // Of a pause the row knows first, and for longest.
    const isHeld = outcome === null && pausedBy !== null && (live?.status ?? 'running') === 'running';
    const changedBy = isHeld ? pausedBy : live?.changedBy;
    return {
      ...given(row),
      status: outcome ?? (isHeld ? 'paused' : (live?.status ?? 'unknown')),
      ...given({ changedBy }),
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

  async function isRunning(operationId: string): Promise<boolean> {
    return (await statusOf(resources, operationWorkflowId(operationId))) === 'RUNNING';
  }

  /** @returns how it stands, also when no worker has had a slot for it yet: it is taken when one has. */
  async function tellWorkflow(
    operationId: string,
    update: string,
    change: OperationChange,
  ): Promise<OperationView> {
    const handle = temporal.workflow.getHandle(operationWorkflowId(operationId));
    const call = () => handle.executeUpdate<OperationState, [OperationChange]>(update, { args: [change] });
    try {
      await makeUpdate(temporal, call);
    } catch (error) {
      if (error instanceof WorkflowUpdateFailedError) throw refusalIn(error);
    }
    return show(operationId);
  }
}

interface Matched {
  replay: { filter: DeadLetterFilter; group: ReplayGroup };
  cancel: { filter: OpenFilter; group: OpenGroup };
  republish: { filter: MalformedFilter; group: RefusedGroup };
  release: { filter: HeldFilter; group: HeldGroup };
  resend: { filter: MobileJobFilter; group: JobGroup };
}
/** What a kind is asked for. */
export type OperationFilter<Kind extends OperationKind> = Matched[Kind]['filter'];
/** What items of a kind that match have in common, and their number. */
export type OperationGroup<Kind extends OperationKind> = Matched[Kind]['group'];

export const OPERATION_KINDS: {
  readonly [Kind in OperationKind]: {
    /** Its command, as the list of actions names it; absent where what begins it is noted already. */
    command?: string;
    /** Why an operation is refused that reaches nothing. */
    nothing: string;
    choose(filter: OperationFilter<Kind>): Grouped;
  };
} = {
  replay: { command: 'replay', nothing: 'no dead-lettered route matches', choose: chooseDead },
  cancel: {
    command: 'notifications cancel',
    nothing: 'no notification that is under way or has not begun matches',
    choose: chooseOpen,
  },
  republish: {
    command: 'malformed republish',
    nothing: 'no refused entry matches',
    choose: chooseMalformed,
  },
  // A resume, which releases, is noted with its row.
  release: { nothing: 'no route waits', choose: chooseHeld },
  resend: { command: 'mobile replay', nothing: 'no job that can be replayed matches', choose: chooseJobs },
};

const INSERT_OPERATION = `
  INSERT INTO notification.operations (operation_id, kind, filter, rate, requested_by, reason, options, total, created_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, 0, statement_timestamp())`;

const COUNT_CHOSEN = `
  UPDATE notification.operations
     SET total = (SELECT count(*) FROM notification.operation_items WHERE operation_id = $1)
   WHERE operation_id = $1
  RETURNING total`;

const END_WITHOUT_WORKFLOW = `
  UPDATE notification.operations
     SET ended_at = clock_timestamp(), outcome = 'aborted'
   WHERE operation_id = $1 AND ended_at IS NULL`;

/** The workflow reads the row between two steps. $1 operation, $2 who pauses it. */
const HOLD = 'UPDATE notification.operations SET paused_by = $2 WHERE operation_id = $1 AND ended_at IS NULL';
const RELEASE = 'UPDATE notification.operations SET paused_by = NULL WHERE operation_id = $1';

const OPERATIONS: Listing<object> = {
  columns: `operation_id AS "operationId", kind, filter, total, rate AS "ratePerSecond", requested_by AS "requestedBy",
         reason, options, created_at AS "createdAt", done, ordered, ended_at AS "endedAt", outcome, paused_by AS "pausedBy"`,
  from: 'notification.operations',
  order: 'created_at DESC',
};

/** A route that was skipped because it came too late. */
const IS_EXPIRED = `coalesce(status = 'skipped' AND last_error_classification = '${ROUTE_EXPIRED}', false)`;
/** A route that died before the order, and that a replay has not taken up yet. */
const STILL_DEAD = "kind = 'replay' AND status = 'dead_letter' AND dead_lettered_at < operation.created_at";
const OUTCOME = `
  SELECT count(*) FILTER (WHERE status = 'published')::int AS published,
         count(*) FILTER (WHERE status = 'skipped' AND NOT is_late)::int AS skipped,
         count(*) FILTER (WHERE is_late)::int AS expired,
         count(*) FILTER (WHERE status = 'dead_letter' AND dead_lettered_at >= operation.created_at)::int AS "diedAgain",
         count(*) FILTER (WHERE status IN ('pending', 'failed') OR ${STILL_DEAD} AND NOT is_late)::int AS open,
         count(*) FILTER (WHERE status IS NULL AND kind = 'replay')::int AS gone
    FROM notification.operations AS operation
    JOIN notification.operation_items AS item USING (operation_id)
    LEFT JOIN notification.routes AS route
      ON route.notification_id = item.notification_id
         AND (item.route_id IS NULL OR route.route_id = item.route_id)
    LEFT JOIN notification.records AS record ON record.notification_id = item.notification_id
   CROSS JOIN LATERAL (
         SELECT ${IS_EXPIRED} OR coalesce(${STILL_DEAD} AND expires_at <= now(), false) AS is_late) AS lateness
   WHERE operation_id = $1 AND was_ordered IS NOT NULL AND (was_ordered OR kind = 'replay' AND is_late)`;
