/**
 * Recovery after a store was put back to an earlier state: what would be done, and doing it as a durable workflow. The
 * service notices most losses by itself; this is for those that it was not running for, and for certainty.
 */
import { given } from '../api/given.ts';
import { INTENT_TASK_QUEUE } from '../workflows/intent/contract.ts';
import type { RecoveryInput, RecoveryProgress } from '../workflows/recovery-contract.ts';
import {
  RECOVERY_PROGRESS_QUERY,
  RECOVERY_WORKFLOW,
  RECOVERY_WORKFLOW_ID,
} from '../workflows/recovery-contract.ts';
import { OperationFailedError } from './errors.ts';
import type { FollowOptions } from './temporal.ts';
import { bounded, follow, query, statusOf } from './temporal.ts';
import type { OperatorResources } from './resources.ts';
import { linkField } from './resources.ts';

/** Rows are counted up to here: more is many. */
const COUNTED_AT_MOST = 100_000;

export interface RecoveryPlan {
  /** Entries of the intent stream that would be read again: ids; absent when nothing was ever read. */
  readAgain?: { from: string; upTo: string };
  /** Routes whose entries would be looked for, at most 100,000. */
  publishedRoutes: number;
  /** Routes that are overdue for a minute and may have no worker, at most 100,000. */
  overdueRoutes: number;
  /** Intents that wait for their decision. */
  waitingIntents: number;
}

export type RecoveryRequest = Omit<RecoveryInput, 'stream'>;

export interface RecoveryRun {
  /** Undefined while no worker answers. */
  progress: RecoveryProgress | undefined;
  isDone: boolean;
  link?: string;
}

export function recoveryOperations(resources: OperatorResources) {
  const { temporal, db, redis, intentsStream } = resources;

  return {
    /** What a recovery would do. Changes nothing. */
    async plan({ sinceMs }: Pick<RecoveryRequest, 'sinceMs'>): Promise<RecoveryPlan> {
      const { rows: streams } = await db.query<{ passed_id: string }>(READ_STREAM, [intentsStream]);
      const [seconds] = await redis.time();
      const readAgain = streams[0] && {
        from: `${Number(seconds) * 1_000 - sinceMs}-0`,
        upTo: streams[0].passed_id,
      };
      type Counts = Omit<RecoveryPlan, 'readAgain'>;
      const { rows: counts } = await db.query<Counts>(COUNT_WORK, [sinceMs, COUNTED_AT_MOST]);
      return { ...given({ readAgain }), ...counts[0]! };
    },

    /** Starts a recovery; when one runs, that one goes on. @returns whether it is new. */
    async start(request: RecoveryRequest): Promise<{ isNew: boolean; link?: string }> {
      const isRunning = (await statusOf(resources, RECOVERY_WORKFLOW_ID)) === 'RUNNING';
      await bounded(temporal, () =>
        temporal.workflow.start(RECOVERY_WORKFLOW, {
          workflowId: RECOVERY_WORKFLOW_ID,
          taskQueue: INTENT_TASK_QUEUE,
          args: [{ ...request, stream: intentsStream } satisfies RecoveryInput],
          workflowIdConflictPolicy: 'USE_EXISTING',
          staticSummary: `recovery, asked for by ${request.requestedBy}`,
        }),
      );
      return { isNew: !isRunning, ...linkField(resources, RECOVERY_WORKFLOW_ID) };
    },

    /**
     * Follows the recovery that runs, or the last one.
     *
     * @returns how it stood in the end, or when the time was up.
     * @throws OperationFailedError when it failed or an operator ended it.
     */
    follow: (options: FollowOptions<RecoveryRun>): Promise<RecoveryRun> =>
      follow(look, ({ isDone }) => isDone, options),
  };

  async function look(): Promise<RecoveryRun> {
    const status = await statusOf(resources, RECOVERY_WORKFLOW_ID);
    const isDone = status === 'COMPLETED';
    if (!isDone && status !== 'RUNNING')
      throw new OperationFailedError(`the recovery is ${(status ?? 'unknown').toLowerCase()}`);
    // No worker answers while no process runs.
    const progress = isDone
      ? ((await temporal.workflow.getHandle(RECOVERY_WORKFLOW_ID).result()) as RecoveryProgress)
      : await query<RecoveryProgress>(temporal, RECOVERY_WORKFLOW_ID, RECOVERY_PROGRESS_QUERY);
    return { progress, isDone, ...linkField(resources, RECOVERY_WORKFLOW_ID) };
  }
}

const READ_STREAM = 'SELECT passed_id FROM notification.inbound_streams WHERE stream = $1';

/** $1 since, ms before now; $2 counted at most. */
const COUNT_WORK = `
  SELECT (SELECT count(*)::int
            FROM (SELECT FROM notification.routes
                   WHERE published_at >= now() - $1::bigint * interval '1 millisecond' LIMIT $2) AS counted) AS "publishedRoutes",
         (SELECT count(*)::int
            FROM (SELECT FROM notification.routes
                   WHERE next_attempt_at < now() - interval '1 minute' LIMIT $2) AS counted) AS "overdueRoutes",
         (SELECT count(*)::int FROM (SELECT FROM notification.intents WHERE status = 'open' LIMIT $2) AS counted) AS "waitingIntents"`;
