/**
 * What operators pause and resume: channels, producers, and the reader. A row of `notification.holds` says which channels and
 * producers are paused, and publication goes by it. A resume starts an operation, which releases the routes that wait.
 *
 * The weight of a producer is its share of what Temporal hands out: that of its fairness key (activities/intent/dispatch.ts) on
 * the queues of intents. The server keeps weights, so they hold for all processes, and over restarts.
 */
import { randomUUID } from 'node:crypto';
import type { temporal as protos } from '@temporalio/proto';
import type { Given } from '../../api/given.ts';
import { given } from '../../api/given.ts';
import type { Producer } from '../../api/intent/catalog.ts';
import { CHANNELS } from '../../api/intent/catalog.ts';
import { ACTIVITY_TASKS, WORKFLOW_TASKS } from '../../api/task-queue-types.ts';
import { problemOfTexts } from '../../workflows/details.ts';
import type { BridgeProgress } from '../../workflows/intent/contract.ts';
import { INTENT_TASK_QUEUE, bridgeWorkflowId } from '../../workflows/intent/contract.ts';
import { operationWorkflowId } from '../../workflows/operation-contract.ts';
import { byAuthor } from '../actions.ts';
import { NotFoundError, OperationFailedError, causeOf } from '../errors.ts';
import { operationOperations } from '../operations.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import {
  QUERY_LIMIT_MS,
  bounded,
  dateOf,
  decoded,
  describe,
  follow,
  pendingActivityOf,
} from '../temporal.ts';

/** Waiting routes per second that a resume releases unless the operator says otherwise. */
export const DEFAULT_RELEASE_RATE = 50;

export interface HoldRequest {
  /** Shown to other operators. */
  reason?: string | undefined;
  /** Default: `operator`. */
  requestedBy?: string | undefined;
}

export interface ResumeRequest extends HoldRequest {
  /** Waiting routes that are released per second, from 1 to MAX_REPLAY_RATE. Default: DEFAULT_RELEASE_RATE. */
  ratePerSecond?: number;
}

interface HeldRow {
  /** `draining`: open for new routes, and those that waited are still being released. */
  status: 'open' | 'paused' | 'draining';
  reason: string | null;
  /** Who changed it last. */
  changedBy: string | null;
  /** When it was changed last; null when it never was. */
  since: Date | null;
  /** The operation that releases waiting routes, and its rate. */
  operationId: string | null;
  ratePerSecond: number | null;
  /** Routes that will still be tried. */
  openRoutes: number;
}

/** The state of a channel or a producer. */
export interface HeldView extends Given<HeldRow> {
  /** Of a producer: its share of what Temporal hands out, where others have 1. Absent when Temporal does not answer. */
  weight?: number;
  /** To the operation. */
  link?: string;
}

/** Both channels. */
export const channelOperations = (resources: OperatorResources) =>
  heldOperations(resources, 'channel', CHANNELS);

/** The producers of the catalog. A paused one is still accepted; nothing of it is published. */
export const producerOperations = (resources: OperatorResources) => {
  const { list, ...others } = heldOperations(resources, 'producer', resources.catalog.producers);
  return {
    ...others,

    /** The state and the weight of each. */
    async list() {
      const [views, weights] = await Promise.all([list(), weightsOf(resources)]);
      if (!weights) return views;
      return views.map((view) => ({ ...view, weight: weights.get(view.producer) ?? USUAL_WEIGHT }));
    },

    /**
     * Sets how large the producer's share is of what waits in Temporal: with 0.2, a fifth of what another one gets. Holds for
     * what waits from then on, where the server has fairness switched on.
     *
     * @param request its `weight` is from 0.001 to 1,000; 1 is the usual one.
     * @throws OperationFailedError when the server has no weights.
     */
    weigh: (producer: Producer, request: { weight: number; requestedBy: string }) =>
      setWeight(resources, producer, request),
  };
};

function heldOperations<Noun extends 'channel' | 'producer', Name extends string>(
  resources: OperatorResources,
  noun: Noun,
  names: readonly Name[],
) {
  const { db } = resources;
  type View = HeldView & Record<Noun, Name>;
  return {
    /** The state of each, with the number of routes that it would publish. */
    list: (): Promise<View[]> => viewsOf(names),

    /**
     * Pauses it. Routes wait without spending their budget; the pause lasts until an operator resumes it, over restarts.
     *
     * @returns its state: no new publication begins any more.
     * @throws OperationFailedError for a text that cannot be stored; what PostgreSQL throws.
     */
    pause: (name: Name, request: HoldRequest = {}): Promise<View> => change(name, true, request),

    /**
     * Resumes it: waiting routes are released at `ratePerSecond`, those that wait longest first, MAX_ITEMS at most. Doing so
     * again sets another rate, takes the rest, and makes good what a process left that died before it had begun the release: the
     * channel is open then, and routes that have waited look again a day after they began to wait.
     *
     * @returns its state while it drains, or open.
     * @throws as `pause`; OperationFailedError when Temporal cannot be reached: they are released once it can.
     */
    async resume(
      name: Name,
      { ratePerSecond = DEFAULT_RELEASE_RATE, ...request }: ResumeRequest = {},
    ): Promise<View> {
      const view = await change(name, false, request);
      const order = { requestedBy: 'operator', ...given(request), ratePerSecond };
      try {
        // Not in the statement of the change: an attempt that began before it may have found the pause, and its route is
        // among these.
        await operationOperations(resources).begin('release', { [noun]: name }, order);
      } catch (error) {
        if (error instanceof NotFoundError) return view;
        throw error;
      }
      return viewOf(name);
    },
  };

  async function change(name: Name, isPaused: boolean, request: HoldRequest): Promise<View> {
    const problem = problemOfTexts(request, 'reason', 'requestedBy');
    if (problem !== undefined) throw new OperationFailedError(problem);
    const { reason = null, requestedBy = 'operator' } = request;
    await db.query(SET_HOLD, [noun, name, isPaused, reason, requestedBy]);
    return viewOf(name);
  }

  async function viewsOf(some: readonly Name[]): Promise<View[]> {
    const { rows } = await db.query<HeldRow & { name: Name }>(LIST[noun], [some]);
    return rows.map(({ name, ...row }) => ({
      ...{ [noun]: name, ...given(row) },
      ...(row.operationId === null ? {} : linkField(resources, operationWorkflowId(row.operationId))),
    })) as View[];
  }

  async function viewOf(name: Name): Promise<View> {
    return (await viewsOf([name]))[0]!;
  }
}

/**
 * Changes the row, and notes the author among the actions of operators unless the row says the same already. What an earlier resume
 * was still releasing is left to the next one, unless that release is paused: its workflow waits for an operator. $1 kind, $2
 * name, $3 whether it is paused, $4 why, $5 by whom.
 */
const SET_HOLD = `
  WITH noted AS (
    INSERT INTO notification.operator_actions (action, target, requested_by, detail)
    SELECT $1::text || CASE WHEN $3 THEN 's pause' ELSE 's resume' END, $2, $5, $4
     WHERE NOT EXISTS (
           SELECT FROM notification.holds
            WHERE kind = $1 AND name = $2 AND is_paused = $3 AND changed_by = $5 AND reason IS NOT DISTINCT FROM $4)
  ), ended AS (
    UPDATE notification.operations SET ended_at = clock_timestamp(), outcome = 'aborted'
     WHERE kind = 'release' AND ended_at IS NULL AND paused_by IS NULL AND filter ->> $1 = $2
  )
  INSERT INTO notification.holds (kind, name, is_paused, reason, changed_by, changed_at)
  VALUES ($1::text, $2::text, $3::boolean, $4::text, $5::text, clock_timestamp())
  ON CONFLICT (kind, name) DO UPDATE
     SET is_paused = excluded.is_paused, reason = excluded.reason, changed_by = excluded.changed_by,
         changed_at = excluded.changed_at`;

/** @param routes SQL of a table of routes with a column that is named as the kind. */
const listOf = (kind: 'channel' | 'producer', routes: string): string => `
  SELECT wanted.name, holds.reason, changed_by AS "changedBy", changed_at AS since, coalesce(open.routes, 0) AS "openRoutes",
         CASE WHEN is_paused THEN 'paused' WHEN rate IS NOT NULL THEN 'draining' ELSE 'open' END AS status,
         operation_id AS "operationId", rate AS "ratePerSecond"
    FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, position)
    LEFT JOIN notification.holds ON holds.kind = '${kind}' AND holds.name = wanted.name
    LEFT JOIN (SELECT ${kind} AS name, count(*)::int AS routes
                 FROM ${routes}
                WHERE next_attempt_at IS NOT NULL
                GROUP BY ${kind}) AS open ON open.name = wanted.name
    LEFT JOIN LATERAL (
         SELECT operation_id, rate
           FROM notification.operations
          WHERE kind = 'release' AND ended_at IS NULL AND filter ->> '${kind}' = wanted.name
          ORDER BY created_at DESC
          LIMIT 1) AS release ON true
   ORDER BY position`;

const LIST = {
  channel: listOf('channel', 'notification.routes'),
  producer: listOf('producer', 'notification.routes JOIN notification.records USING (notification_id)'),
};

/** Temporal takes what is below the least for it; above the most, all others stand still. */
export const LEAST_WEIGHT = 0.001;
export const MOST_WEIGHT = 1_000;
/** Weight of a producer without a configured one. */
export const USUAL_WEIGHT = 1;

const NOT_TAKEN = 'Temporal took no weight; it has weights of producers from 1.30 on';

type QueueConfig = protos.api.taskqueue.v1.ITaskQueueConfig | null | undefined;

/**
 * Sets the weight of a producer, on both queues.
 *
 * @throws OperationFailedError when the server has no weights; nothing is changed then.
 */
function setWeight(
  resources: OperatorResources,
  producer: Producer,
  { weight, requestedBy }: { weight: number; requestedBy: string },
): Promise<void> {
  const { temporal, namespace } = resources;
  const action = { action: 'producers weight', target: producer, requestedBy, detail: String(weight) };
  return byAuthor(resources, action, async () => {
    // The first one is where servers without weights refuse.
    for (const taskQueueType of [WORKFLOW_TASKS, ACTIVITY_TASKS]) {
      const change = {
        ...{ namespace, identity: requestedBy, taskQueue: INTENT_TASK_QUEUE, taskQueueType },
        ...(weight === USUAL_WEIGHT
          ? { unsetFairnessWeightOverrides: [producer] }
          : { setFairnessWeightOverrides: { [producer]: weight } }),
      };
      const { config } = await bounded(temporal, () =>
        temporal.workflowService.updateTaskQueueConfig(change),
      ).catch((cause: unknown) => {
        throw new OperationFailedError(`${NOT_TAKEN}: ${causeOf(cause)}`, { cause });
      });
      // A server that does not know them leaves them out without a word.
      if ((weightIn(config, producer) ?? USUAL_WEIGHT) !== weight) throw new OperationFailedError(NOT_TAKEN);
    }
  });
}

/** @returns the weight of each producer with a configured one; undefined when the server does not answer. */
async function weightsOf({
  temporal,
  namespace,
}: OperatorResources): Promise<ReadonlyMap<string, number> | undefined> {
  try {
    const { config } = await bounded(
      temporal,
      () =>
        temporal.workflowService.describeTaskQueue({
          namespace,
          taskQueue: { name: INTENT_TASK_QUEUE },
          taskQueueType: WORKFLOW_TASKS,
          reportConfig: true,
        }),
      QUERY_LIMIT_MS,
    );
    const names = Object.keys(config?.fairnessWeightOverrides ?? {});
    return new Map(names.map((name) => [name, weightIn(config, name)!]));
  } catch {
    return undefined;
  }
}

/** The server keeps 32 bits of it, which are no more than seven digits. */
function weightIn(config: QueueConfig, producer: string): number | undefined {
  const weight = config?.fairnessWeightOverrides?.[producer];
  return weight === undefined ? undefined : Number(weight.toPrecision(6));
}

// --- The reader of the intent stream, as it shows on the pending activity of its workflow. Pausing is Temporal's pause of
// that activity: it is part of the workflow's state and so survives restarts of the service and of Temporal.

/** Activity type, as activities/intent/reader.ts names it. */
const READER = 'bridgeStream';

/** `temporal.api.enums.v1.PendingActivityState`; the enum is not among the client's exports. */
const STATES = ['unknown', 'waiting', 'reading', 'stopping', 'paused', 'pausing'] as const;

/** A reader looks every two seconds whether it is to pause; one that has died is noticed by others within some ten. */
const CONFIRMATION_LIMIT_MS = 25_000;

const isReader = ({ activityType }: { activityType?: { name?: string | null } | null }): boolean =>
  activityType?.name === READER;

export interface BridgeStatus {
  stream: string;
  workflowId: string;
  /**
   * `reading`: a worker has it. `waiting`: no worker has it, because none runs or the last attempt failed. `pausing`:
   * pause was requested and the reader has not stopped yet. `stopping`: cancellation was requested.
   */
  state: (typeof STATES)[number] | 'not running';
  isPaused: boolean;
  /** Who paused it, since when, and why, as Temporal kept it. */
  pause?: { by: string; since?: Date; reason: string };
  /** Which attempt at reading this is; it grows with each handover. */
  attempt?: number;
  /** The process that has or last had it: pid@host. */
  worker?: string;
  /** Of the last heartbeat, so by a reader that stopped from before it did. */
  progress?: BridgeProgress;
  heartbeatAt?: Date;
  /** Why the attempt before ended; a hand-over in good order is no failure. */
  lastFailure?: string;
  nextAttemptAt?: Date;
  link?: string;
}

export function bridgeOperations(resources: OperatorResources) {
  const { temporal, namespace, intentsStream } = resources;
  const workflowId = bridgeWorkflowId(intentsStream);

  return {
    status,

    /**
     * Stops intake: entries wait in Redis, accepted notifications are still delivered. Lasts until an operator resumes it.
     *
     * @returns the status once the reader has stopped.
     * @throws NotFoundError when no reader's workflow runs; OperationFailedError when it does not stop within 25 s.
     */
    pause: (request: { reason: string; requestedBy: string }) => change('pause', request),

    /**
     * Lets the reader continue from its offset.
     *
     * @returns the status once the pause is over.
     * @throws as `pause`.
     */
    resume: (request: { requestedBy: string }) => change('resume', request),
  };

  async function change(
    verb: 'pause' | 'resume',
    { requestedBy, reason }: { requestedBy: string; reason?: string },
  ): Promise<BridgeStatus> {
    const { workflowService } = temporal;
    const isPause = verb === 'pause';
    const id = (await pendingActivities())?.find(isReader)?.activityId;
    if (!id) throw new NotFoundError(`${workflowId} is not running; the service starts it when it starts`);
    const reader = { namespace, execution: { workflowId }, identity: requestedBy, id };
    const call = (): Promise<unknown> =>
      isPause
        ? workflowService.pauseActivity({ ...reader, ...given({ reason }), requestId: randomUUID() })
        : workflowService.unpauseActivity(reader);
    const action = { action: `bridge ${verb}`, requestedBy, detail: reason };
    await byAuthor(resources, action, () => bounded(temporal, call));
    const isDone = ({ state, isPaused }: BridgeStatus) => (isPause ? state === 'paused' : !isPaused);
    const last = await follow(status, isDone, { limitMs: CONFIRMATION_LIMIT_MS });
    if (isDone(last)) return last;
    throw new OperationFailedError(
      `Temporal took the ${verb}, and after ${CONFIRMATION_LIMIT_MS / 1_000} s it still does not show; see bridge status`,
    );
  }

  /** @throws what the Temporal client throws when the server does not answer. */
  async function status(): Promise<BridgeStatus> {
    const notRunning: BridgeStatus = {
      ...{ stream: intentsStream, workflowId, state: 'not running', isPaused: false },
      ...linkField(resources, workflowId),
    };
    const pending = await pendingActivities();
    if (pending === undefined) return notRunning;
    const reader = pending.find(isReader);
    // Between two attempts of the workflow itself, for a moment.
    if (!reader) return { ...notRunning, state: 'waiting' };

    const { pauseInfo } = reader;
    const { id: _, type: _type, ...activity } = await pendingActivityOf(temporal, reader);
    return {
      ...{ ...notRunning, ...activity },
      state: STATES[reader.state ?? 0] ?? 'unknown',
      ...given({
        pause:
          pauseInfo &&
          given({
            by: pauseInfo.manual?.identity ?? 'a rule',
            reason: pauseInfo.manual?.reason ?? '',
            since: dateOf(pauseInfo.pauseTime),
          }),
        worker: reader.lastWorkerIdentity || undefined,
        progress: await decoded<BridgeProgress>(temporal, reader.heartbeatDetails?.payloads?.[0]),
        heartbeatAt: dateOf(reader.lastHeartbeatTime),
      }),
    };
  }

  /** Undefined when the workflow does not run. */
  async function pendingActivities() {
    const described = await describe(temporal, workflowId);
    return described?.status.name === 'RUNNING' ? (described.raw.pendingActivities ?? []) : undefined;
  }
}
