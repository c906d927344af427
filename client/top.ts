/** Everything that is under way, at one glance: cheap enough to be repeated each few seconds, however much there is. */
import { ACTIVITY_TASKS, WORKFLOW_TASKS } from '../api/task-queue-types.ts';
import { ACCOUNT_CALLBACK_TASK_QUEUE } from '../workflows/account-callback/contract.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import { MOBILE_TASK_QUEUE } from '../workflows/mobile-push/contract.ts';
import { SUBSCRIPTION_TASK_QUEUE } from '../workflows/subscription/contract.ts';
import { SYMBOL_CONFIG_TASK_QUEUE } from '../workflows/symbol-config/contract.ts';
import { callbackLook } from './account-callback/top.ts';
import { causeOf } from './errors.ts';
import { intentLook } from './intent/top.ts';
import type { KindLook } from './look.ts';
import { RATE_WINDOW_MS } from './look.ts';
import { mobileLook } from './mobile-push/top.ts';
import type { OperatorResources } from './resources.ts';
import { subscriptionLook } from './subscription/top.ts';
import { symbolLook } from './symbol-config/top.ts';
import { bounded } from './temporal.ts';

/** What Temporal knows of a task queue, of workflow and activity tasks together. */
interface QueueLook {
  /** Tasks per second that it gave to workers: the mean of half a minute. Those that go past the queue are not among them. */
  tasksPerSecond: number;
  /** Tasks that no worker has taken yet. */
  tasksWaiting: number;
}

export interface TopOfKind extends KindLook, Partial<QueueLook> {
  kind: 'intent' | 'mobile-push' | 'symbol-config' | 'account-callback' | 'subscription';
}

export interface Top {
  at: Date;
  /** Rates of rows are means of this time, ms. */
  windowMs: number;
  kinds: TopOfKind[];
}

const KINDS = [
  ['intent', INTENT_TASK_QUEUE, intentLook],
  ['mobile-push', MOBILE_TASK_QUEUE, mobileLook],
  ['symbol-config', SYMBOL_CONFIG_TASK_QUEUE, symbolLook],
  ['account-callback', ACCOUNT_CALLBACK_TASK_QUEUE, callbackLook],
  ['subscription', SUBSCRIPTION_TASK_QUEUE, subscriptionLook],
] as const;

/** Never throws: what a server did not tell is missing, and said in `unknown` of its kind. */
export async function top(resources: OperatorResources): Promise<Top> {
  const kinds = await Promise.all(
    KINDS.map(async ([kind, taskQueue, look]): Promise<TopOfKind> => {
      const [rows, queue] = await Promise.all([
        look(resources),
        queueLook(resources, taskQueue).catch((error: unknown) => causeOf(error)),
      ]);
      return typeof queue === 'string'
        ? { kind, ...rows, unknown: [...rows.unknown, `tasks: ${queue}`] }
        : { kind, ...rows, ...queue };
    }),
  );
  return { at: new Date(), windowMs: RATE_WINDOW_MS, kinds };
}

async function queueLook(
  { temporal, namespace }: OperatorResources,
  name: string,
): Promise<Partial<QueueLook>> {
  const described = await Promise.all(
    [WORKFLOW_TASKS, ACTIVITY_TASKS].map((taskQueueType) =>
      bounded(temporal, () =>
        temporal.workflowService.describeTaskQueue({
          namespace,
          taskQueue: { name },
          taskQueueType,
          reportStats: true,
        }),
      ),
    ),
  );
  // A server that has no statistics leaves them out.
  const found = described.flatMap(({ stats }) => stats ?? []);
  if (found.length === 0) return {};
  const sum = (of: (stats: (typeof found)[number]) => number) =>
    found.reduce((total, one) => total + of(one), 0);
  return {
    tasksPerSecond: sum(({ tasksDispatchRate }) => tasksDispatchRate ?? 0),
    tasksWaiting: sum(({ approximateBacklogCount }) => Number(approximateBacklogCount?.toString() ?? 0)),
  };
}
