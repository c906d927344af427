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

const OF_INTENTS = "(WorkflowId STARTS_WITH 'notification/' OR WorkflowId STARTS_WITH 'notification-slice/')";
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
    const notifications = notificationsOf(workflowId, (await described.staticDetails()) ?? '');
    if (!(await areSettled(db, notifications))) return 0;
    await endStuck(workflows, workflowId);
    return 1;
  });
  return ended.reduce((sum, one) => sum + one, 0);
}

/** `notification/<id>[/…]`; a slice names its intents in its details, a line each. */
function notificationsOf(workflowId: string, details: string): string[] {
  const [kind, id = ''] = workflowId.split('/');
  return kind === 'notification' ? [id] : details.split('\n');
}

async function areSettled(db: Pool, notificationIds: readonly string[]): Promise<boolean> {
  const [row] = await query<{ settled: number }>(db, COUNT_SETTLED, [notificationIds]);
  return row!.settled === notificationIds.length;
}

/** $1 notifications. Those that are decided, wait for nothing, and have no open route. */
const COUNT_SETTLED = {
  name: 'count_settled_notifications',
  text: `
    SELECT count(*)::int AS settled
      FROM unnest($1::text[]) AS asked (id)
     WHERE NOT EXISTS (SELECT FROM notification.waiting_intents WHERE notification_id = asked.id)
       AND NOT EXISTS (SELECT FROM notification.routes
                        WHERE notification_id = asked.id AND status IN ('pending', 'failed'))
       AND (EXISTS (SELECT FROM notification.records WHERE notification_id = asked.id)
            OR EXISTS (SELECT FROM notification.duplicates WHERE notification_id = asked.id)
            OR EXISTS (SELECT FROM notification.malformed_intents WHERE stream_entry_id = asked.id)
            OR EXISTS (SELECT FROM notification.cancelled_intents WHERE notification_id = asked.id))`,
};
