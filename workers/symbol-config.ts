/** Symbol configuration in this process: its settings, activities, targets and workflow. */
import type { Client } from '@temporalio/client';
import { watchPostgres } from '../activities/stream-memory.ts';
import {
  addSampleSymbols,
  createSymbolConfigActivities,
  createSymbolConfigMetrics,
  registerTargets,
  symbolGauges,
} from '../activities/symbol-config/activities.ts';
import type { LongLivedWorkflow } from '../activities/workflows.ts';
import { keepRunning, signalIfRunning } from '../activities/workflows.ts';
import { SYMBOL_TARGETS } from '../config/symbol-config.ts';
import {
  SYMBOLS_CHANGED_SIGNAL,
  SYMBOL_CONFIG_TASK_QUEUE,
  SYMBOL_CONFIG_WORKFLOW,
  SYMBOL_CONFIG_WORKFLOW_ID,
} from '../workflows/symbol-config/contract.ts';
import type { ProcessContext } from './context.ts';
import { openCaller } from './connections.ts';
import type { Role } from './role.ts';

export function openSymbolConfig(context: ProcessContext): Role {
  const { config, endpoints, log, meter } = context;
  const { values } = config;
  const { symbolTargets = [], sampleSymbols = [] } = endpoints;
  const metrics = createSymbolConfigMetrics(meter);
  const caller = openCaller(context, SYMBOL_TARGETS, 'symbol targets');
  const settings = {
    pushTimeoutMs: values.NOTIFICATION_HTTP_TIMEOUT,
    retryLadderMs: values.NOTIFICATION_SYMBOL_RETRY_LADDER,
    intervals: {
      reconciliationMs: 15 * values.NOTIFICATION_RECONCILIATION_INTERVAL,
      crawlMs: values.NOTIFICATION_SYMBOL_CRAWL_INTERVAL,
    },
  };

  const registry: LongLivedWorkflow = {
    workflowType: SYMBOL_CONFIG_WORKFLOW,
    workflowId: SYMBOL_CONFIG_WORKFLOW_ID,
    taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
    args: [],
    staticSummary: `pushes symbols to ${symbolTargets.length} targets`,
    isNeverIdle: true,
  };

  /** Has the list pushed to all targets. A workflow that does not run does so when it is started. */
  const tell = ({ workflow }: Client) =>
    signalIfRunning(workflow, registry.workflowId, SYMBOLS_CHANGED_SIGNAL);

  return {
    taskQueue: SYMBOL_CONFIG_TASK_QUEUE,
    longLived: [registry],
    expiring: [],

    activities: ({ db }) => createSymbolConfigActivities({ ...settings, db, log, metrics, caller }),

    gauges: ({ db }) => symbolGauges(db),

    async rewind({ client }) {
      await tell(client);
      return undefined;
    },

    /** Registers the targets. A workflow that runs stays as it is, and hears of targets that have no list yet. */
    async startWork({ db, redis, client }) {
      const unreached = await registerTargets(db, symbolTargets);
      const newSymbols = await addSampleSymbols(db, sampleSymbols);
      const workflow = await keepRunning(client.workflow, registry);
      // Targets count as unreached, too, when a process registered them and died before it came to this.
      if (unreached + newSymbols > 0) {
        log.info({ unreached, new_symbols: newSymbols }, 'symbol targets registered');
        await workflow.signal(SYMBOLS_CHANGED_SIGNAL);
      }

      const pushToAll = async () => {
        await tell(client);
        log.error('PostgreSQL fell back to an earlier state, its symbols are pushed to all targets');
      };
      const owner = { role: 'symbol-config', db, redis, log, stream: registry.workflowId };
      const watch = watchPostgres(owner, pushToAll);
      return [watch.stop];
    },
  };
}
