/** Account callbacks in this process: their settings, activities, shards and the consumer of extremes. */
import { giveAgain, watchGroup } from '../activities/group-watch.ts';
import type { WorkflowClient } from '@temporalio/client';
import { createAccountCallbackActivities } from '../activities/account-callback/activities.ts';
import { createPortfolioService } from '../activities/account-callback/delivery.ts';
import {
  createAccountCallbackMetrics,
  observeAccountCallbacks,
} from '../activities/account-callback/metrics.ts';
import { callbackTables } from '../activities/account-callback/retention.ts';
import { adoptOrphans, assignShards } from '../activities/account-callback/shards.ts';
import { consumeCallbackInputs } from '../activities/account-callback/stream.ts';
import { watchEvery } from '../activities/watch.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { keepRunning, statusOf } from '../activities/workflows.ts';
import { DEFAULT_INPUT_STREAM } from '../api/account-callback/input.ts';
import { CONSUMER_GROUP } from '../api/stream-ids.ts';
import { PORTFOLIO } from '../config/account-callback.ts';
import type { Config } from '../config/load.ts';
import {
  ACCOUNT_CALLBACK_TASK_QUEUE,
  ACCOUNT_CALLBACK_WORKFLOW,
  accountCallbackWorkflowId,
} from '../workflows/account-callback/contract.ts';
import type { ProcessContext } from './context.ts';
import { reach, required } from './context.ts';
import { openCaller } from './http-caller.ts';
import type { Role } from './role.ts';

/** Between two looks for rows of shards that have ended: their last activities may write some later, ms. */
const ADOPTION_INTERVAL_MS = 3_600_000;

export async function openAccountCallbacks(context: ProcessContext): Promise<Role> {
  const { config, log, meter } = context;
  const portfolios = await openPortfolios(context);
  const settings = settingsOf(config);
  const metrics = createAccountCallbackMetrics(meter);
  const shards = config.values.NOTIFICATION_CALLBACK_SHARDS;

  const longLived = Array.from({ length: shards }, (_, shard): LongLivedWorkflow => ({
    workflowType: ACCOUNT_CALLBACK_WORKFLOW,
    workflowId: accountCallbackWorkflowId(shard),
    taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    args: [{ shard }],
    staticSummary: `account callbacks, shard ${shard + 1} of ${shards}`,
  }));

  return {
    taskQueue: ACCOUNT_CALLBACK_TASK_QUEUE,
    longLived,
    expiring: callbackTables({
      recordRetentionMs: config.values.NOTIFICATION_RECORD_RETENTION,
      malformedIntentRetentionMs: config.values.NOTIFICATION_MALFORMED_INTENT_RETENTION,
    }),

    activities: ({ db }) => createAccountCallbackActivities({ ...settings, db, log, metrics, portfolios }),

    /** Gives its inputs to the group again. Those that are kept already have no further effect. */
    rewind: ({ redis }, sinceMs) => giveAgain({ ...settings.callbackStream, redis }, sinceMs),

    /** Spreads the users over the shards. Shards that run stay as they are; shards beyond the configured number end. */
    async startWork({ db, redis, client, openReader }) {
      const moved = await assignShards(db, shards);
      if (moved > 0) log.info({ shards, moved }, 'users moved between shards');
      await Promise.all(longLived.map((shard) => keepRunning(client.workflow, shard)));
      for (let shard = shards; await endIfRunning(client.workflow, shard); shard += 1) {
        log.info({ shard, shards }, 'shard of account callbacks ended');
      }
      await adoptOrphans(db);
      const consumer = consumeCallbackInputs({ ...settings, db, redis, log, metrics, openReader });
      const watch = watchGroup({ ...settings.callbackStream, redis }, { db, log, role: 'account-callback' });
      const adoption = watchEvery(
        ADOPTION_INTERVAL_MS,
        () => adoptOrphans(db),
        (reason) => log.warn({ reason }, 'rows of shards that have ended are not adopted'),
      );
      return [observeAccountCallbacks(meter, { db, log }), consumer.stop, watch.stop, adoption.stop];
    },
  };
}

/** @returns whether the shard has ever run: shards behind it may have, too. */
async function endIfRunning(workflows: WorkflowClient, shard: number): Promise<boolean> {
  const workflowId = accountCallbackWorkflowId(shard);
  const status = await statusOf(workflows, workflowId);
  if (status === 'RUNNING') await workflows.getHandle(workflowId).terminate('there are fewer shards now');
  return status !== undefined;
}

/** Nothing is asked of it yet: callbacks that it does not take are tried again. */
function openPortfolios(context: ProcessContext) {
  const { config, endpoints } = context;
  const { values } = config;
  return reach('the portfolio service', 'NOTIFICATION_PORTFOLIO_BASE_URL', () => {
    return createPortfolioService({
      baseUrl: required(endpoints.portfolioUrl),
      timeoutMs: values.NOTIFICATION_HTTP_TIMEOUT,
      caller: openCaller(context, PORTFOLIO, 'portfolio service', 10_000),
    });
  });
}

function settingsOf({ values }: Config) {
  return {
    callbacks: { retryLadderMs: values.NOTIFICATION_CALLBACK_RETRY_LADDER },
    callbackStream: { stream: DEFAULT_INPUT_STREAM, group: CONSUMER_GROUP },
  };
}
