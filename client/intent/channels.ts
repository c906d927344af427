/**
 * Channels and producers: their state, and pausing and resuming them. The workflow of each
 * (workflows/intent/channel-contract.ts) releases waiting routes after a resume.
 *
 * The weight of a producer is its share of what Temporal hands out: that of its fairness key (activities/intent/dispatch.ts) on
 * the queues of intents. The server keeps weights, so they hold for all processes, and over restarts.
 */
import type { Client } from '@temporalio/client';
import type { temporal as protos } from '@temporalio/proto';
import type { Producer } from '../../api/intent/catalog.ts';
import { ACTIVITY_TASKS, WORKFLOW_TASKS } from '../../api/task-queue-types.ts';
import type { Hold, HoldKey, HoldRequest, ResumeRequest } from '../../workflows/hold-contract.ts';
import {
  PAUSE_UPDATE,
  RESUME_UPDATE,
  SET_HOLD,
  holdValues,
  problemOfHold,
} from '../../workflows/hold-contract.ts';
import type { ChannelState, HeldName } from '../../workflows/intent/channel-contract.ts';
import {
  CHANNEL_NAMES,
  channelStateOf,
  channelWorkflowId,
  heldProducer,
  holdKeyOf,
} from '../../workflows/intent/channel-contract.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { byAuthor } from '../actions.ts';
import { OperationFailedError, causeOf, isRefusal } from '../errors.ts';
import type { WithoutNulls } from '../lists.ts';
import { withoutNulls } from '../lists.ts';
import type { OperatorResources } from '../resources.ts';
import { linkField } from '../resources.ts';
import { ANSWER_LIMIT_MS, QUERY_LIMIT_MS, ask, bounded } from '../temporal.ts';

/** A worker with a backlog before it takes an update when its next slot is free, ms. */
const RESUME_LIMIT_MS = 30_000;

interface HeldRow {
  status: ChannelState['status'];
  reason: string | null;
  /** Who changed it last. */
  changedBy: string | null;
  /** When it was changed last; null when it never was. */
  since: Date | null;
  /** At which waiting routes are released while it drains. */
  ratePerSecond: number | null;
  /** Routes that will still be tried. */
  openRoutes: number;
}

/** The state of a channel or a producer. */
export interface HeldView extends WithoutNulls<HeldRow> {
  /** Of a producer: its share of what Temporal hands out, where others have 1. Absent when Temporal does not answer. */
  weight?: number;
  link?: string;
}

/** Both channels. */
export const channelOperations = (resources: OperatorResources) =>
  heldOperations(resources, 'channel', CHANNEL_NAMES);

/** The producers of the catalog. A paused one is still accepted; nothing of it is published. */
export const producerOperations = (resources: OperatorResources) => ({
  ...heldOperations(resources, 'producer', resources.catalog.producers),

  /**
   * Sets how large the producer's share is of what waits in Temporal: with 0.2, a fifth of what another one gets. Holds for
   * what waits from then on, where the server has fairness switched on.
   *
   * @param request its `weight` is from 0.001 to 1,000; 1 is the usual one.
   * @throws OperationFailedError when the server has no weights.
   */
  weigh: (producer: Producer, request: { weight: number; requestedBy: string }) =>
    setWeight(resources, producer, request),
});

function heldOperations<Noun extends 'channel' | 'producer', Name extends string>(
  resources: OperatorResources,
  noun: Noun,
  names: readonly Name[],
) {
  const heldAs = (name: Name) => (noun === 'producer' ? heldProducer(name) : name) as HeldName;

  return {
    /** The state of each, with the number of routes that it would publish. */
    async list(): Promise<(HeldView & Record<Noun, Name>)[]> {
      const [{ rows }, weights] = await Promise.all([
        resources.db.query<HeldRow & { name: Name }>(LIST[noun], [names]),
        noun === 'producer' ? weightsOf(resources) : undefined,
      ]);
      return rows.map(({ name, ...row }) => ({
        [noun]: name,
        ...(weights ? { weight: weights.get(name) ?? USUAL_WEIGHT } : {}),
        ...withoutNulls(row),
        ...linkField(resources, channelWorkflowId(heldAs(name))),
      })) as (HeldView & Record<Noun, Name>)[];
    },

    /**
     * Pauses it. Routes wait without spending their budget; the pause lasts until an operator resumes it, over restarts.
     *
     * @returns its state: no new publication begins any more, also when its workflow has not answered.
     * @throws OperationFailedError when the workflow refuses it; what PostgreSQL throws.
     */
    pause: (name: Name, request: HoldRequest = {}) => pause(resources, heldAs(name), request),

    /**
     * Resumes it: waiting routes are released at `ratePerSecond`, those that wait longest first.
     *
     * @returns its state while it drains, or open.
     * @throws OperationFailedError when its workflow does not take it within 30 s.
     */
    resume: (name: Name, request: ResumeRequest = {}): Promise<ChannelState> =>
      tell(resources.temporal, RESUME_UPDATE, heldAs(name), request, RESUME_LIMIT_MS),
  };
}

/** Workers go by the row, so it is written first: the pause holds from then on, whatever Temporal has to do. */
async function pause(
  { db, temporal }: OperatorResources,
  name: HeldName,
  request: HoldRequest,
): Promise<ChannelState> {
  const problem = problemOfHold(request);
  if (problem !== undefined) throw new OperationFailedError(problem);
  const { rows } = await db.query<{ hold: Hold }>(SET_HOLD, holdValues(holdKeyOf(name), true, request));
  try {
    return await tell(temporal, PAUSE_UPDATE, name, request, ANSWER_LIMIT_MS);
  } catch (error) {
    if (isRefusal(error)) throw error;
    // The workflow finds the row.
    return channelStateOf(name, rows[0]!.hold);
  }
}

/** Tells the workflow that steers by the hold. A resume it makes itself, since it releases what waited. @throws as `ask`. */
const tell = (
  temporal: Client,
  update: string,
  name: HeldName,
  request: ResumeRequest,
  limitMs: number,
): Promise<ChannelState> =>
  ask(
    temporal,
    {
      ...{ workflowId: channelWorkflowId(name), limitMs },
      ifSilent: `the change may still be made once one runs, see ${holdKeyOf(name).kind}s list`,
      ifNotRunning: 'the service starts it when it starts',
    },
    (handle) => handle.executeUpdate<ChannelState, [ResumeRequest]>(update, { args: [request] }),
  );

/** @param routes SQL of a table of routes with a column that is named as the kind. */
const listOf = (kind: HoldKey['kind'], routes: string): string => `
  SELECT wanted.name, reason, changed_by AS "changedBy", changed_at AS since, coalesce(open.routes, 0) AS "openRoutes",
         CASE WHEN is_paused THEN 'paused' WHEN drain_rate IS NOT NULL THEN 'draining' ELSE 'open' END AS status,
         drain_rate AS "ratePerSecond"
    FROM unnest($1::text[]) WITH ORDINALITY AS wanted (name, position)
    LEFT JOIN notification.holds ON kind = '${kind}' AND holds.name = wanted.name
    LEFT JOIN (SELECT ${kind} AS name, count(*)::int AS routes
                 FROM ${routes}
                WHERE next_attempt_at IS NOT NULL
                GROUP BY ${kind}) AS open ON open.name = wanted.name
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
