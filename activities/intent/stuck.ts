/**
 * Workflows that cannot go on, and that nothing is left to do for. Temporal that is put back beneath workers leaves some:
 * they wrote into a history that is another one now. Those with work left are replaced where the work is taken up
 * (reconciliation.ts); these would run for ever.
 */
import type { WorkflowClient } from '@temporalio/client';
import pLimit from 'p-limit';
import type { Pool } from 'pg';
import { query } from '../postgres.ts';
import { describe, endStuck, isStuck } from '../workflows.ts';

const OF_INTENTS = "WorkflowId STARTS_WITH 'notification/'";
/** What began later is under way, ms. */
const YOUNG_MS = 120_000;
/** Workflows that are looked at in a run, and concurrently. Those that wait run as well, any number of them. */
const MOST_LOOKED_AT = 2_000;
const PARALLEL = 8;

/**
 * Ends those of intents whose rows are settled.
 *
 * @param youngMs workflows that began later are left alone.
 * @returns how many. @throws what the Temporal client fails with; ApplicationFailure of PostgreSQL.
 */
export async function endSettledStuck(
  db: Pool,
  workflows: WorkflowClient,
  youngMs = YOUNG_MS,
): Promise<number> {
  const before = new Date(Date.now() - youngMs).toISOString();
  const running = workflows.list({
    query: `ExecutionStatus = 'Running' AND ${OF_INTENTS} AND StartTime < '${before}'`,
  });
  const ids: string[] = [];
  for await (const { workflowId } of running) if (ids.push(workflowId) === MOST_LOOKED_AT) break;
  const ended = await pLimit(PARALLEL).map(ids, async (workflowId): Promise<number> => {
    const described = await describe(workflows, workflowId);
    if (!described || !isStuck(described)) return 0;
    if (!(await isSettled(db, workflowId.split('/')[1] ?? ''))) return 0;
    await endStuck(workflows, workflowId);
    return 1;
  });
  return ended.reduce((sum, one) => sum + one, 0);
}

async function isSettled(db: Pool, notificationId: string): Promise<boolean> {
  const [row] = await query<{ is_settled: boolean }>(db, IS_SETTLED, [notificationId]);
  return row!.is_settled;
}

/** $1 notification: whether it is decided and has no open route. */
const IS_SETTLED = {
  name: 'is_notification_settled',
  text: `
    SELECT EXISTS (SELECT FROM notification.intents WHERE notification_id = $1 AND status <> 'open')
           AND NOT EXISTS (SELECT FROM notification.routes
                            WHERE notification_id = $1 AND status IN ('pending', 'failed')) AS is_settled`,
};
