/**
 * How large a producer's share is of what Temporal hands out: the weight of its fairness key (activities/intent/dispatch.ts) on
 * the queues of intents. The server keeps weights, so they hold for all processes, and over restarts.
 */
import { ServiceError, isGrpcServiceError } from '@temporalio/client';
import type { temporal as protos } from '@temporalio/proto';
import { ACTIVITY_TASKS, WORKFLOW_TASKS } from '../../api/task-queue-types.ts';
import type { Producer } from '../../api/intent/catalog.ts';
import { INTENT_TASK_QUEUE } from '../../workflows/intent/contract.ts';
import { byAuthor } from '../actions.ts';
import { OperationFailedError } from '../errors.ts';
import type { OperatorResources } from '../resources.ts';
import { QUERY_LIMIT_MS, bounded } from '../temporal.ts';

/** Temporal takes what is below the least for it; above the most, all others stand still. */
export const LEAST_WEIGHT = 0.001;
export const MOST_WEIGHT = 1_000;
/** Weight of a producer without a configured one. */
export const USUAL_WEIGHT = 1;

const INVALID_ARGUMENT = 3;
const UNIMPLEMENTED = 12;

export interface WeightRequest {
  /** Undefined: the usual one. */
  weight: number | undefined;
  requestedBy: string;
}

type Resources = Pick<OperatorResources, 'temporal' | 'namespace' | 'db'>;
type QueueConfig = protos.api.taskqueue.v1.ITaskQueueConfig | null | undefined;

/**
 * Sets the weight of a producer, on both queues.
 *
 * @throws OperationFailedError when the server has no weights; nothing is changed then.
 */
export function setWeight(
  resources: Resources,
  producer: Producer,
  { weight, requestedBy }: WeightRequest,
): Promise<void> {
  const { temporal, namespace } = resources;
  const detail = weight === undefined ? 'cleared' : String(weight);
  const action = { action: 'producers weight', target: producer, requestedBy, detail };
  return byAuthor(resources, action, async () => {
    // The first one is where servers without weights refuse.
    for (const taskQueueType of [WORKFLOW_TASKS, ACTIVITY_TASKS]) {
      const change = {
        ...{ namespace, identity: requestedBy, taskQueue: INTENT_TASK_QUEUE, taskQueueType },
        ...(weight === undefined
          ? { unsetFairnessWeightOverrides: [producer] }
          : { setFairnessWeightOverrides: { [producer]: weight } }),
      };
      const { config } = await bounded(temporal, () =>
        temporal.workflowService.updateTaskQueueConfig(change),
      ).catch(async (error: unknown) => {
        throw hasNoWeights(error) ? await noWeights(resources, error) : error;
      });
      // A server that does not know them leaves them out without a word.
      if (weightIn(config, producer) !== weight) throw await noWeights(resources);
    }
  });
}

/** @returns the weight of each producer with a configured one; undefined when the server does not answer. */
export async function weightsOf({
  temporal,
  namespace,
}: Pick<Resources, 'temporal' | 'namespace'>): Promise<ReadonlyMap<string, number> | undefined> {
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

function hasNoWeights(error: unknown): boolean {
  const answer = error instanceof ServiceError ? error.cause : error;
  if (!isGrpcServiceError(answer)) return false;
  const code = Number(answer.code);
  // 1.29 takes every change of this queue for a rate.
  return code === UNIMPLEMENTED || (code === INVALID_ARGUMENT && /rate limit/i.test(answer.message));
}

async function noWeights({ temporal }: Resources, cause?: unknown): Promise<OperationFailedError> {
  const { serverVersion } = await bounded(temporal, () => temporal.workflowService.getSystemInfo({}));
  return new OperationFailedError(
    `Temporal ${serverVersion} has no weights of producers, which came with 1.30; nothing was changed`,
    { cause },
  );
}
