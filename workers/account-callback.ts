/** Account callbacks in this process: their settings, activities, shards and the consumer of extremes. */
import { giveAgain, watchGroup } from '../activities/stream-memory.ts';
import {
  callbackGauges,
  createAccountCallbackActivities,
  createAccountCallbackMetrics,
} from '../activities/account-callback/activities.ts';
import { callbackTables } from '../activities/account-callback/callback-rows.ts';
import { consumeCallbackInputs, fixShards } from '../activities/account-callback/inputs.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { keepRunning } from '../activities/workflows.ts';
import { DEFAULT_INPUT_STREAM } from '../api/account-callback/input.ts';
import { CONSUMER_GROUP } from '../api/stream-ids.ts';
import { PORTFOLIO } from '../config/account-callback.ts';
import { ConfigError } from '../config/variables.ts';
import {
  ACCOUNT_CALLBACK_TASK_QUEUE,
  ACCOUNT_CALLBACK_WORKFLOW,
  accountCallbackWorkflowId,
} from '../workflows/account-callback/contract.ts';
import type { ProcessContext } from './context.ts';
import { reach, required } from './context.ts';
import { openCaller } from './connections.ts';
import type { Role } from './role.ts';

const INPUTS = { stream: DEFAULT_INPUT_STREAM, group: CONSUMER_GROUP };

export async function openAccountCallbacks(context: ProcessContext): Promise<Role> {
  const { config, endpoints, log, meter } = context;
  const { values } = config;
  // Nothing is asked of it yet: callbacks that it does not take are tried again.
  const portfolio = await reach('the portfolio service', 'NOTIFICATION_PORTFOLIO_BASE_URL', () => ({
    baseUrl: required(endpoints.portfolioUrl),
    timeoutMs: values.NOTIFICATION_HTTP_TIMEOUT,
    caller: openCaller(context, PORTFOLIO, 'portfolio service', 10_000),
    retryLadderMs: values.NOTIFICATION_CALLBACK_RETRY_LADDER,
  }));
  const metrics = createAccountCallbackMetrics(meter);
  const shards = values.NOTIFICATION_CALLBACK_SHARDS;

  const longLived = Array.from({ length: shards }, (_, shard): LongLivedWorkflow => ({
    workflowType: ACCOUNT_CALLBACK_WORKFLOW,
    workflowId: accountCallbackWorkflowId(shard),
    taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    args: [{ shard }],
    staticSummary: `account callbacks, shard ${shard + 1} of ${shards}`,
    isNeverIdle: true,
  }));

  return {
    taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    longLived,
    expiring: callbackTables(
      values.NOTIFICATION_RECORD_RETENTION,
      values.NOTIFICATION_MALFORMED_INTENT_RETENTION,
    ),

    activities: ({ db }) => createAccountCallbackActivities({ db, log, metrics, portfolio }),

    gauges: ({ db }) => callbackGauges(db),

    /** Gives its inputs to the group again. Those that are kept already have no further effect. */
    rewind: ({ redis }, sinceMs) => giveAgain({ ...INPUTS, redis }, sinceMs),

    /** Shards that run stay as they are. @throws ConfigError for another number of shards than that of the users. */
    async startWork({ db, redis, client, openReader }) {
      const fixed = await fixShards(db, shards);
      if (fixed !== shards) {
        throw new ConfigError([
          `NOTIFICATION_CALLBACK_SHARDS must stay ${fixed}: users are spread over as many shards`,
        ]);
      }
      await Promise.all(longLived.map((shard) => keepRunning(client.workflow, shard)));
      const consumer = consumeCallbackInputs({ db, redis, log, metrics, openReader });
      const watch = watchGroup({ ...INPUTS, db, redis, log, role: 'account-callback' });
      return [consumer.stop, watch.stop];
    },
  };
}
